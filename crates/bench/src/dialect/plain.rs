//! Servers that send each payload as one WebSocket message: nchan, and uWebSockets by socketify.
//!
//! Both name the topics in the path, so that the handshake is the subscription.

use super::websocket::{append_frame, append_handshake, take_frame};
use super::{BadBytes, Consumed, Dialect, Input, ReaderSpec};

pub(crate) struct Plain {
    reads_at: &'static str,
    publishing: Publishing,
}

enum Publishing {
    /// One HTTP request for each publication, on one connection.
    Posts,
    /// WebSocket messages: topic, a space, the payload.
    Messages,
}

impl Plain {
    pub(crate) fn nchan() -> Self {
        Self { reads_at: "/sub/", publishing: Publishing::Posts }
    }

    pub(crate) fn socketify() -> Self {
        Self { reads_at: "/sub/", publishing: Publishing::Messages }
    }
}

impl Dialect for Plain {
    fn is_websocket(&self) -> bool {
        true
    }

    fn publishes_beside(&self) -> bool {
        true
    }

    fn open_reader(&self, wanted: ReaderSpec<'_>, out: &mut Vec<u8>) {
        let topics: Vec<String> = wanted.topics.iter().map(u32::to_string).collect();
        append_handshake(&format!("{}{}", self.reads_at, topics.join(",")), None, out);
    }

    fn subscribe(&self, _wanted: ReaderSpec<'_>, _out: &mut Vec<u8>) -> bool {
        false
    }

    fn open_publisher(&self, out: &mut Vec<u8>) {
        if matches!(self.publishing, Publishing::Messages) {
            append_handshake("/pub", None, out);
        }
    }

    fn publish(&self, publications: &[(u32, Vec<u8>)], out: &mut Vec<u8>) {
        for (topic, payload) in publications {
            match self.publishing {
                Publishing::Posts => {
                    let len = payload.len();
                    let head = format!(
                        "POST /pub/{topic} HTTP/1.1\r\nHost: bench\r\nContent-Length: {len}\r\n\r\n"
                    );
                    out.extend_from_slice(head.as_bytes());
                    out.extend_from_slice(payload);
                }
                Publishing::Messages => {
                    let message = [format!("{topic} ").as_bytes(), payload].concat();
                    append_frame(2, &message, out);
                }
            }
        }
    }

    fn take(
        &self,
        bytes: &[u8],
        _skip: u32,
        heard: &mut dyn FnMut(Input<'_>),
    ) -> Result<Consumed, BadBytes> {
        let mut taken = 0;
        while let Some(frame) = take_frame(&bytes[taken..]) {
            taken += frame.bytes;
            match frame.opcode {
                1 | 2 => heard(Input::Payload(frame.payload)),
                9 => {
                    let mut pong = Vec::new();
                    append_frame(10, frame.payload, &mut pong);
                    heard(Input::Reply(pong));
                }
                _ => {}
            }
        }
        Ok(Consumed { bytes: taken, skip: 0 })
    }
}
