//! A WebSocket of an application for one device: each message is a request, each answer a message, in the order of
//! the requests. docs/devices.md.

use std::collections::VecDeque;
use std::sync::Arc;

use access::{ApplicationIndex, Role, Wanted, use_one_time_key};
use engine::{Io, Sent};
use hub::{ConnectionId, Outcome};
use model::{Code, Payload, PayloadKind, Recipients, Refusal, Request, device_name, device_topic};
use protocol::http::{RequestHead, refusal_body};
use protocol::native::check_payload;
use protocol::websocket::{
    Inbound, Message, MessageWriter, Opcode, Role as End, Unread, accept_plain_handshake,
    encode_close, encode_handshake_response, encode_ping, encode_pong,
};

use super::query::Query;
use crate::byte_queue::ByteQueue;
use crate::connection::{self, Connection, State};
use crate::reply::ReplyTo;
use crate::shard::Shard;
use crate::turn_budget::STEPS_OF_A_COMMAND;

/// A WebSocket for one device.
#[derive(Debug)]
pub(crate) struct DeviceSocket {
    pub inbound: Inbound,
    /// `APPLICATION/DEVICE`.
    name: Arc<str>,
    application: ApplicationIndex,
    timeout: std::time::Duration,
    /// Answers in the order of their requests; those that are not here yet are `None`.
    answers: VecDeque<Option<Vec<u8>>>,
    /// The turn of the first of them.
    first: u64,
    pub unsent: ByteQueue,
    pub is_pinged: bool,
    pub is_closing: bool,
}

impl DeviceSocket {
    /// Requests whose answers were not sent yet.
    pub(crate) fn len(&self) -> usize {
        self.answers.len()
    }

    /// Bytes of answers that wait for the connection, or for those before them.
    pub(crate) fn answers_bytes(&self) -> usize {
        let answers = self.answers.iter().flatten();
        self.unsent.len() + answers.map(Vec::len).sum::<usize>()
    }
}

/// One message's worth of things to do, taken out of the connection's borrow.
enum Heard {
    Request(Payload),
    Bad(Refusal),
    Nothing,
}

impl<I: Io> Shard<I> {
    /// Opens a WebSocket for a device.
    pub(crate) fn open_device_socket(
        &mut self,
        link: ConnectionId,
        head: &RequestHead,
        device: &str,
        rest: &[u8],
    ) {
        let query = Query::of(head);
        let checked = self.check_origin(head).and_then(|()| {
            let timeout_ms = query.number("timeout_ms")?;
            let timeout = protocol::native::timeout_of(timeout_ms, &self.config.limits)?;
            let (name, application) = self.check_device_socket(link, head, &query, device)?;
            self.check_room()?;
            let handshake = accept_plain_handshake(head)?;
            self.count_connection(link, self.network_of(link, head))?;
            Ok((name, application, timeout, handshake))
        });
        let (name, application, timeout, mut handshake) = match checked {
            Ok(checked) => checked,
            Err(refusal) => return self.refuse_request(link, head, &refusal),
        };
        handshake.deflate = None;
        let mut unsent = ByteQueue::default();
        encode_handshake_response(&handshake, unsent.end_mut());
        let (inbound, answers, first) = (Inbound::default(), VecDeque::new(), 0);
        let (is_pinged, is_closing) = (false, false);
        let opened = DeviceSocket {
            inbound,
            name,
            application,
            timeout,
            answers,
            first,
            unsent,
            is_pinged,
            is_closing,
        };
        self.statistics.of(application).counters.websockets += 1;
        if let Some(connection) = self.connection(link) {
            connection.state = State::DeviceSocket(Box::new(opened));
        }
        self.send_device_socket(link);
        self.handle_rest(link, rest);
    }

    fn check_device_socket(
        &mut self,
        link: ConnectionId,
        head: &RequestHead,
        query: &Query,
        device: &str,
    ) -> Result<(Arc<str>, ApplicationIndex), Refusal> {
        let application = query.text("application");
        let name = device_name(application, device)?;
        if let Some(key) = query.get("key") {
            let used = &self.access.used_once;
            let (secret, now) = (&self.secret, self.now.elapsed);
            let use_up = || use_one_time_key(key, &name, secret, now, used);
            self.count_failure(self.network_of(link, head), use_up)?;
            let index = self.applications.index_of(application);
            let index = index.ok_or_else(|| Refusal::no_device(&name))?;
            return Ok((name, index));
        }
        let wanted = Wanted { application, role: Role::Application, about: &name };
        let network = self.network_of(link, head);
        let index = self.check_key(network, head.field("authorization"), wanted)?;
        Ok((name, index))
    }

    /// Hears that such a WebSocket is gone.
    pub(crate) fn end_device_socket(&mut self, open: &DeviceSocket) {
        self.statistics.of(open.application).counters.websockets -= 1;
    }

    /// Takes bytes from such a WebSocket, as far as its answers leave room; answers how many.
    pub(crate) fn handle_device_socket(&mut self, link: ConnectionId, bytes: &mut [u8]) -> usize {
        let len = bytes.len();
        let mut input = Unread::new(bytes);
        let mut is_all = false;
        while self.has_room(link) && !self.has_worked_enough() {
            self.note_work(STEPS_OF_A_COMMAND);
            let Some(heard) = self.next_request(link, &mut input) else {
                is_all = true;
                break;
            };
            match heard {
                Heard::Request(payload) => self.ask_by_socket(link, payload),
                Heard::Bad(refusal) => {
                    if let Some(turn) = self.take_turn(link) {
                        let outcome = Outcome { result: Err(refusal) };
                        self.answer_socket(link, turn, outcome);
                    }
                }
                Heard::Nothing => {}
            }
        }
        self.send_device_socket(link);
        if self.device_socket(link).is_some_and(|open| open.is_closing) {
            self.close_soon(link);
        }
        if is_all { len } else { input.taken() }
    }

    fn next_request(&mut self, link: ConnectionId, input: &mut Unread<'_>) -> Option<Heard> {
        let limits = &self.config.limits;
        let connection = self.connections.get_mut(link)?;
        let State::DeviceSocket(open) = &mut connection.state else { return None };
        if open.is_closing {
            return None;
        }
        open.is_pinged = false;
        let payload = |kind, bytes: &[u8]| match check_payload(kind, bytes) {
            Ok(()) => Heard::Request(Payload::new(kind, bytes)),
            Err(refusal) => Heard::Bad(refusal),
        };
        Some(match open.inbound.poll_deflated(input, End::Server, limits, None) {
            Ok(None) => return None,
            Ok(Some(Message::Text(text))) => {
                let is_json = check_payload(PayloadKind::Json, text.as_bytes()).is_ok();
                let kind = if is_json { PayloadKind::Json } else { PayloadKind::Text };
                payload(kind, text.as_bytes())
            }
            Ok(Some(Message::Binary(bytes))) => payload(PayloadKind::Bytes, bytes),
            Ok(Some(Message::Ping(bytes))) => {
                encode_pong(bytes, open.unsent.end_mut());
                Heard::Nothing
            }
            Ok(Some(Message::Pong(_))) => Heard::Nothing,
            Ok(Some(Message::Close(reason))) => {
                encode_close(reason.map_or(1000, |(code, _)| code), "", open.unsent.end_mut());
                open.is_closing = true;
                Heard::Nothing
            }
            Err(error) => {
                encode_close(error.close_code(), &error.refusal().text, open.unsent.end_mut());
                open.is_closing = true;
                Heard::Nothing
            }
        })
    }

    fn device_socket(&mut self, link: ConnectionId) -> Option<&mut DeviceSocket> {
        match &mut self.connection(link)?.state {
            State::DeviceSocket(open) => Some(open),
            _ => None,
        }
    }

    /// The turn of the next request, whose answer is to come.
    fn take_turn(&mut self, link: ConnectionId) -> Option<u64> {
        let open = self.device_socket(link)?;
        open.answers.push_back(None);
        Some(open.first + open.answers.len() as u64 - 1)
    }

    fn ask_by_socket(&mut self, link: ConnectionId, payload: Payload) {
        let Some(turn) = self.take_turn(link) else { return };
        let Some(open) = self.device_socket(link) else { return };
        let (name, timeout) = (Arc::clone(&open.name), open.timeout);
        let (payload, to) = (Arc::new(payload), Recipients::default());
        let request = Request { topic: device_topic(&name, ""), payload, timeout, to, key: None };
        let application = name.split('/').next().unwrap_or("").into();
        let reply = ReplyTo::Device { link, turn };
        self.ask_device(reply, name, request, ("".into(), application));
    }

    /// Notes what became of the request of a turn, and sends the answers that are due.
    pub(crate) fn answer_socket(&mut self, link: ConnectionId, turn: u64, mut outcome: Outcome) {
        let bytes_max = self.config.limits.answers_bytes_max;
        let Some(open) = self.device_socket(link) else { return };
        let waiting = open.answers_bytes();
        if let Ok((_, payload)) = &outcome.result
            && waiting > 0
            && waiting + payload.bytes().len() > bytes_max
        {
            let text = "cannot tell the answer: answers_bytes_max bytes wait for this connection; the request may \
                        have been carried out; read faster, or ask for less at a time";
            outcome.result = Err(Refusal::new(Code::TooManyAnswersWaiting, text));
        }
        let mut message = Vec::new();
        let writer = MessageWriter::begin(&mut message);
        let opcode = match &outcome.result {
            Ok((_, payload)) => {
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
        let at = turn.checked_sub(open.first).and_then(|at| usize::try_from(at).ok());
        if let Some(answer) = at.and_then(|at| open.answers.get_mut(at)) {
            *answer = Some(message);
        }
        while let Some(Some(message)) = open.answers.front_mut().map(Option::take) {
            open.unsent.append(&message);
            open.answers.pop_front();
            open.first += 1;
        }
        let waiting = open.answers_bytes() as u64;
        self.counters.answers_bytes_peak = self.counters.answers_bytes_peak.max(waiting);
        self.send_device_socket(link);
    }

    /// Sends what waits for such a WebSocket.
    pub(crate) fn send_device_socket(&mut self, link: ConnectionId) {
        self.touch(link);
        let connection = self.connections.get_mut(link);
        let Some(Connection { state: State::DeviceSocket(open), .. }) = connection else { return };
        if open.unsent.is_empty() {
            return;
        }
        match connection::send(&mut self.io, link, open.unsent.rest()) {
            Sent::Bytes(taken) => open.unsent.take(taken),
            Sent::Closed => self.drop_connection(link),
        }
    }

    /// Asks an application that was silent whether it is there.
    pub(crate) fn ping_device_socket(&mut self, link: ConnectionId) {
        if let Some(open) = self.device_socket(link) {
            open.is_pinged = true;
            encode_ping(open.unsent.end_mut());
            self.send_device_socket(link);
        }
    }
}
