//! An application's WebSocket for one device: each message is a request, each answer a message, in the order of the requests.

use std::collections::VecDeque;

use model::{Payload, PayloadKind, Refusal};

use crate::http::refusal_body;
use crate::native::check_payload;
use crate::websocket::{Heard, MessageWriter, Opcode};

/// One application's conversation. Answers may become known in any order; they are said in that of the requests.
#[derive(Debug, Default)]
pub struct Queries {
    /// Answers that were not said; those that are not here yet are `None`.
    answers: VecDeque<Option<Vec<u8>>>,
    /// The turn of the first of them.
    first: u64,
    /// Bytes in them.
    bytes: usize,
}

impl Queries {
    /// The request that a message is, if it is one.
    ///
    /// # Errors
    /// It is one that cannot be asked.
    pub fn request_of(heard: &Heard<'_>) -> Option<Result<Payload, Refusal>> {
        let (kind, bytes) = match heard {
            Heard::Text(text) => {
                let is_json = check_payload(PayloadKind::Json, text.as_bytes()).is_ok();
                (if is_json { PayloadKind::Json } else { PayloadKind::Text }, text.as_bytes())
            }
            Heard::Binary(bytes) => (PayloadKind::Bytes, *bytes),
            Heard::Control(_) | Heard::Closed | Heard::Broken(_) => return None,
        };
        Some(check_payload(kind, bytes).map(|()| Payload::new(kind, bytes)))
    }

    /// The turn of a request, whose answer is to come.
    pub fn begin(&mut self) -> u64 {
        self.answers.push_back(None);
        self.first + self.answers.len() as u64 - 1
    }

    /// Hears the answer of a turn.
    pub fn handle_answer(&mut self, turn: u64, result: Result<&Payload, &Refusal>) {
        let at = turn.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        let Some(answer) = at.and_then(|at| self.answers.get_mut(at)) else { return };
        let mut message = Vec::new();
        let writer = MessageWriter::begin(&mut message);
        let opcode = match result {
            Ok(payload) => {
                message.extend_from_slice(payload.bytes());
                let is_binary = payload.kind() == PayloadKind::Bytes;
                if is_binary { Opcode::Binary } else { Opcode::Text }
            }
            Err(refusal) => {
                message.extend_from_slice(refusal_body(refusal).as_bytes());
                Opcode::Text
            }
        };
        writer.finish(opcode, &mut message);
        self.bytes += message.len();
        if let Some(before) = answer.replace(message) {
            self.bytes -= before.len();
        }
    }

    /// The next message that is due.
    pub fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        let message = self.answers.front_mut()?.take()?;
        self.answers.pop_front();
        self.first += 1;
        self.bytes -= message.len();
        Some(message)
    }

    /// Requests whose answers were not said yet.
    pub fn len(&self) -> usize {
        self.answers.len()
    }

    /// Whether every request is answered.
    pub fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }

    /// Bytes of answers that wait for those before them.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use model::Code;

    use super::*;

    fn text(queries: &mut Queries) -> Option<String> {
        queries.poll_transmit().map(|message| String::from_utf8_lossy(&message[2..]).into_owned())
    }

    #[test]
    fn answers_are_said_in_the_order_of_the_requests() {
        let mut queries = Queries::default();
        let turns: Vec<u64> = (0..3).map(|_| queries.begin()).collect();
        let payload = |text: &str| Payload::new(PayloadKind::Text, text.as_bytes());
        queries.handle_answer(turns[1], Ok(&payload("two")));
        assert_eq!((text(&mut queries), queries.bytes()), (None, 5));
        queries.handle_answer(turns[0], Err(&Refusal::new(Code::DeviceGone, "gone")));
        assert!(text(&mut queries).is_some_and(|first| first.contains("gone")));
        assert_eq!(text(&mut queries).as_deref(), Some("two"));
        assert_eq!((text(&mut queries), queries.len(), queries.bytes()), (None, 1, 0));
        queries.handle_answer(turns[1], Ok(&payload("again")));
        queries.handle_answer(99, Ok(&payload("never asked")));
        assert_eq!((queries.bytes(), queries.poll_transmit()), (0, None));
        queries.handle_answer(turns[2], Ok(&payload("three")));
        assert_eq!(text(&mut queries).as_deref(), Some("three"));
        assert!(queries.is_empty());
    }
}
