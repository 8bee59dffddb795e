//! NATS over WebSocket: its text protocol, in binary frames that do not end where messages do.

use super::websocket::{append_frame, append_handshake, take_frame};
use super::{BadBytes, Consumed, Dialect, Input, ReaderSpec};

pub(crate) struct Nats;

const CONNECT: &str = "CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":false}\r\n";

impl Dialect for Nats {
    fn is_websocket(&self) -> bool {
        true
    }

    fn open_reader(&self, _wanted: ReaderSpec<'_>, out: &mut Vec<u8>) {
        append_handshake("/", None, out);
    }

    fn subscribe(&self, wanted: ReaderSpec<'_>, out: &mut Vec<u8>) -> bool {
        let mut text = String::from(CONNECT);
        for (number, topic) in wanted.topics.iter().enumerate() {
            text.push_str(&format!("SUB bench.{topic} {}\r\n", number + 1));
        }
        text.push_str("PING\r\n");
        append_frame(2, text.as_bytes(), out);
        true
    }

    fn open_publisher(&self, out: &mut Vec<u8>) {
        append_handshake("/", None, out);
    }

    fn start_publisher(&self, out: &mut Vec<u8>) {
        append_frame(2, CONNECT.as_bytes(), out);
    }

    fn publish(&self, publications: &[(u32, Vec<u8>)], out: &mut Vec<u8>) {
        let mut text = Vec::new();
        for (topic, payload) in publications {
            text.extend_from_slice(format!("PUB bench.{topic} {}\r\n", payload.len()).as_bytes());
            text.extend_from_slice(payload);
            text.extend_from_slice(b"\r\n");
        }
        append_frame(2, &text, out);
    }

    fn take(
        &self,
        bytes: &[u8],
        skip: u32,
        heard: &mut dyn FnMut(Input<'_>),
    ) -> Result<Consumed, BadBytes> {
        // The text of all whole frames in one piece, and where each frame begins in both.
        let (mut text, mut frames, mut end) = (Vec::new(), Vec::new(), 0);
        while let Some(frame) = take_frame(&bytes[end..]) {
            match frame.opcode {
                0..=2 => {
                    frames.push((end, text.len()));
                    text.extend_from_slice(frame.payload);
                }
                9 => {
                    let mut pong = Vec::new();
                    append_frame(10, frame.payload, &mut pong);
                    heard(Input::Reply(pong));
                }
                _ => {}
            }
            end += frame.bytes;
        }
        let mut at = skip as usize;
        while let Some(len) = take_line(text.get(at..).unwrap_or_default(), heard)? {
            at += len;
        }
        if at >= text.len() {
            return Ok(Consumed { bytes: end, skip: (at - text.len()) as u32 });
        }
        let kept = frames.iter().rfind(|(_, start)| *start <= at).copied().unwrap_or((0, 0));
        Ok(Consumed { bytes: kept.0, skip: (at - kept.1) as u32 })
    }
}

/// Takes one operation; answers its length, or `None` while it is not all there.
fn take_line(text: &[u8], heard: &mut dyn FnMut(Input<'_>)) -> Result<Option<usize>, BadBytes> {
    let Some(line) = text.windows(2).position(|window| window == b"\r\n") else { return Ok(None) };
    let after = line + 2;
    match &text[..line] {
        b"PONG" => heard(Input::Ready),
        b"PING" => {
            let mut pong = Vec::new();
            append_frame(2, b"PONG\r\n", &mut pong);
            heard(Input::Reply(pong));
        }
        message if message.starts_with(b"MSG ") => {
            let words = std::str::from_utf8(message).map_err(|_| BadBytes)?;
            let len: usize =
                words.rsplit(' ').next().and_then(|word| word.parse().ok()).ok_or(BadBytes)?;
            let Some(payload) = text.get(after..after + len) else { return Ok(None) };
            if text.len() < after + len + 2 {
                return Ok(None);
            }
            heard(Input::Payload(payload));
            return Ok(Some(after + len + 2));
        }
        error if error.starts_with(b"-ERR") => return Err(BadBytes),
        _ => {}
    }
    Ok(Some(after))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(text: &[u8]) -> Vec<u8> {
        [&[0x82, text.len() as u8][..], text].concat()
    }

    #[test]
    fn messages_may_span_frames() {
        let bytes = [frame(b"PONG\r\nMSG a 1 5\r\nhe"), frame(b"llo\r\nMSG a 1 1\r\n")].concat();
        let mut payloads = Vec::new();
        let mut hear = |heard: Input<'_>| match heard {
            Input::Payload(payload) => payloads.push(payload.to_vec()),
            Input::Ready => payloads.push(b"ready".to_vec()),
            _ => {}
        };
        let taken = Nats.take(&bytes, 0, &mut hear).expect("valid");
        let rest = [&bytes[taken.bytes..], &frame(b"x\r\n")].concat();
        let taken = Nats.take(&rest, taken.skip, &mut hear).expect("valid");
        assert_eq!(taken, Consumed { bytes: rest.len(), skip: 0 });
        assert_eq!(payloads, [b"ready".to_vec(), b"hello".to_vec(), b"x".to_vec()]);
    }
}
