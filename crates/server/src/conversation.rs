//! What WebSocket peers say, and what the hub is asked for it.

use access::check_command;
use engine::{Io, Sent};
use hub::{ConnectionId, SessionIndex};
use model::{
    Code, Command, CommandId, DeltaKind, Event, Features, Hello, Refusal, SubscribeOptions,
};
use protocol::native::binary::{Decoded, IsBinary};
use protocol::native::{Framing, MessageBuilder, Undecoded, json};
use protocol::websocket::{
    Deflater, FrameError, Inbound, Message, MessageWriter, Opcode, Role, Unread, encode_close,
    encode_pong,
};

use crate::budget::ANSWER_BYTES;
use crate::connection::{self, Connection, Native, State};
use crate::desks::Change;
use crate::encoder::Manner;
use crate::input::Commands;
use crate::shard::Shard;
use crate::turn_budget::{STEPS_OF_A_COMMAND, steps_of_bytes};

/// The server's version, told in `welcome`.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// When to come back after the server closed, in milliseconds.
const RETRY_AFTER_MS: u64 = 1_000;

impl<I: Io> Shard<I> {
    /// Takes bytes from a WebSocket that speaks the native dialect, as far as its answers leave room; answers how
    /// many.
    pub(crate) fn handle_native(&mut self, link: ConnectionId, bytes: &mut [u8]) -> usize {
        if self.open_connection(link).is_none() {
            return bytes.len();
        }
        // Apart from the shard meanwhile, so that no message has to be copied to be carried out.
        let mut inbound = self.inbounds.take(link);
        let len = bytes.len();
        let mut input = Unread::new(bytes);
        self.release_subscriptions(link);
        let mut is_heard = false;
        while !is_heard
            && self.has_room(link)
            && !self.inputs.has_received(link)
            && !self.has_worked_enough()
        {
            let is_last = !self.hear_next(link, &mut input, &mut inbound);
            is_heard = is_last || input.is_empty() && inbound.is_empty();
        }
        if self.open_connection(link).is_some() {
            self.inbounds.keep(link, inbound);
        }
        if is_heard { len } else { input.taken() }
    }

    /// Hears the next message; answers whether there was one.
    fn hear_next(
        &mut self,
        link: ConnectionId,
        input: &mut Unread<'_>,
        inbound: &mut Inbound,
    ) -> bool {
        let connection = self.connections.get_mut(link);
        let Some(Connection { state: State::Native(native), .. }) = connection else {
            return false;
        };
        if native.is_closing {
            return false;
        }
        native.is_pinged = false;
        let is_deflated = Manner::of(self.hub.encoding(native.session)).is_deflated;
        let mut inflater = is_deflated.then(|| std::mem::take(&mut self.inflater));
        let limits = &self.config.limits;
        let message = inbound.poll_deflated(input, Role::Server, limits, inflater.as_mut());
        let is_there = self.hear(link, message);
        if let Some(inflater) = inflater {
            self.inflater = inflater;
        }
        is_there
    }

    fn hear(
        &mut self,
        link: ConnectionId,
        message: Result<Option<Message<'_>>, FrameError>,
    ) -> bool {
        let message = match message {
            Ok(Some(message)) => message,
            Ok(None) => return false,
            Err(error) => {
                self.close_native(link, &error.refusal(), error.close_code());
                return true;
            }
        };
        // What was compressed is many times what was received.
        self.note_bytes(message.bytes());
        match message {
            Message::Text(text) => {
                let decoded = json::decode_command(text, &self.config.limits);
                let decoded = decoded.map(|(id, command)| (id, command, IsBinary::No));
                self.handle_command(link, decoded);
            }
            Message::Binary(mut records) => {
                if !self.carry_out(link, &mut records) {
                    self.keep_commands(link, Commands::records(records));
                }
            }
            Message::Ping(payload) => {
                let mut pong = Vec::new();
                encode_pong(payload, &mut pong);
                self.tell_native(link, &pong);
            }
            Message::Pong(_) => {}
            Message::Close(reason) => {
                // After a close frame nothing may follow. RFC 6455, section 5.5.1.
                if let Some(session) = self.native(link).map(|native| native.session) {
                    self.hub.end_reading(session);
                }
                let mut close = Vec::new();
                encode_close(reason.map_or(1000, |(code, _)| code), "", &mut close);
                self.tell_native(link, &close);
                self.end_native(link);
            }
        }
        true
    }

    fn native(&mut self, link: ConnectionId) -> Option<&mut Native> {
        self.connection(link)?.state.native_mut()
    }

    pub(crate) fn handle_command(&mut self, link: ConnectionId, command: Decoded) {
        let Some(native) = self.native(link) else { return };
        let (session, principal) = (native.session, native.principal.clone());
        let is_first = !std::mem::replace(&mut native.has_spoken, true);
        let named = native.features;
        self.counters.commands += 1;
        self.note_work(STEPS_OF_A_COMMAND);
        let (id, result) = match command {
            Err(Undecoded { id, refusal }) => (id, Err(refusal)),
            Ok((id, command, is_binary)) => (
                id,
                check_command(&principal, &command, |draft| self.count_event(link, draft))
                    .and_then(|()| check_features(&command, named, self.config.features))
                    .and_then(|()| self.check_memory_for(&command))
                    .and_then(|()| self.check_mail_for(&command))
                    .and_then(|()| match command {
                        Command::Hello(hello) => {
                            let greeted = self.handle_hello(link, id, hello, is_first);
                            if is_first
                                && greeted.is_err()
                                && let Some(native) = self.native(link)
                            {
                                // It may greet once more, with another token.
                                native.has_spoken = false;
                            }
                            greeted
                        }
                        Command::Subscribe(mut wanted) => {
                            if !named.and(self.config.features).has(Features::DELTAS) {
                                wanted.options.delta = DeltaKind::None;
                            }
                            check_filter(&wanted.options).and_then(|()| {
                                let bytes = self.answer_bytes_of(&wanted);
                                let change = Change::Subscribe(wanted);
                                let changed = self.change_subscriptions(link, id, change);
                                self.reserve_subscription(link, session, bytes);
                                changed
                            })
                        }
                        Command::Acknowledge(acknowledged) => {
                            self.reserve(link, ANSWER_BYTES);
                            self.acknowledge(link, &principal, id, acknowledged)
                                .inspect_err(|_| self.release(link, ANSWER_BYTES))
                        }
                        Command::Unsubscribe(unwanted) => {
                            let change = Change::Unsubscribe(unwanted);
                            let changed = self.change_subscriptions(link, id, change);
                            // What is left may have to go through all topics again: nothing comes after that until it did.
                            let bytes_max = self.config.limits.answers_bytes_max;
                            self.reserve_subscription(link, session, bytes_max);
                            changed
                        }
                        Command::Publish(publish) => {
                            self.publish_for(link, id, is_binary, publish.draft);
                            Ok(())
                        }
                        Command::History(query) => {
                            self.ask_history(link, id, query);
                            Ok(())
                        }
                        Command::Handle(handle) => {
                            self.handle_requests(link, &principal, id, handle)
                        }
                        Command::Unhandle(unhandle) => self.unhandle_requests(link, id, unhandle),
                        Command::Request(request) => self.ask(link, &principal, id, request),
                        Command::Respond(respond) => match (self.respond(link, respond), id) {
                            (Err(refusal), Some(_)) => Err(refusal),
                            // Who did not ask does not hear it.
                            (Err(_), None) | (Ok(()), _) => Ok(()),
                        },
                        Command::Attach(attach) => self.attach_to_session(link, id, attach),
                        Command::Detach(detach) => self.detach_from_session(link, id, detach),
                        Command::Close => {
                            self.end_session(link);
                            Ok(())
                        }
                        Command::Ping => {
                            self.hub.tell(session, &Event::Pong { id });
                            Ok(())
                        }
                    }),
            ),
        };
        if let Err(refusal) = result {
            self.note_refusal(link, &refusal);
            self.hub.tell(session, &Event::Refused { id, refusal });
        }
    }

    fn handle_hello(
        &mut self,
        link: ConnectionId,
        id: Option<CommandId>,
        hello: Hello,
        is_first: bool,
    ) -> Result<(), Refusal> {
        if !is_first {
            let text = "cannot greet again: `hello` is the first command or none; send it first";
            return Err(Refusal::new(Code::BadCommand, text));
        }
        let principal = match &hello.token {
            Some(token) => Some(self.principal_of(self.network_on(link), Some(token))?),
            None => None,
        };
        let node = self.config.name.clone();
        let limits = &self.config.limits;
        let (payload_bytes_max, message_bytes_max) =
            (limits.payload_bytes_max, limits.message_bytes_max);
        let Some(connection) = self.connection(link) else { return Ok(()) };
        let Some(native) = connection.state.native_mut() else { return Ok(()) };
        let session = native.session;
        let features = hello.features.unwrap_or(Features::ALL);
        native.features = features;
        if let Some(principal) = principal {
            native.principal = principal;
        }
        let rates = native.principal.rates;
        if let Some(client) = hello.client {
            self.asking.name(link, &client);
        }
        let mut manner = Manner::of(self.hub.encoding(session));
        let features = features.and(self.config.features);
        manner.encoding = manner.encoding.with_batch(hello.batch && features.has(Features::BATCH));
        manner.has_fragments = hello.fragments && features.has(Features::FRAGMENTS);
        self.hub.set_encoding(session, manner.index());
        self.hub.set_rates(session, rates.stricter(hello.rates), self.now);
        let session_name = self.session_name(link);
        let welcome = Event::Welcome {
            id,
            session: session_name,
            node,
            version: VERSION.into(),
            key: (manner.framing != Framing::WebSocket).then(|| self.session_key(link)),
            payload_bytes_max,
            message_bytes_max,
            features: Some(self.config.features),
        };
        self.hub.tell(session, &welcome);
        self.tell_unknown(session);
        Ok(())
    }

    /// Tells a session an event that no client knows, if the configuration says so.
    fn tell_unknown(&mut self, session: SessionIndex) {
        if !self.config.unknown_events {
            return;
        }
        let record = br#"{"type":"from-later","topic":{"id":[1]},"limits":0,"from":null}"#;
        let Manner { encoding, framing, .. } = Manner::of(self.hub.encoding(session));
        let mut message = Vec::new();
        let mut builder = MessageBuilder::begin(encoding, framing, &mut message);
        builder.next_record(&mut message);
        if encoding.is_binary() {
            // A control record, whose bytes are fewer than 128.
            message.extend_from_slice(&[0, record.len() as u8]);
            message.extend_from_slice(record);
        } else {
            let start = encoding.begin_record(Some("from-later"), &mut message);
            message.extend_from_slice(record);
            encoding.end_record(start, None, "", &mut message);
        }
        builder.finish(&mut message);
        self.hub.tell_bytes(session, &message);
    }

    /// The public name of the session on a connection: no other session of this process ever has it.
    pub(crate) fn session_name(&self, link: ConnectionId) -> String {
        format!("{}-{}-{link}", self.config.name, self.index.0)
    }

    fn tell_native(&mut self, link: ConnectionId, messages: &[u8]) {
        if let Some(native) = self.native(link) {
            let session = native.session;
            self.hub.tell_bytes(session, messages);
        }
    }

    /// Tells a peer why its connection ends, then ends it.
    pub(crate) fn close_native(&mut self, link: ConnectionId, refusal: &Refusal, close_code: u16) {
        let Some(native) = self.native(link).filter(|native| !native.is_closing) else { return };
        let session = native.session;
        self.note_refusal(link, refusal);
        let refusal = refusal.clone();
        let mut close = Vec::new();
        match Manner::of(self.hub.encoding(session)).framing {
            Framing::WebSocket => encode_close(close_code, &refusal.text, &mut close),
            framing => Self::encode_stream_end(framing, &mut close),
        }
        // What came after it would look like a hole to a client that was closed for its slowness.
        self.hub.end_reading(session);
        let retry_after_ms = match refusal.code {
            Code::ResponseRolled => 0,
            _ => RETRY_AFTER_MS,
        };
        self.hub.tell(session, &Event::Closing { refusal, retry_after_ms });
        self.hub.tell_bytes(session, &close);
        self.end_native(link);
    }

    /// Ends a session whose client wants no more.
    fn end_session(&mut self, link: ConnectionId) {
        let Some(session) = self.native(link).map(|native| native.session) else { return };
        let mut end = Vec::new();
        match Manner::of(self.hub.encoding(session)).framing {
            Framing::WebSocket => encode_close(1000, "", &mut end),
            framing => Self::encode_stream_end(framing, &mut end),
        }
        self.hub.end_reading(session);
        self.hub.tell_bytes(session, &end);
        self.end_native(link);
        if link.socket().is_none() {
            self.drop_connection(link);
        }
    }

    fn end_native(&mut self, link: ConnectionId) {
        if let Some(native) = self.native(link) {
            native.is_closing = true;
            self.inputs.wake(link);
            self.close_soon(link);
        }
    }

    /// Takes bytes from a WebSocket that echoes, as far as what it sent before was taken back; answers how many.
    pub(crate) fn handle_echo(&mut self, link: ConnectionId, bytes: &mut [u8]) -> usize {
        let (len, steps_max) = (bytes.len(), self.steps_left());
        let limits = &self.config.limits;
        let connection = self.connections.get_mut(link);
        let Some(Connection { state: State::Echo(echo), .. }) = connection else { return len };
        let mut input = Unread::new(bytes);
        let mut steps = 0;
        while !echo.is_closing && echo.unsent.len() < limits.answers_bytes_max && steps < steps_max
        {
            let out = echo.unsent.end_mut();
            let inflater = echo.deflater.is_some().then_some(&mut self.inflater);
            match echo.inbound.poll_deflated(&mut input, Role::Server, limits, inflater) {
                Ok(None) => break,
                Ok(Some(Message::Text(text))) => {
                    steps += steps_of_echo(text.len(), echo.deflater.is_some());
                    echo_message(Opcode::Text, text.as_bytes(), &mut echo.deflater, out);
                }
                Ok(Some(Message::Binary(bytes))) => {
                    steps += steps_of_echo(bytes.len(), echo.deflater.is_some());
                    echo_message(Opcode::Binary, bytes, &mut echo.deflater, out);
                }
                Ok(Some(Message::Ping(payload))) => encode_pong(payload, out),
                Ok(Some(Message::Pong(_))) => {}
                Ok(Some(Message::Close(reason))) => {
                    encode_close(reason.map_or(1000, |(code, _)| code), "", out);
                    echo.is_closing = true;
                }
                Err(error) => {
                    encode_close(error.close_code(), &error.refusal().text, out);
                    echo.is_closing = true;
                }
            }
        }
        let is_closing = echo.is_closing;
        let taken = if is_closing { len } else { input.taken() };
        let peak = &mut self.counters.answers_bytes_peak;
        *peak = (*peak).max(echo.unsent.len() as u64);
        self.note_work(steps);
        self.send_echo(link);
        if is_closing {
            self.close_soon(link);
        }
        taken
    }

    pub(crate) fn send_echo(&mut self, link: ConnectionId) {
        self.touch(link);
        let connection = self.connections.get_mut(link);
        let Some(Connection { state: State::Echo(echo), .. }) = connection else { return };
        if echo.unsent.is_empty() {
            return;
        }
        match connection::send(&mut self.io, link, echo.unsent.rest()) {
            Sent::Bytes(taken) => echo.unsent.take(taken),
            Sent::Closed => self.drop_connection(link),
        }
    }
}

/// Steps that it takes to send a message of so many bytes back.
fn steps_of_echo(bytes: usize, is_deflated: bool) -> u64 {
    /// Compressing is slower than copying.
    const TIMES_DEFLATED: u64 = 8;
    steps_of_bytes(bytes) * if is_deflated { TIMES_DEFLATED } else { 1 }
}

fn echo_message(
    opcode: Opcode,
    payload: &[u8],
    deflater: &mut Option<Deflater>,
    out: &mut Vec<u8>,
) {
    let writer = MessageWriter::begin(out);
    out.extend_from_slice(payload);
    match deflater {
        Some(deflater) => writer.finish_deflated(opcode, deflater, out),
        None => writer.finish(opcode, out),
    }
}

/// Whether both sides named what a command takes.
fn check_features(command: &Command, named: Features, offered: Features) -> Result<(), Refusal> {
    let needed = Features::needed_by(command);
    if named.and(offered).has(needed) {
        return Ok(());
    }
    if let Some(feature) = needed.without(offered).names().next() {
        let text = format!(
            "cannot carry out the command: this server has no `{feature}`; go by `features` in its `welcome`"
        );
        return Err(Refusal::new(Code::UnknownCommand, text));
    }
    if let Some(feature) = needed.without(named).names().next() {
        let text = format!(
            "cannot carry out the command: its answers belong to `{feature}`, which this client did not name; add \
             it to `features` in `hello`"
        );
        return Err(Refusal::new(Code::MissingFeature, text));
    }
    Ok(())
}

pub(crate) fn check_filter(options: &SubscribeOptions) -> Result<(), Refusal> {
    options.filter.as_deref().map_or(Ok(()), |text| payload::filter::compile(text).map(drop))
}
