//! A WebSocket of an application for one device: each message is a request, each answer a message, in the order of
//! the requests. docs/devices.md.

use std::sync::Arc;

use access::{ApplicationIndex, Role, Wanted, use_one_time_key};
use engine::Io;
use hub::{ConnectionId, Outcome};
use model::{Code, Payload, Recipients, Refusal, Request, device_name, device_topic};
use protocol::device::Queries;
use protocol::http::RequestHead;
use protocol::websocket::{Channel, Heard, accept_plain_handshake, encode_handshake_response};

use super::query::Query;
use crate::byte_queue::ByteQueue;
use crate::dialect::Dialect;
use crate::dialects::{Conversation, DeviceSocket};
use crate::edge::Transport;
use crate::reply::ReplyTo;
use crate::shard::Shard;
use crate::turn::STEPS_OF_A_COMMAND;

impl<I: Io> Dialect<I> for DeviceSocket {
    fn hear(shard: &mut Shard<I>, link: ConnectionId, heard: Heard<'_>) {
        shard.hear_query(link, &heard);
    }

    fn handle_gone(&self, shard: &mut Shard<I>, _: ConnectionId) {
        shard.devices.statistics.of(self.application).counters.websockets -= 1;
    }
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
        let speech = Queries::default();
        let opened = DeviceSocket { name, application, timeout, speech, unsent };
        self.devices.statistics.of(application).counters.websockets += 1;
        if let Some(connection) = self.connection(link) {
            connection.transport = Transport::WebSocket(Channel::default());
            connection.conversation = Conversation::Queries(Box::new(opened));
        }
        self.send_unsent(link);
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
            let index = self.devices.applications.index_of(application);
            let index = index.ok_or_else(|| Refusal::no_device(&name))?;
            return Ok((name, index));
        }
        let wanted = Wanted { application, role: Role::Application, about: &name };
        let network = self.network_of(link, head);
        let index = self.check_key(network, head.field("authorization"), wanted)?;
        Ok((name, index))
    }

    /// Hears a message of such a WebSocket.
    fn hear_query(&mut self, link: ConnectionId, heard: &Heard<'_>) {
        self.note_work(STEPS_OF_A_COMMAND);
        let Some(request) = Queries::request_of(heard) else { return };
        let Some(open) = self.device_socket(link) else { return };
        let turn = open.speech.begin();
        match request {
            Ok(payload) => self.ask_by_socket(link, turn, payload),
            Err(refusal) => self.answer_socket(link, turn, Outcome { result: Err(refusal) }),
        }
    }

    fn device_socket(&mut self, link: ConnectionId) -> Option<&mut DeviceSocket> {
        match &mut self.connection(link)?.conversation {
            Conversation::Queries(open) => Some(open),
            _ => None,
        }
    }

    fn ask_by_socket(&mut self, link: ConnectionId, turn: u64, payload: Payload) {
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
        let result = outcome.result.as_ref().map(|(_, payload)| &**payload);
        open.speech.handle_answer(turn, result);
        while let Some(message) = open.speech.poll_transmit() {
            open.unsent.append(&message);
        }
        let waiting = open.answers_bytes() as u64;
        self.counters.answers_bytes_peak = self.counters.answers_bytes_peak.max(waiting);
        self.send_unsent(link);
    }
}
