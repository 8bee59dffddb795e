//! The messages of an open attachment between a device and the server. docs/devices.md.

use model::{Code, Refusal};

use crate::http::{ChunkWriter, MessageFraming};

/// A message from a device.
#[derive(Debug, PartialEq, Eq)]
pub enum DeviceSays<'a> {
    /// The answer to a request; it may be empty.
    Answer(u16, &'a [u8]),
    /// Why there is none.
    Declined(u16, &'a str),
    /// Something that nobody asked for.
    Event(&'a [u8]),
    /// It is there; and, if it says so, from now on as often as once in so many milliseconds.
    Heartbeat(Option<u64>),
    /// It goes.
    Detach,
}

/// Bytes of a request's number: hexadecimal digits, so that a shell can copy them.
const NUMBER_LEN: usize = 4;

/// Reads one message of a device.
///
/// # Errors
/// It is none.
pub fn decode(message: &[u8]) -> Result<DeviceSays<'_>, Refusal> {
    let bad = |why: &str| Refusal::new(Code::BadCommand, format!("cannot read the message: {why}"));
    let (kind, rest) =
        message.split_first().ok_or_else(|| bad("it is empty; send H, A, N, E or D"))?;
    let numbered = || -> Option<(u16, &[u8])> {
        let (number, rest) = rest.split_at_checked(NUMBER_LEN)?;
        let is_hex = number.iter().all(u8::is_ascii_hexdigit);
        let number = std::str::from_utf8(number).ok().filter(|_| is_hex)?;
        Some((u16::from_str_radix(number, 16).ok()?, rest))
    };
    let unnumbered =
        || bad("an answer begins with the four hexadecimal digits of its request; copy them");
    match kind {
        b'A' => numbered()
            .map(|(number, payload)| DeviceSays::Answer(number, payload))
            .ok_or_else(unnumbered),
        b'N' => {
            let (number, text) = numbered().ok_or_else(unnumbered)?;
            let text = std::str::from_utf8(text)
                .map_err(|_| bad("its reason is not UTF-8; send UTF-8"))?;
            Ok(DeviceSays::Declined(number, text))
        }
        b'E' => Ok(DeviceSays::Event(rest)),
        b'H' if rest.is_empty() => Ok(DeviceSays::Heartbeat(None)),
        b'H' => {
            let why = || {
                bad("after H stand the milliseconds between heartbeats, or nothing; send digits")
            };
            let is_number = rest.iter().all(u8::is_ascii_digit);
            let number = std::str::from_utf8(rest).ok().filter(|_| is_number);
            let number = number.and_then(|text| text.parse().ok()).ok_or_else(why)?;
            Ok(DeviceSays::Heartbeat(Some(number)))
        }
        b'D' => Ok(DeviceSays::Detach),
        _ => Err(bad("it begins with none of H, A, N, E and D; send one of them")),
    }
}

/// A message from the server.
#[derive(Clone, Copy, Debug)]
pub enum ServerSays<'a> {
    /// The device is attached: JSON.
    Welcome(&'a str),
    /// A request, to be answered with its number.
    Request(u16, &'a [u8]),
    /// The server ends the attachment: JSON.
    Closing(&'a str),
}

/// Appends a message to a device.
pub fn append(says: ServerSays<'_>, framing: MessageFraming, out: &mut Vec<u8>) {
    let writer = ChunkWriter::begin(out);
    match says {
        ServerSays::Welcome(json) => {
            out.push(b'W');
            out.extend_from_slice(json.as_bytes());
        }
        ServerSays::Request(number, payload) => {
            out.push(b'Q');
            out.extend_from_slice(format!("{number:04x}").as_bytes());
            out.extend_from_slice(payload);
        }
        ServerSays::Closing(json) => {
            out.push(b'C');
            out.extend_from_slice(json.as_bytes());
        }
    }
    if framing == MessageFraming::Lines {
        out.push(b'\n');
    }
    writer.finish(out);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_devices_are_read() {
        assert_eq!(decode(b"A00ffhi"), Ok(DeviceSays::Answer(255, b"hi")));
        assert_eq!(decode(b"A0000"), Ok(DeviceSays::Answer(0, b"")));
        assert_eq!(decode(b"N0001no"), Ok(DeviceSays::Declined(1, "no")));
        assert_eq!(decode(b"E{}"), Ok(DeviceSays::Event(b"{}")));
        assert_eq!(decode(b"H"), Ok(DeviceSays::Heartbeat(None)));
        assert_eq!(decode(b"H90000"), Ok(DeviceSays::Heartbeat(Some(90_000))));
        assert_eq!(decode(b"D"), Ok(DeviceSays::Detach));
        for wrong in [&b""[..], b"A12", b"A+123", b"Azzzz", b"X", b"N0001\xff", b"H-1", b"H+1"] {
            assert_eq!(decode(wrong).map_err(|refusal| refusal.code), Err(Code::BadCommand));
        }
    }

    #[test]
    fn what_is_said_to_devices_is_a_chunk() {
        let mut out = Vec::new();
        append(ServerSays::Request(10, b"hi"), MessageFraming::Chunks, &mut out);
        append(ServerSays::Request(11, b"hi"), MessageFraming::Lines, &mut out);
        assert_eq!(out, b"00000007\r\nQ000ahi\r\n00000008\r\nQ000bhi\n\r\n");
    }
}
