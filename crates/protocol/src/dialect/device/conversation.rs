//! A device's conversation on an open attachment: requests by number, heartbeats, and its end.

use std::time::Duration;

use model::Refusal;

use super::{DeviceSays, ServerSays, append, decode};
use crate::http::{BodyEvent, MessageFraming, MessageReader, encode_last_chunk, refusal_body};

/// A device that was silent for this many tenths of its heartbeat is gone.
const SILENCE_TENTHS: u32 = 25;

/// One device's conversation.
#[derive(Debug)]
pub struct Conversation {
    reader: MessageReader,
    /// Requests that it was told and has not answered.
    open: Vec<Told>,
    next_number: u16,
    heartbeat_seconds: u16,
    is_closing: bool,
}

/// A request that a device was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    number: u16,
    /// The caller's number for it.
    pub request: u64,
    /// When it was told.
    pub at: Duration,
}

/// A thing heard of a device.
#[derive(Debug, PartialEq, Eq)]
pub enum DeviceHeard {
    /// A message, to be read by [`DeviceHeard::says`].
    Message(Vec<u8>),
    /// The body ended.
    End,
}

impl DeviceHeard {
    /// The message, read; nothing if the body ended.
    ///
    /// # Errors
    /// It says nothing that means something.
    pub fn says(&self) -> Result<Option<DeviceSays<'_>>, Refusal> {
        match self {
            Self::Message(message) => decode(message).map(Some),
            Self::End => Ok(None),
        }
    }

    /// Bytes of the message.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Message(message) => message.len(),
            Self::End => 0,
        }
    }
}

impl Conversation {
    /// A conversation whose messages stand so, with a device that promises to be heard this often.
    pub fn new(framing: MessageFraming, heartbeat_ms: u64) -> Self {
        let mut conversation = Self {
            reader: MessageReader::new(framing),
            open: Vec::new(),
            next_number: 0,
            heartbeat_seconds: 0,
            is_closing: false,
        };
        conversation.handle_heartbeat(heartbeat_ms);
        conversation
    }

    /// The next thing heard in `input`; nothing once the attachment is ending.
    ///
    /// # Errors
    /// A message that breaks the framing, or is larger than `bytes_max`.
    pub fn poll_heard(
        &mut self,
        input: &mut &[u8],
        bytes_max: usize,
    ) -> Result<Option<DeviceHeard>, Refusal> {
        if self.is_closing {
            return Ok(None);
        }
        Ok(self.reader.poll(input, bytes_max)?.map(|said| match said {
            BodyEvent::Message(message) => DeviceHeard::Message(message),
            BodyEvent::End => DeviceHeard::End,
        }))
    }

    /// Hears how often the device promises to be heard.
    pub fn handle_heartbeat(&mut self, heartbeat_ms: u64) {
        self.heartbeat_seconds = heartbeat_ms.div_ceil(1_000).clamp(1, 3_600) as u16;
    }

    /// How often the device promises to be heard, in milliseconds.
    pub fn heartbeat_ms(&self) -> u64 {
        u64::from(self.heartbeat_seconds) * 1_000
    }

    /// Silence after which it is gone.
    pub fn silence(&self) -> Duration {
        Duration::from_secs(u64::from(self.heartbeat_seconds)) * SILENCE_TENTHS / 10
    }

    /// Says that others find it.
    pub fn welcome(&self, json: &str, out: &mut Vec<u8>) {
        append(ServerSays::Welcome(json), self.reader.framing(), out);
    }

    /// Whether a request's payload can be told: one that reads lines is told one.
    pub fn can_be_told(&self, payload: &[u8]) -> bool {
        self.reader.framing() == MessageFraming::Chunks
            || !payload.iter().any(|byte| matches!(byte, b'\n' | b'\r'))
    }

    /// Requests that are not answered, also those that nobody waits for any more.
    pub fn open_len(&self) -> usize {
        self.open.len()
    }

    /// Forgets requests that nobody waits for.
    pub fn retain(&mut self, mut is_open: impl FnMut(u64) -> bool) {
        self.open.retain(|told| is_open(told.request));
    }

    /// Tells a request.
    pub fn ask(&mut self, request: u64, payload: &[u8], at: Duration, out: &mut Vec<u8>) {
        self.next_number = self.next_number.wrapping_add(1);
        let number = self.next_number;
        // One of 65,536 before: it was given up long ago.
        self.open.retain(|told| told.number != number);
        self.open.push(Told { number, request, at });
        append(ServerSays::Request(number, payload), self.reader.framing(), out);
    }

    /// Hears the answer to a request; tells which one it was, once.
    pub fn handle_answer(&mut self, number: u16) -> Option<Told> {
        let at = self.open.iter().position(|told| told.number == number)?;
        Some(self.open.swap_remove(at))
    }

    /// Ends the conversation, and says why if the device does not know; answers whether it had not ended.
    pub fn close(&mut self, refusal: Option<&Refusal>, out: &mut Vec<u8>) -> bool {
        if std::mem::replace(&mut self.is_closing, true) {
            return false;
        }
        if let Some(refusal) = refusal {
            append(ServerSays::Closing(&refusal_body(refusal)), self.reader.framing(), out);
        }
        encode_last_chunk(out);
        true
    }

    /// Whether it ended.
    pub fn is_closing(&self) -> bool {
        self.is_closing
    }
}

#[cfg(test)]
mod tests {
    use model::Code;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn an_answer_is_of_the_request_with_its_number_and_counts_once() {
        let (mut device, mut out) = (Conversation::new(MessageFraming::Lines, 1_500), Vec::new());
        device.ask(70, b"first", SECOND, &mut out);
        device.ask(71, b"second", 2 * SECOND, &mut out);
        let text = String::from_utf8_lossy(&out);
        assert!(text.contains("Q0001first\n") && text.contains("Q0002second\n"), "{text}");
        let told = device.handle_answer(2).expect("it was told");
        assert_eq!((told.request, told.at), (71, 2 * SECOND));
        assert_eq!((device.handle_answer(2), device.handle_answer(9)), (None, None));
        device.retain(|request| request != 70);
        assert_eq!((device.open_len(), device.handle_answer(1)), (0, None));
        assert!(device.can_be_told(b"one line") && !device.can_be_told(b"two\nlines"));
    }

    #[test]
    fn a_number_that_comes_round_is_of_the_newer_request() {
        let mut device = Conversation::new(MessageFraming::Chunks, 60_000);
        for request in 0..=0x1_0000 {
            device.ask(request, b"", SECOND, &mut Vec::new());
            device.retain(|open| open == 0 || open == request);
        }
        assert_eq!(device.handle_answer(1).map(|told| told.request), Some(0x1_0000));
    }

    #[test]
    fn nothing_is_heard_after_the_end_which_is_said_once() {
        let (mut device, mut out) = (Conversation::new(MessageFraming::Chunks, 60_000), Vec::new());
        let mut input = &b"1\r\nH\r\n1\r\nD\r\n"[..];
        let heard = device.poll_heard(&mut input, 99).expect("well-formed").expect("a message");
        assert_eq!(heard.says(), Ok(Some(DeviceSays::Heartbeat(None))));
        assert!(device.close(Some(&Refusal::new(Code::TakenOver, "over")), &mut out));
        let text = String::from_utf8_lossy(&out).into_owned();
        assert!(text.contains("C{") && text.ends_with("\r\n0\r\n\r\n"), "{text}");
        assert_eq!(device.poll_heard(&mut input, 99), Ok(None));
        assert!(!device.close(None, &mut out) && out.len() == text.len());
    }

    #[test]
    fn who_is_silent_for_two_and_a_half_heartbeats_is_gone() {
        let mut device = Conversation::new(MessageFraming::Chunks, 1_500);
        assert_eq!((device.heartbeat_ms(), device.silence()), (2_000, 5 * SECOND));
        device.handle_heartbeat(0);
        assert_eq!(device.heartbeat_ms(), 1_000);
        device.handle_heartbeat(u64::MAX);
        assert_eq!(device.heartbeat_ms(), 3_600_000);
    }
}
