//! What WebSocket peers say, and what the hub is asked for it.

use engine::{Io, Sent, Socket};
use model::{
    Action, Code, Command, CommandId, Event, Hello, Principal, Refusal, Selector, SubscribeOptions,
};
use protocol::native::binary::{self, Decoded, IsBinary};
use protocol::native::{Framing, Undecoded, json};
use protocol::websocket::{
    Deflater, FrameError, Message, MessageWriter, Opcode, Role, Unread, encode_close, encode_pong,
};

use crate::connection::{Connection, Native, State};
use crate::encoder::Manner;
use crate::payloads::compile;
use crate::publish::PendingPublish;
use crate::shard::Shard;

/// The server's version, told in `welcome`.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// When to come back after the server closed, in milliseconds.
const RETRY_AFTER_MS: u64 = 1_000;

/// One message's worth of things to do, taken out of the connection's borrow.
enum Heard {
    Commands(Vec<Decoded>),
    Ping(Vec<u8>),
    Pong,
    Close(u16),
    Broken(FrameError),
}

impl<I: Io> Shard<I> {
    /// Takes bytes from a WebSocket that speaks the native dialect.
    pub(crate) fn handle_native(&mut self, socket: Socket, bytes: &mut [u8]) {
        let mut input = Unread::new(bytes);
        while let Some(heard) = self.next_heard(socket, &mut input) {
            match heard {
                Heard::Commands(commands) => {
                    for command in commands {
                        self.handle_command(socket, command);
                    }
                }
                Heard::Ping(payload) => {
                    let mut pong = Vec::new();
                    encode_pong(&payload, &mut pong);
                    self.tell_native(socket, &pong);
                }
                Heard::Pong => {}
                Heard::Close(code) => {
                    // After a close frame nothing may follow. RFC 6455, section 5.5.1.
                    if let Some(session) = self.native(socket).map(|native| native.session) {
                        self.hub.end_reading(session);
                    }
                    let mut close = Vec::new();
                    encode_close(code, "", &mut close);
                    self.tell_native(socket, &close);
                    self.end_native(socket);
                }
                Heard::Broken(error) => {
                    self.close_native(socket, &error.refusal(), error.close_code());
                }
            }
        }
    }

    fn next_heard(&mut self, socket: Socket, input: &mut Unread<'_>) -> Option<Heard> {
        let limits = &self.config.limits;
        let connection = self.connections.get_mut(socket.0 as usize)?;
        let State::Native(native) = &mut connection.state else { return None };
        if native.is_closing {
            return None;
        }
        let is_deflated = Manner::of(self.hub.encoding(native.session)).is_deflated;
        let inflater = is_deflated.then_some(&mut self.inflater);
        Some(match native.inbound.poll_deflated(input, Role::Server, limits, inflater) {
            Ok(None) => return None,
            Ok(Some(Message::Text(text))) => {
                let decoded = json::decode_command(text, limits);
                Heard::Commands(vec![decoded.map(|(id, command)| (id, command, IsBinary::No))])
            }
            Ok(Some(Message::Binary(bytes))) => {
                Heard::Commands(binary::decode_commands(bytes, limits).collect())
            }
            Ok(Some(Message::Ping(payload))) => Heard::Ping(payload.to_vec()),
            Ok(Some(Message::Pong(_))) => Heard::Pong,
            Ok(Some(Message::Close(reason))) => Heard::Close(reason.map_or(1000, |(code, _)| code)),
            Err(error) => Heard::Broken(error),
        })
    }

    fn native(&mut self, socket: Socket) -> Option<&mut Native> {
        self.connection(socket)?.state.native_mut()
    }

    pub(crate) fn handle_command(&mut self, socket: Socket, command: Decoded) {
        let Some(native) = self.native(socket) else { return };
        let (session, principal) = (native.session, native.principal.clone());
        let is_first = !std::mem::replace(&mut native.has_spoken, true);
        let (id, result) = match command {
            Err(Undecoded { id, refusal }) => (id, Err(refusal)),
            Ok((id, command, is_binary)) => (
                id,
                match command {
                    Command::Hello(hello) => {
                        let greeted = self.handle_hello(socket, id, hello, is_first);
                        if is_first
                            && greeted.is_err()
                            && let Some(native) = self.native(socket)
                        {
                            // It may greet once more, with another token.
                            native.has_spoken = false;
                        }
                        greeted
                    }
                    Command::Subscribe(wanted) => check_read(&principal, &wanted.selectors)
                        .and_then(|()| check_filter(&wanted.options))
                        .and_then(|()| match wanted.name {
                            Some(_) => self.subscribe_by_name(socket, &principal, id, wanted),
                            None => self.hub.subscribe(session, id, wanted),
                        }),
                    Command::Acknowledge(acknowledged) => {
                        self.acknowledge(socket, &principal, id, acknowledged)
                    }
                    Command::Unsubscribe(unwanted) => self.hub.unsubscribe(session, id, unwanted),
                    Command::Publish(publish) => {
                        let serial = self.connection(socket).map_or(0, |open| open.serial);
                        self.check_session_publish(socket, &principal, &publish.draft.topic).map(
                            |()| {
                                let pending =
                                    PendingPublish::Session { socket, serial, id, is_binary };
                                self.publish(publish.draft, pending);
                            },
                        )
                    }
                    Command::History(query) => {
                        let serial = self.connection(socket).map_or(0, |open| open.serial);
                        let selector = Selector::of_topic(&query.topic);
                        check_read(&principal, std::slice::from_ref(&selector))
                            .map(|()| self.ask_history(socket, serial, id, query))
                    }
                    Command::Handle(handle) => self.handle_requests(socket, &principal, id, handle),
                    Command::Unhandle(unhandle) => self.unhandle_requests(socket, id, unhandle),
                    Command::Request(request) => self.ask(socket, &principal, id, request),
                    Command::Respond(respond) => match (self.respond(socket, respond), id) {
                        (Err(refusal), Some(_)) => Err(refusal),
                        // Who did not ask does not hear it.
                        (Err(_), None) | (Ok(()), _) => Ok(()),
                    },
                    Command::Attach(attach) => {
                        self.attach_to_session(socket, &principal, id, attach)
                    }
                    Command::Detach(detach) => self.detach_from_session(socket, id, detach),
                    Command::Close => {
                        self.end_session(socket);
                        Ok(())
                    }
                    Command::Ping => {
                        self.hub.tell(session, &Event::Pong { id });
                        Ok(())
                    }
                },
            ),
        };
        if let Err(refusal) = result {
            self.refusals += 1;
            self.hub.tell(session, &Event::Refused { id, refusal });
        }
    }

    fn handle_hello(
        &mut self,
        socket: Socket,
        id: Option<CommandId>,
        hello: Hello,
        is_first: bool,
    ) -> Result<(), Refusal> {
        if !is_first {
            let text = "cannot greet again: `hello` is the first command or none; send it first";
            return Err(Refusal::new(Code::BadCommand, text));
        }
        let principal = match &hello.token {
            Some(token) => Some(self.access.principal(Some(token))?),
            None => None,
        };
        let node = self.config.name.clone();
        let limits = &self.config.limits;
        let (payload_bytes_max, message_bytes_max) =
            (limits.payload_bytes_max, limits.message_bytes_max);
        let Some(connection) = self.connection(socket) else { return Ok(()) };
        let serial = connection.serial;
        let Some(native) = connection.state.native_mut() else { return Ok(()) };
        let session = native.session;
        if let Some(principal) = principal {
            native.principal = principal;
        }
        let rates = native.principal.rates;
        if let Some(client) = hello.client {
            self.handling.name(socket.0, &client, self.config.limits.client_bytes_max);
        }
        let mut manner = Manner::of(self.hub.encoding(session));
        manner.encoding = manner.encoding.with_batch(hello.batch);
        manner.has_fragments = hello.fragments;
        self.hub.set_encoding(session, manner.index());
        self.hub.set_rates(session, rates.stricter(hello.rates), self.now);
        let session_name = self.session_name(serial);
        let welcome = Event::Welcome {
            id,
            session: session_name,
            node,
            version: VERSION.into(),
            key: (manner.framing != Framing::WebSocket).then(|| self.session_key(socket, serial)),
            payload_bytes_max,
            message_bytes_max,
        };
        self.hub.tell(session, &welcome);
        Ok(())
    }

    /// The public name of the session on the connection with this serial.
    pub(crate) fn session_name(&self, serial: u32) -> String {
        format!("{}-{}-{serial}", self.config.name, self.index.0)
    }

    fn tell_native(&mut self, socket: Socket, messages: &[u8]) {
        if let Some(native) = self.native(socket) {
            let session = native.session;
            self.hub.tell_bytes(session, messages);
        }
    }

    /// Tells a peer why its connection ends, then ends it.
    pub(crate) fn close_native(&mut self, socket: Socket, refusal: &Refusal, close_code: u16) {
        let Some(native) = self.native(socket).filter(|native| !native.is_closing) else { return };
        let session = native.session;
        self.refusals += 1;
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
        self.end_native(socket);
    }

    /// Ends a session whose client wants no more.
    fn end_session(&mut self, socket: Socket) {
        let Some(session) = self.native(socket).map(|native| native.session) else { return };
        let mut end = Vec::new();
        match Manner::of(self.hub.encoding(session)).framing {
            Framing::WebSocket => encode_close(1000, "", &mut end),
            framing => Self::encode_stream_end(framing, &mut end),
        }
        self.hub.end_reading(session);
        self.hub.tell_bytes(session, &end);
        self.end_native(socket);
        if crate::poll::polled_index(socket).is_some() {
            self.drop_connection(socket);
        }
    }

    fn end_native(&mut self, socket: Socket) {
        if let Some(native) = self.native(socket) {
            native.is_closing = true;
            self.close_soon(socket);
        }
    }

    /// Takes bytes from a WebSocket that echoes.
    pub(crate) fn handle_echo(&mut self, socket: Socket, bytes: &mut [u8]) {
        let limits = &self.config.limits;
        let connection = self.connections.get_mut(socket.0 as usize);
        let Some(Connection { state: State::Echo(echo), .. }) = connection else { return };
        let mut input = Unread::new(bytes);
        while !echo.is_closing {
            let out = &mut echo.unsent;
            let inflater = echo.deflater.is_some().then_some(&mut self.inflater);
            match echo.inbound.poll_deflated(&mut input, Role::Server, limits, inflater) {
                Ok(None) => break,
                Ok(Some(Message::Text(text))) => {
                    echo_message(Opcode::Text, text.as_bytes(), &mut echo.deflater, out);
                }
                Ok(Some(Message::Binary(bytes))) => {
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
        self.send_echo(socket);
        if is_closing {
            self.close_soon(socket);
        }
    }

    pub(crate) fn send_echo(&mut self, socket: Socket) {
        let connection = self.connections.get_mut(socket.0 as usize);
        let Some(Connection { state: State::Echo(echo), .. }) = connection else { return };
        if echo.unsent.is_empty() {
            return;
        }
        match self.io.send(socket, &echo.unsent) {
            Sent::Bytes(taken) => {
                echo.unsent.drain(..taken);
            }
            Sent::Closed => self.drop_connection(socket),
        }
    }
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

pub(crate) fn check_filter(options: &SubscribeOptions) -> Result<(), Refusal> {
    options.filter.as_deref().map_or(Ok(()), |text| compile(text).map(drop))
}

pub(crate) fn check_read(principal: &Principal, selectors: &[Selector]) -> Result<(), Refusal> {
    let may = |selector: &Selector| principal.may(Action::Subscribe, selector);
    let Some(refused) = selectors.iter().find(|selector| !may(selector)) else {
        return Ok(());
    };
    let text = format!(
        "cannot read `{refused}`: {} may not read all of it; present a token that may, or \
         use a narrower selector",
        principal.name
    );
    Err(Refusal::new(Code::NotAllowed, text))
}
