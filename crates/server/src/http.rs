//! HTTP on the engine's sockets: heads and bodies in, answers out, and the doors to WebSocket.

use admin::{Answer, Exchange};
use bytes::Bytes;
use engine::{Io, MailSender, Sent, Socket};
use model::{Code, Refusal};
use protocol::http::{
    BodyLen, BodyReader, RequestHead, encode_chunk, encode_last_chunk, encode_refusal,
    encode_response_head, parse_head,
};
use protocol::native::{Encoding, Framing};
use protocol::websocket::{
    Deflate, Deflater, Subprotocol, WINDOW_BITS, accept_handshake, accept_plain_handshake,
    encode_handshake_response,
};

use crate::connection::{Answering, Arriving, Connection, Echo, State};
use crate::encoder::Manner;
use crate::mail::{Response, ShardMail};
use crate::routes::Route;
use crate::shard::Shard;

impl<I: Io> Shard<I> {
    /// Takes bytes of requests.
    pub(crate) fn handle_http(&mut self, socket: Socket, bytes: &[u8]) {
        let Some(connection) = self.connection(socket) else { return };
        match &mut connection.state {
            State::Head(early) => {
                early.extend_from_slice(bytes);
                let all = std::mem::take(early);
                self.handle_head(socket, all);
            }
            State::Body(_) => self.handle_body(socket, bytes),
            State::Answering(answering) => answering.early.extend_from_slice(bytes),
            State::Native(_)
            | State::Echo(_)
            | State::Stream(_)
            | State::Polled(_)
            | State::DeviceSocket(_)
            | State::Device(_) => {}
        }
    }

    fn handle_head(&mut self, socket: Socket, all: Vec<u8>) {
        match parse_head(&all, &self.config.limits) {
            Ok(None) => {
                if let Some(connection) = self.connection(socket) {
                    connection.state = State::Head(all);
                }
            }
            Ok(Some((head, taken))) => self.route(socket, head, &all[taken..]),
            Err(refusal) => self.refuse_http(socket, &refusal),
        }
    }

    fn route(&mut self, socket: Socket, head: RequestHead, rest: &[u8]) {
        let wants_websocket = head.wants_websocket();
        match Route::of(head.path(), wants_websocket) {
            Route::WebSocket if wants_websocket => self.open_native(socket, &head, rest),
            Route::WebSocket => {
                let text = "cannot serve /v1/ws as a page: it is a WebSocket; connect to it with \
                            a WebSocket client";
                self.refuse_http(socket, &Refusal::new(Code::BadRequest, text));
            }
            Route::Echo if self.config.echo => self.open_echo(socket, &head, rest),
            Route::DeviceSocket(device) => self.open_device_socket(socket, &head, device, rest),
            Route::Attach => self.attach(socket, &head, rest),
            _ => match BodyReader::new(&head, &self.config.limits) {
                Err(refusal) => self.refuse_http(socket, &refusal),
                Ok(body) => {
                    let continues = head.expects_continue() && rest.is_empty() && !body.is_done();
                    if continues {
                        self.io.send(socket, b"HTTP/1.1 100 Continue\r\n\r\n");
                    }
                    if let Some(connection) = self.connection(socket) {
                        connection.state = State::Body(Box::new(Arriving { head, body }));
                    }
                    self.handle_body(socket, rest);
                }
            },
        }
    }

    fn handle_body(&mut self, socket: Socket, bytes: &[u8]) {
        let Some(connection) = self.connection(socket) else { return };
        let State::Body(arriving) = &mut connection.state else { return };
        let taken = match arriving.body.handle_bytes(bytes) {
            Ok(taken) => taken,
            Err(refusal) => return self.refuse_http(socket, &refusal),
        };
        if !arriving.body.is_done() {
            return;
        }
        let keep_alive = arriving.head.keep_alive();
        let answering =
            Answering { keep_alive, early: bytes[taken..].to_vec(), ..Answering::default() };
        let serial = connection.serial;
        let state = std::mem::replace(&mut connection.state, State::Answering(Box::new(answering)));
        let State::Body(arriving) = state else { return };
        let Arriving { head, body } = *arriving;
        self.http_requests += 1;
        let body = body.into_body();
        if self.take_request(socket, &head, &body) {
            return;
        }
        if let Err(refusal) = self.hand_on(socket, serial, head, body, keep_alive) {
            self.refuse_http(socket, &refusal);
        }
    }

    /// Hands a request to the ordinary HTTP stack.
    fn hand_on(
        &mut self,
        socket: Socket,
        serial: u32,
        head: RequestHead,
        body: Vec<u8>,
        keep_alive: bool,
    ) -> Result<(), Refusal> {
        let mut request =
            http::Request::builder().method(head.method.as_str()).uri(head.target.as_str());
        for (name, value) in &head.fields {
            request = request.header(name.as_str(), value.as_str());
        }
        let request = request.body(Bytes::from(body)).map_err(|error| {
            let text = format!("cannot read the HTTP request: {error}; mend its target or fields");
            Refusal::new(Code::BadRequest, text)
        })?;
        let shard = self.peers[usize::from(self.index.0)].clone();
        let answer = MailedAnswer { shard, socket: socket.0, serial, keep_alive, framing: None };
        let exchange = Exchange { request, answer: Box::new(answer) };
        let busy = || {
            let text = "cannot serve the request now: requests_in_flight_max are being served; \
                        try again";
            Refusal::new(Code::Busy, text)
        };
        self.api.as_ref().ok_or_else(busy)?.try_send(exchange).map_err(|_| busy())
    }

    /// Takes a piece of an answer from the ordinary HTTP stack.
    pub(crate) fn handle_response(&mut self, response: Response) {
        let socket = Socket(response.socket);
        let Some(connection) = self.connection(socket) else { return };
        if connection.serial != response.serial {
            return;
        }
        let State::Answering(answering) = &mut connection.state else { return };
        answering.unsent.extend_from_slice(&response.bytes);
        answering.is_whole |= response.is_last;
        self.send_answer(socket);
    }

    /// Sends what is there of an answer; after its end, goes on with the next request.
    pub(crate) fn send_answer(&mut self, socket: Socket) {
        let connection = self.connections.get_mut(socket.0 as usize);
        let Some(Connection { state: State::Answering(answering), heard_at, .. }) = connection
        else {
            return;
        };
        if !answering.unsent.is_empty() {
            match self.io.send(socket, &answering.unsent) {
                Sent::Bytes(taken) => {
                    answering.unsent.drain(..taken);
                }
                Sent::Closed => return self.drop_connection(socket),
            }
        }
        if !answering.is_whole || !answering.unsent.is_empty() {
            return;
        }
        if !answering.keep_alive {
            return self.drop_connection(socket);
        }
        *heard_at = self.now.coarse_seconds();
        let early = std::mem::take(&mut answering.early);
        if let Some(connection) = self.connection(socket) {
            connection.state = State::Head(Vec::new());
        }
        if !early.is_empty() {
            self.handle_http(socket, &early);
        }
    }

    /// Answers with an error and closes.
    pub(crate) fn refuse_http(&mut self, socket: Socket, refusal: &Refusal) {
        self.refusals += 1;
        let mut answering = Answering { is_whole: true, ..Answering::default() };
        encode_refusal(refusal, false, &mut answering.unsent);
        if let Some(connection) = self.connection(socket) {
            connection.state = State::Answering(Box::new(answering));
            self.send_answer(socket);
        }
    }

    pub(crate) fn check_origin(&self, head: &RequestHead) -> Result<(), Refusal> {
        let Some(origin) = head.field("origin") else { return Ok(()) };
        if self.access.origin_allowed(origin, head.field("host").unwrap_or("")) {
            return Ok(());
        }
        let text = format!(
            "cannot serve pages of `{origin}`: it is not this server's own origin; add it to \
             access.origins in the configuration"
        );
        Err(Refusal::new(Code::ForeignOrigin, text))
    }

    fn open_native(&mut self, socket: Socket, head: &RequestHead, rest: &[u8]) {
        let token = head.field("authorization").and_then(|value| value.strip_prefix("Bearer "));
        let checked = self.check_origin(head).and_then(|()| {
            let handshake = accept_handshake(head)?;
            self.check_room()?;
            self.check_memory()?;
            let principal = match token {
                Some(token) => self.access.principal(Some(token))?,
                None => self.access.welcome(),
            };
            Ok((handshake, principal))
        });
        let (mut handshake, principal) = match checked {
            Ok(checked) => checked,
            Err(refusal) => return self.refuse_http(socket, &refusal),
        };
        let encoding = match handshake.subprotocol {
            Some(Subprotocol::Binary) => Encoding::Binary,
            Some(Subprotocol::Json) | None => Encoding::Json,
        };
        if !self.config.compression.is_on {
            handshake.deflate = None;
        }
        // Fewer bits would need a compressor for each size of window.
        let is_full = |deflate: &Deflate| deflate.window_bits == WINDOW_BITS;
        handshake.deflate = handshake.deflate.filter(is_full);
        let (framing, is_deflated) = (Framing::WebSocket, handshake.deflate.is_some());
        let manner = Manner { encoding, framing, is_deflated, has_fragments: false };
        let native = self.open_session(socket, manner, &principal);
        let mut answer = Vec::new();
        encode_handshake_response(&handshake, &mut answer);
        self.hub.tell_bytes(native.session, &answer);
        if let Some(connection) = self.connection(socket) {
            connection.state = State::Native(native);
        }
        self.handle_rest(socket, rest);
    }

    pub(crate) fn check_room(&self) -> Result<(), Refusal> {
        if self.is_stopping() {
            let text =
                "cannot open a session: the server is stopping; go to another node, or come back";
            return Err(Refusal::new(Code::GoingAway, text));
        }
        let sessions_max = self.sessions_max;
        if self.hub.session_count() + self.devices_attached < sessions_max {
            return Ok(());
        }
        let text = format!(
            "cannot open a session: this shard holds its {sessions_max} already; try again (another \
             shard or node may have room), or raise engine.shards or connections_per_shard_max"
        );
        Err(Refusal::new(Code::TooManyConnections, text))
    }

    fn open_echo(&mut self, socket: Socket, head: &RequestHead, rest: &[u8]) {
        let checked = self.check_origin(head).and_then(|()| accept_plain_handshake(head));
        let handshake = match checked {
            Ok(handshake) => handshake,
            Err(refusal) => return self.refuse_http(socket, &refusal),
        };
        let deflater = |deflate: Deflate| Deflater::new(1, deflate.window_bits);
        let deflater = handshake.deflate.map(deflater);
        let mut echo = Box::new(Echo { deflater, ..Echo::default() });
        encode_handshake_response(&handshake, &mut echo.unsent);
        if let Some(connection) = self.connection(socket) {
            connection.state = State::Echo(echo);
        }
        self.send_echo(socket);
        self.handle_rest(socket, rest);
    }

    pub(crate) fn handle_rest(&mut self, socket: Socket, rest: &[u8]) {
        if !rest.is_empty() {
            self.handle_bytes(socket, &mut rest.to_vec());
        }
    }
}

/// The way back of an answer: it is framed here and mailed to the shard that holds the socket.
struct MailedAnswer {
    shard: MailSender<ShardMail>,
    socket: u32,
    serial: u32,
    keep_alive: bool,
    framing: Option<(BodyLen, Vec<u8>)>,
}

impl MailedAnswer {
    fn mail(&self, bytes: Vec<u8>, is_last: bool) -> Result<(), Vec<u8>> {
        let (socket, serial) = (self.socket, self.serial);
        let response = Response { socket, serial, bytes, is_last };
        self.shard.send(ShardMail::Response(response)).map_err(|mail| match mail {
            ShardMail::Response(response) => response.bytes,
            _ => Vec::new(),
        })
    }
}

impl Answer for MailedAnswer {
    fn head(&mut self, parts: &http::response::Parts, body_len: Option<u64>) {
        let mut head = Vec::new();
        let framed_by_us = ["content-length", "transfer-encoding", "connection"];
        let fields: Vec<(&str, &str)> = parts
            .headers
            .iter()
            .filter(|(name, _)| !framed_by_us.contains(&name.as_str()))
            .filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)))
            .collect();
        let body = body_len.map_or(BodyLen::Chunked, BodyLen::Bytes);
        encode_response_head(parts.status.as_u16(), &fields, body, self.keep_alive, &mut head);
        self.framing = Some((body, head));
    }

    fn chunk(&mut self, bytes: Bytes) -> Result<(), Bytes> {
        let Some((body, head)) = &self.framing else { return Ok(()) };
        let mut out = head.clone();
        match body {
            BodyLen::Bytes(_) => out.extend_from_slice(&bytes),
            BodyLen::Chunked => encode_chunk(&bytes, &mut out),
            BodyLen::UntilClosed => out.extend_from_slice(&bytes),
        }
        self.mail(out, false).map_err(|_| bytes)?;
        if let Some((_, head)) = &mut self.framing {
            head.clear();
        }
        Ok(())
    }

    fn end(&mut self) -> bool {
        let Some((body, head)) = &self.framing else { return true };
        let mut out = head.clone();
        if *body == BodyLen::Chunked {
            encode_last_chunk(&mut out);
        }
        self.mail(out, true).is_ok()
    }
}
