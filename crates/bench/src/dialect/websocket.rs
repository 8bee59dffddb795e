//! WebSocket by hand: handshake and frames. (RFC 6455.)

/// Appends an opening handshake for `path`; the key is the one of RFC 6455, section 1.3.
pub(crate) fn append_handshake(path: &str, subprotocol: Option<&str>, out: &mut Vec<u8>) {
    let subprotocol =
        subprotocol.map_or(String::new(), |name| format!("Sec-WebSocket-Protocol: {name}\r\n"));
    let text = format!(
        "GET {path} HTTP/1.1\r\nHost: bench\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         {subprotocol}\r\n"
    );
    out.extend_from_slice(text.as_bytes());
}

/// Appends one masked frame; the mask is zero, which masks nothing and is allowed.
pub(crate) fn append_frame(opcode: u8, payload: &[u8], out: &mut Vec<u8>) {
    out.push(0x80 | opcode);
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

/// One whole frame from a server: its opcode, payload and length with header.
pub(crate) struct Frame<'a> {
    pub opcode: u8,
    pub payload: &'a [u8],
    pub bytes: usize,
}

/// Takes one whole frame from the front of `bytes`, or `None` while it is not all there.
pub(crate) fn take_frame(bytes: &[u8]) -> Option<Frame<'_>> {
    let (&first, &second) = (bytes.first()?, bytes.get(1)?);
    let (len, header): (usize, usize) = match second & 0x7F {
        126 => (usize::from(u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?)), 4),
        127 => (u64::from_be_bytes(bytes.get(2..10)?.try_into().ok()?) as usize, 10),
        len => (usize::from(len), 2),
    };
    let payload = bytes.get(header..header.checked_add(len)?)?;
    Some(Frame { opcode: first & 0x0F, payload, bytes: header + len })
}

/// The end of the answer to the handshake, once it is whole: `Err` if it is not an upgrade.
pub(crate) fn take_handshake(bytes: &[u8]) -> Option<Result<usize, super::BadBytes>> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    Some(if bytes.starts_with(b"HTTP/1.1 101") { Ok(end) } else { Err(super::BadBytes) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_taken_whole() {
        assert!(take_frame(&[0x82, 3, 1, 2]).is_none());
        let frame = take_frame(&[0x82, 1, 9, 7]).expect("whole");
        assert_eq!((frame.opcode, frame.payload, frame.bytes), (2, &[9][..], 3));
        assert_eq!(take_handshake(b"HTTP/1.1 101 x\r\n"), None);
        assert_eq!(take_handshake(b"HTTP/1.1 101 x\r\n\r\n"), Some(Ok(18)));
        assert!(matches!(take_handshake(b"HTTP/1.1 503 x\r\n\r\n"), Some(Err(_))));
    }
}
