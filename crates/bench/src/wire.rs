//! The wire by hand: handshake, masked frames, records. (docs/protocol.md, section 6.)

/// The opening handshake; the key is the one of RFC 6455, section 1.3.
pub(crate) const HANDSHAKE: &[u8] = b"GET /v1/ws HTTP/1.1\r\nHost: bench\r\nUpgrade: websocket\r\n\
    Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: tidegate.v1\r\n\r\n";

/// Appends one masked binary frame; the mask is zero, which masks nothing and is allowed.
pub(crate) fn append_frame(payload: &[u8], out: &mut Vec<u8>) {
    out.push(0x82);
    match payload.len() {
        len @ 0..=125 => out.push(0x80 | len as u8),
        len @ 126..=0xFFFF => {
            out.push(0x80 | 126);
            out.extend_from_slice(&(len as u16).to_be_bytes());
        }
        len => {
            out.push(0x80 | 127);
            out.extend_from_slice(&(len as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(payload);
}

pub(crate) fn append_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a control record with JSON text, in a frame.
pub(crate) fn append_control(text: &str, out: &mut Vec<u8>) {
    let mut record = vec![0];
    append_varint(text.len() as u64, &mut record);
    record.extend_from_slice(text.as_bytes());
    append_frame(&record, out);
}

/// Appends an unacknowledged publish record of bytes, without a frame.
pub(crate) fn append_publish(topic: &str, payload: &[u8], out: &mut Vec<u8>) {
    out.push(0x33);
    append_varint(0, out);
    append_varint(topic.len() as u64, out);
    out.extend_from_slice(topic.as_bytes());
    append_varint(payload.len() as u64, out);
    out.extend_from_slice(payload);
}

/// One record from the server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Record<'a> {
    /// JSON text.
    Control(&'a [u8]),
    /// A publication; of its sequence only the low 16 bits are looked at.
    Publication { number: u32, low: u16, payload: &'a [u8] },
}

/// What is wrong with bytes from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadBytes;

/// Takes one whole server frame from the front of `bytes`: its payload and length, or `None` while
/// it is not all there.
pub(crate) fn take_frame(bytes: &[u8]) -> Option<(u8, &[u8], usize)> {
    let (&first, &second) = (bytes.first()?, bytes.get(1)?);
    let (len, header) = match second & 0x7F {
        126 => (usize::from(u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?)), 4),
        127 => (u64::from_be_bytes(bytes.get(2..10)?.try_into().ok()?) as usize, 10),
        len => (usize::from(len), 2),
    };
    let payload = bytes.get(header..header + len)?;
    Some((first & 0x0F, payload, header + len))
}

/// Hands each record of a binary message to `take`.
pub(crate) fn each_record<'a>(
    mut rest: &'a [u8],
    mut take: impl FnMut(Record<'a>),
) -> Result<(), BadBytes> {
    while let Some((&tag, after)) = rest.split_first() {
        rest = after;
        let record = match tag {
            0 => Record::Control(take_bytes(&mut rest)?),
            0x11..=0x13 => {
                let number = take_varint(&mut rest)? as u32;
                let (low, after) = rest.split_first_chunk::<2>().ok_or(BadBytes)?;
                rest = after;
                let low = u16::from_be_bytes(*low);
                Record::Publication { number, low, payload: take_bytes(&mut rest)? }
            }
            0x21..=0x23 => {
                let number = take_varint(&mut rest)? as u32;
                let low = take_varint(&mut rest)? as u16;
                Record::Publication { number, low, payload: take_bytes(&mut rest)? }
            }
            _ => return Err(BadBytes),
        };
        take(record);
    }
    Ok(())
}

fn take_varint(bytes: &mut &[u8]) -> Result<u64, BadBytes> {
    let mut value = 0;
    for (index, byte) in bytes.iter().take(8).enumerate() {
        value |= u64::from(byte & 0x7F) << (7 * index);
        if byte & 0x80 == 0 {
            *bytes = &bytes[index + 1..];
            return Ok(value);
        }
    }
    Err(BadBytes)
}

fn take_bytes<'a>(bytes: &mut &'a [u8]) -> Result<&'a [u8], BadBytes> {
    let len = take_varint(bytes)? as usize;
    let (taken, rest) = bytes.split_at_checked(len).ok_or(BadBytes)?;
    *bytes = rest;
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_the_protocol_writes_them() {
        let message = [
            &[0x11, 0x07, 0x00, 0x3a, 0x02][..],
            b"{}",
            &[0x23, 0x07, 0xba, 0x80, 0x04, 0x01, 9],
            &[0x00, 0x02],
            b"ab",
        ]
        .concat();
        let mut seen = Vec::new();
        each_record(&message, |record| seen.push(format!("{record:?}"))).expect("valid");
        assert_eq!(seen.len(), 3);
        assert!(seen[0].contains("low: 58") && seen[1].contains("low: 58"), "{seen:?}");
        assert_eq!(each_record(&[0x55], |_| ()), Err(BadBytes));
        assert_eq!(take_frame(&[0x82, 3, 1, 2]), None);
        assert_eq!(take_frame(&[0x82, 1, 9, 7]), Some((2, &[9][..], 3)));
    }
}
