//! Frames out.

use super::deflate::Deflater;

/// The type of a frame. RFC 6455, section 5.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Opcode {
    /// Goes on with a fragmented message.
    Continuation = 0,
    /// UTF-8 text.
    Text = 1,
    /// Any bytes.
    Binary = 2,
    /// The end.
    Close = 8,
    /// Asks for a pong.
    Ping = 9,
    /// Answers a ping.
    Pong = 10,
}

const FIN: u8 = 0b1000_0000;
/// RSV1. RFC 7692, section 6.
const COMPRESSED: u8 = 0b0100_0000;
const MASKED: u8 = 0b1000_0000;

/// Appends the header of one whole, unmasked frame, as a server sends it.
///
/// `payload_len` is in bytes; the header takes 2, 4 or 10, because a sender uses the
/// shortest length form that fits. RFC 6455, sections 5.1 (no mask) and 5.2 (layout).
pub fn encode_header(opcode: Opcode, payload_len: usize, out: &mut Vec<u8>) {
    let (header, len) = header(opcode, payload_len);
    out.extend_from_slice(&header[..len]);
}

fn header(opcode: Opcode, payload_len: usize) -> ([u8; 10], usize) {
    let mut header = [0; 10];
    header[0] = FIN | opcode as u8;
    match payload_len {
        0..=125 => {
            header[1] = payload_len as u8;
            (header, 2)
        }
        126..=0xFFFF => {
            header[1] = 126;
            header[2..4].copy_from_slice(&(payload_len as u16).to_be_bytes());
            (header, 4)
        }
        _ => {
            header[1] = 127;
            header[2..10].copy_from_slice(&(payload_len as u64).to_be_bytes());
            (header, 10)
        }
    }
}

/// A message being written at the end of a buffer, its header left open until its length is known.
#[derive(Debug)]
pub struct MessageWriter {
    start: usize,
}

/// Room for the header of a message of 126 to 65,535 bytes, the usual one.
const RESERVED: usize = 4;

impl MessageWriter {
    /// Opens a message; what is appended to `out` from now on is its payload.
    pub fn begin(out: &mut Vec<u8>) -> Self {
        let start = out.len();
        out.extend_from_slice(&[0; RESERVED]);
        Self { start }
    }

    /// Bytes of payload so far.
    pub fn payload_len(&self, out: &[u8]) -> usize {
        out.len() - self.start - RESERVED
    }

    /// Writes the shortest header, moving the payload where the reserved room does not fit.
    pub fn finish(self, opcode: Opcode, out: &mut Vec<u8>) {
        let payload = self.start + RESERVED;
        let (header, len) = header(opcode, out.len() - payload);
        if len < RESERVED {
            out.copy_within(payload.., self.start + len);
            out.truncate(out.len() - (RESERVED - len));
        } else if len > RESERVED {
            let end = out.len();
            out.resize(end + len - RESERVED, 0);
            out.copy_within(payload..end, self.start + len);
        }
        out[self.start..self.start + len].copy_from_slice(&header[..len]);
    }

    /// The same, compressed where that makes it smaller. Only for a peer that agreed on it.
    pub fn finish_deflated(self, opcode: Opcode, deflater: &mut Deflater, out: &mut Vec<u8>) {
        let payload = self.start + RESERVED;
        let deflated = deflater.deflate(&out[payload..]);
        if deflated.len() >= out.len() - payload {
            return self.finish(opcode, out);
        }
        let (mut header, len) = header(opcode, deflated.len());
        header[0] |= COMPRESSED;
        out.truncate(self.start);
        out.extend_from_slice(&header[..len]);
        out.extend_from_slice(deflated);
    }
}

/// Appends a close frame. The reason is cut to what a control frame holds. RFC 6455, section 5.5.1.
pub fn encode_close(code: u16, reason: &str, out: &mut Vec<u8>) {
    const REASON_BYTES_MAX: usize = 123;
    let mut end = reason.len().min(REASON_BYTES_MAX);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    encode_header(Opcode::Close, 2 + end, out);
    out.extend_from_slice(&code.to_be_bytes());
    out.extend_from_slice(&reason.as_bytes()[..end]);
}

/// Appends an empty ping.
pub fn encode_ping(out: &mut Vec<u8>) {
    encode_header(Opcode::Ping, 0, out);
}

/// Appends the pong that answers a ping; it echoes at most 125 bytes.
pub fn encode_pong(payload: &[u8], out: &mut Vec<u8>) {
    let payload = &payload[..payload.len().min(125)];
    encode_header(Opcode::Pong, payload.len(), out);
    out.extend_from_slice(payload);
}

/// Appends one whole masked frame, as a client sends it.
pub fn encode_masked(opcode: Opcode, payload: &[u8], mask: [u8; 4], out: &mut Vec<u8>) {
    let start = out.len();
    encode_header(opcode, payload.len(), out);
    out[start + 1] |= MASKED;
    out.extend_from_slice(&mask);
    let at = out.len();
    out.extend_from_slice(payload);
    super::unmask::apply_mask(&mut out[at..], mask, 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_header(payload_len: usize, expected: &[u8]) {
        let mut out = Vec::new();
        encode_header(Opcode::Binary, payload_len, &mut out);
        assert_eq!(out, expected);
    }

    #[test]
    fn header_takes_the_shortest_length_form() {
        check_header(125, &[0x82, 125]);
        check_header(126, &[0x82, 126, 0, 126]);
        check_header(65_535, &[0x82, 126, 255, 255]);
        check_header(65_536, &[0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0]);
    }

    #[test]
    fn a_written_message_is_the_same_as_a_known_one() {
        for len in [0, 1, 125, 126, 65_535, 65_536, 70_000] {
            let mut written = b"before".to_vec();
            let writer = MessageWriter::begin(&mut written);
            written.extend(std::iter::repeat_n(7, len));
            writer.finish(Opcode::Text, &mut written);
            let mut known = b"before".to_vec();
            encode_header(Opcode::Text, len, &mut known);
            known.extend(std::iter::repeat_n(7, len));
            assert!(written == known, "{len} bytes");
        }
    }

    #[test]
    fn a_close_reason_is_cut_between_characters() {
        let mut out = Vec::new();
        encode_close(4000, &"ä".repeat(100), &mut out);
        assert_eq!(out.len(), 2 + 2 + 122);
        assert!(std::str::from_utf8(&out[4..]).is_ok());
    }
}
