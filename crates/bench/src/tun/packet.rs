//! IPv4 and TCP packets with a virtio header in front, as a TUN device takes and gives them.

use std::net::Ipv4Addr;

/// Bytes of `struct virtio_net_hdr`.
pub(crate) const VIRTIO: usize = 10;
const IPV4: usize = 20;
const TCP: usize = 20;

pub(crate) const FIN: u8 = 1;
pub(crate) const SYN: u8 = 2;
pub(crate) const RST: u8 = 4;
pub(crate) const PSH: u8 = 8;
pub(crate) const ACK: u8 = 16;

/// A segment of one connection, from the client's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment<'a> {
    pub client: Ipv4Addr,
    pub client_port: u16,
    pub sequence: u32,
    pub acknowledged: u32,
    pub flags: u8,
    pub payload: &'a [u8],
}

/// Writes a segment from a client to `server`; answers the packet.
///
/// The checksum is left to the kernel (VIRTIO_NET_HDR_F_NEEDS_CSUM), which then does not check it.
pub(crate) fn write<'b>(
    segment: Segment<'_>,
    server: Ipv4Addr,
    server_port: u16,
    buffer: &'b mut [u8],
) -> &'b [u8] {
    let options: &[u8] = if segment.flags & SYN != 0 { &[2, 4, 0x05, 0xb4] } else { &[] };
    let tcp_len = TCP + options.len();
    let whole = IPV4 + tcp_len + segment.payload.len();
    let packet = &mut buffer[..VIRTIO + whole];
    let (virtio, rest) = packet.split_at_mut(VIRTIO);
    virtio.fill(0);
    virtio[0] = 1;
    virtio[2..4].copy_from_slice(&((IPV4 + tcp_len) as u16).to_ne_bytes());
    virtio[6..8].copy_from_slice(&(IPV4 as u16).to_ne_bytes());
    virtio[8..10].copy_from_slice(&16u16.to_ne_bytes());
    let (ip, rest) = rest.split_at_mut(IPV4);
    ip.fill(0);
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&(whole as u16).to_be_bytes());
    ip[6] = 0x40;
    (ip[8], ip[9]) = (64, 6);
    ip[12..16].copy_from_slice(&segment.client.octets());
    ip[16..20].copy_from_slice(&server.octets());
    let sum = checksum(ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let (tcp, payload) = rest.split_at_mut(tcp_len);
    tcp.fill(0);
    tcp[0..2].copy_from_slice(&segment.client_port.to_be_bytes());
    tcp[2..4].copy_from_slice(&server_port.to_be_bytes());
    tcp[4..8].copy_from_slice(&segment.sequence.to_be_bytes());
    tcp[8..12].copy_from_slice(&segment.acknowledged.to_be_bytes());
    tcp[12] = ((tcp_len / 4) << 4) as u8;
    tcp[13] = segment.flags;
    tcp[14..16].copy_from_slice(&u16::MAX.to_be_bytes());
    tcp[TCP..].copy_from_slice(options);
    payload.copy_from_slice(segment.payload);
    packet
}

/// The Internet checksum. RFC 1071.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let mut sum: u32 = words.sum();
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    !(sum as u16)
}

/// Reads a packet to a client, or `None` if it is not IPv4 with TCP.
pub(crate) fn read(packet: &[u8]) -> Option<Segment<'_>> {
    let ip = packet.get(VIRTIO..)?;
    if *ip.first()? != 0x45 || *ip.get(9)? != 6 {
        return None;
    }
    let whole = usize::from(u16::from_be_bytes(ip.get(2..4)?.try_into().ok()?));
    let client = Ipv4Addr::from(<[u8; 4]>::try_from(ip.get(16..20)?).ok()?);
    let tcp = ip.get(IPV4..whole)?;
    let number = |at: usize| -> Option<u32> {
        Some(u32::from_be_bytes(tcp.get(at..at + 4)?.try_into().ok()?))
    };
    let header = usize::from(*tcp.get(12)? >> 4) * 4;
    Some(Segment {
        client,
        client_port: u16::from_be_bytes(tcp.get(2..4)?.try_into().ok()?),
        sequence: number(4)?,
        acknowledged: number(8)?,
        flags: *tcp.get(13)?,
        payload: tcp.get(header..)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_but_for_the_direction() {
        let segment = Segment {
            client: Ipv4Addr::new(10, 1, 0, 7),
            client_port: 5000,
            sequence: 77,
            acknowledged: 99,
            flags: ACK | PSH,
            payload: b"hello",
        };
        let mut buffer = [0; 200];
        let packet = write(segment, Ipv4Addr::new(10, 1, 0, 7), 5000, &mut buffer);
        assert_eq!(read(packet), Some(segment));
        assert_eq!(checksum(&packet[VIRTIO..VIRTIO + IPV4]), 0);
        assert_eq!(read(&packet[..20]), None);
    }
}
