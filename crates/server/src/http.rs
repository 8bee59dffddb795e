//! HTTP on the engine's sockets: heads and bodies in, answers out, and the doors to WebSocket.

use admin::{Answer, AnswerWindow, CERTIFICATE, Exchange};
use bytes::Bytes;
use engine::{Io, MailSender, Sent, Socket};
use hub::{ConnectionId, ShardIndex};
use model::{Code, Refusal};
use protocol::http::{
    BodyLen, BodyReader, Host, HttpDate, RefusalAnswer, RequestHead, encode_chunk,
    encode_last_chunk, encode_response_head, parse_head,
};
use protocol::native::{Encoding, Framing};
use protocol::websocket::{
    Channel, Deflate, Subprotocol, WINDOW_BITS, accept_handshake, encode_handshake_response,
};

use crate::byte_queue::ByteQueue;
use crate::dialect::Dialect;
use crate::dialects::{Answering, Arriving, Conversation};
use crate::edge::{self, Connection, Transport};
use crate::encoder::Manner;
use crate::mail::{Response, ShardMail};
use crate::routes::{Route, nothing_at, surfaces_of};
use crate::shard::Shard;
use crate::turn::STEPS_OF_A_REQUEST;

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
/// Requests of one connection that are taken before others have their turn.
const REQUESTS_IN_A_ROW: usize = 16;

/// A head that is arriving: nothing is said.
impl<I: Io> Dialect<I> for ByteQueue {}

impl<I: Io> Dialect<I> for Arriving {
    fn handle_writable(shard: &mut Shard<I>, link: ConnectionId) {
        shard.send_continue(link);
    }
}

impl<I: Io> Dialect<I> for Answering {
    fn handle_writable(shard: &mut Shard<I>, link: ConnectionId) {
        shard.send_answer(link);
    }
}

impl<I: Io> Shard<I> {
    /// Takes bytes of requests.
    pub(crate) fn handle_http(&mut self, link: ConnectionId, bytes: &[u8]) {
        self.note_bytes(bytes.len());
        let now = self.now.coarse_seconds();
        let Some(connection) = self.connection(link) else { return };
        match &mut connection.conversation {
            Conversation::Head(input) => {
                if input.is_empty() {
                    connection.heard_at = now;
                }
                input.append(bytes);
            }
            Conversation::Body(_) => self.handle_body(link, bytes),
            Conversation::Answering(answering) => answering.early.append(bytes),
            _ => {}
        }
        self.take_requests(link);
    }

    /// Takes the requests that are here, one after the other. An answer never goes on with the next request
    /// by itself: how many there are is the peer's choice.
    pub(crate) fn take_requests(&mut self, link: ConnectionId) {
        if self.take_some_requests(link) {
            self.go_on_later(link);
        }
        self.end_if_answered(link);
    }

    /// Takes as many of the requests that are here as may be; answers whether there may be more.
    fn take_some_requests(&mut self, link: ConnectionId) -> bool {
        for _ in 0..REQUESTS_IN_A_ROW {
            let is_enough = self.has_worked_enough();
            let Some(connection) = self.edge.connections.get_mut(link) else {
                return false;
            };
            let Conversation::Head(input) = &mut connection.conversation else { return false };
            if input.is_empty() || is_enough {
                return !input.is_empty();
            }
            match parse_head(input.rest(), &self.config.limits) {
                Ok(None) => return false,
                Ok(Some((head, len))) => {
                    let mut input = std::mem::take(input);
                    input.take(len);
                    self.note_work(STEPS_OF_A_REQUEST);
                    self.route(link, head, input);
                }
                Err(refusal) => {
                    self.refuse_http(link, &refusal);
                    return false;
                }
            }
        }
        true
    }

    /// Hears that a peer sends nothing more. Who asked over HTTP may read the answers still (RFC 9112, section 9.6).
    pub(crate) fn handle_end(&mut self, link: ConnectionId) {
        if self.owes_answers(link) {
            self.edge.note_half_closed(link);
        } else {
            self.drop_connection(link);
        }
    }

    /// Ends a connection whose peer sends nothing more, once everything is answered.
    fn end_if_answered(&mut self, link: ConnectionId) {
        if self.edge.is_half_closed(link) && !self.owes_answers(link) {
            self.drop_connection(link);
        }
    }

    /// Whether a whole request is to be answered, or is being answered.
    fn owes_answers(&self, link: ConnectionId) -> bool {
        match self.open_connection(link).map(|open| &open.conversation) {
            Some(Conversation::Answering(_)) => true,
            Some(Conversation::Head(input)) => {
                !matches!(parse_head(input.rest(), &self.config.limits), Ok(None))
            }
            _ => false,
        }
    }

    fn route(&mut self, link: ConnectionId, head: RequestHead, mut input: ByteQueue) {
        let checked = self
            .check_host(&head)
            .and_then(|()| self.check_surface(link, &head))
            .and_then(|()| self.check_rate(link, &head));
        if let Err(refusal) = checked {
            return self.refuse_request(link, &head, &refusal);
        }
        let wants_websocket = head.wants_websocket();
        match Route::of(head.path(), wants_websocket) {
            Route::WebSocket if wants_websocket => self.open_native(link, &head, input.rest()),
            Route::WebSocket => self.tell_why(link, &head),
            Route::Echo if self.config.echo => self.open_echo(link, &head, input.rest()),
            Route::DeviceSocket(device) => {
                self.open_device_socket(link, &head, device, input.rest());
            }
            Route::Attach if head.method == "POST" => self.attach(link, &head, input.rest()),
            _ => match self.begin_body(&head) {
                Err(refusal) => self.refuse_request(link, &head, &refusal),
                Ok(mut body) => {
                    let continues = head.expects_continue() && input.is_empty() && !body.is_done();
                    match body.handle_bytes(input.rest()) {
                        Ok(taken) => input.take(taken),
                        Err(refusal) => return self.refuse_request(link, &head, &refusal),
                    }
                    let mut unsent = ByteQueue::default();
                    if continues {
                        unsent.append(CONTINUE);
                    }
                    let arriving = Arriving { head, body, unsent };
                    if arriving.body.is_done() {
                        return self.take_whole(link, arriving, input);
                    }
                    if let Some(connection) = self.connection(link) {
                        connection.conversation = Conversation::Body(Box::new(arriving));
                    }
                    self.send_continue(link);
                }
            },
        }
    }

    /// Begins to read a request's body, if there is room for what the head announces.
    fn begin_body(&self, head: &RequestHead) -> Result<BodyReader, Refusal> {
        let body = BodyReader::new(head, &self.config.limits)?;
        if body.announced() > 0 {
            self.memory.check(body.announced(), "take the request")?;
        }
        Ok(body)
    }

    fn handle_body(&mut self, link: ConnectionId, bytes: &[u8]) {
        let Some(connection) = self.connection(link) else { return };
        let Conversation::Body(arriving) = &mut connection.conversation else { return };
        let taken = match arriving.body.handle_bytes(bytes) {
            Ok(taken) => taken,
            Err(refusal) => return self.refuse_http(link, &refusal),
        };
        if !arriving.body.is_done() {
            return;
        }
        let mut input = ByteQueue::default();
        input.append(&bytes[taken..]);
        let state = std::mem::replace(
            &mut connection.conversation,
            Conversation::Head(ByteQueue::default()),
        );
        let Conversation::Body(arriving) = state else { return };
        self.take_whole(link, *arriving, input);
    }

    /// Tells a client that it may send the body.
    fn send_continue(&mut self, link: ConnectionId) {
        let connection = self.edge.connections.get_mut(link);
        let Some(Connection { conversation: Conversation::Body(arriving), .. }) = connection else {
            return;
        };
        if arriving.unsent.is_empty() {
            return;
        }
        match edge::send(&mut self.edge.io, link, arriving.unsent.rest()) {
            Sent::Bytes(taken) => arriving.unsent.take(taken),
            Sent::Closed => self.drop_connection(link),
        }
    }

    /// Takes a whole request; `early` came after it.
    fn take_whole(&mut self, link: ConnectionId, arriving: Arriving, early: ByteQueue) {
        let Arriving { head, body, unsent } = arriving;
        let (keep_alive, is_head) = (head.keep_alive(), head.is_head());
        let Some(connection) = self.connection(link) else { return };
        let answering = Answering { keep_alive, is_head, early, unsent, ..Answering::default() };
        connection.conversation = Conversation::Answering(Box::new(answering));
        self.counters.http_requests += 1;
        let body = body.into_body();
        if self.take_request(link, &head, &body) {
            return;
        }
        if let Err(refusal) = self.hand_on(link, head, body, keep_alive) {
            self.refuse_http(link, &refusal);
        }
    }

    /// Hands a request to the ordinary HTTP stack.
    fn hand_on(
        &mut self,
        link: ConnectionId,
        head: RequestHead,
        body: Vec<u8>,
        keep_alive: bool,
    ) -> Result<(), Refusal> {
        let is_head = head.is_head();
        // The API refuses it; here it is told.
        self.foreign_origin(&head);
        let is_for_all = matches!(head.path(), "/health" | "/ready");
        if let (Ok(Some(token)), false) = (head.bearer_token(), is_for_all) {
            // The API tells what is wrong; here it is counted.
            let network = self.network_of(link, &head);
            match self.principal_of(network, Some(token)) {
                Err(refusal) if refusal.code != Code::BadToken => return Err(refusal),
                _ => {}
            }
        }
        let mut request =
            http::Request::builder().method(head.method.as_str()).uri(head.target.as_str());
        for (name, value) in head.fields.iter().filter(|(name, _)| name != CERTIFICATE) {
            request = request.header(name.as_str(), value.as_str());
        }
        if let Some(socket) = link.socket()
            && let Some(name) = self.edge.io.peer_name(Socket(socket))
        {
            request = request.header(CERTIFICATE, name);
        }
        let request = request.body(Bytes::from(body)).map_err(|error| {
            let text = format!("cannot read the HTTP request: {error}; mend its target or fields");
            Refusal::new(Code::BadRequest, text)
        })?;
        let shard = self.peers.sender_to(self.index);
        let (window, taker) = AnswerWindow::new(self.config.limits.answers_bytes_max);
        if let Some(Conversation::Answering(answering)) =
            self.connection(link).map(|connection| &mut connection.conversation)
        {
            answering.taker = Some(taker);
        }
        let (date, framing, refusal) = (self.date(), None, None);
        let answer =
            MailedAnswer { shard, link, window, keep_alive, is_head, date, framing, refusal };
        let exchange = Exchange { request, answer: Box::new(answer) };
        self.http.hand_on(exchange)
    }

    /// Takes a piece of an answer from the ordinary HTTP stack.
    pub(crate) fn handle_response(&mut self, response: Response) {
        let link = response.link;
        let Some(connection) = self.edge.connections.get_mut(link) else { return };
        let Conversation::Answering(answering) = &mut connection.conversation else { return };
        answering.unsent.append(&response.bytes);
        answering.begun_at.get_or_insert(self.now.coarse_seconds());
        let peak = &mut self.counters.answers_bytes_peak;
        *peak = (*peak).max(answering.unsent.len() as u64);
        answering.is_whole |= response.is_last;
        if let Some(refusal) = &response.refusal {
            self.note_refusal(link, refusal);
        }
        self.send_answer(link);
    }

    /// Sends what is there of an answer; after its end, goes on with the next request.
    fn send_answer(&mut self, link: ConnectionId) {
        self.touch(link);
        let connection = self.edge.connections.get_mut(link);
        let Some(Connection { conversation: Conversation::Answering(answering), heard_at, .. }) =
            connection
        else {
            return;
        };
        if !answering.unsent.is_empty() {
            match edge::send(&mut self.edge.io, link, answering.unsent.rest()) {
                Sent::Bytes(taken) => {
                    answering.unsent.take(taken);
                    if let Some(taker) = &answering.taker {
                        taker.take(taken);
                    }
                }
                Sent::Closed => return self.drop_connection(link),
            }
        }
        if !answering.is_whole || !answering.unsent.is_empty() {
            return;
        }
        if !answering.keep_alive {
            return self.drop_connection(link);
        }
        *heard_at = self.now.coarse_seconds();
        let early = std::mem::take(&mut answering.early);
        let has_more = !early.is_empty();
        if let Some(connection) = self.connection(link) {
            connection.conversation = Conversation::Head(early);
        }
        if has_more {
            self.go_on_later(link);
        }
        self.end_if_answered(link);
    }

    /// Answers a request that is under way, or none, with an error and closes.
    pub(crate) fn refuse_http(&mut self, link: ConnectionId, refusal: &Refusal) {
        let is_head = match self.connection(link).map(|connection| &connection.conversation) {
            Some(Conversation::Body(arriving)) => arriving.head.is_head(),
            Some(Conversation::Answering(answering)) => answering.is_head,
            _ => false,
        };
        self.send_refusal(link, refusal, &[], is_head);
    }

    /// Answers a request whose head is here with an error and closes.
    pub(crate) fn refuse_request(
        &mut self,
        link: ConnectionId,
        head: &RequestHead,
        refusal: &Refusal,
    ) {
        // RFC 6455, section 4.4.
        let is_other_version =
            head.wants_websocket() && head.field("sec-websocket-version") != Some("13");
        let fields: &[_] = if is_other_version { &[("sec-websocket-version", "13")] } else { &[] };
        self.send_refusal(link, refusal, fields, head.is_head());
    }

    pub(crate) fn send_refusal(
        &mut self,
        link: ConnectionId,
        refusal: &Refusal,
        fields: &[(&str, &str)],
        is_head: bool,
    ) {
        self.note_refusal(link, refusal);
        let mut answering = Answering { is_whole: true, ..Answering::default() };
        let date = &self.date();
        RefusalAnswer { refusal, date, fields, is_head }.encode(answering.unsent.end_mut());
        if let Some(connection) = self.connection(link) {
            connection.conversation = Conversation::Answering(Box::new(answering));
            self.send_answer(link);
        }
    }

    /// The time now, as answers say it.
    pub(crate) fn date(&mut self) -> HttpDate {
        self.http.date(self.now.unix_ms)
    }

    /// Whether the server goes by the name that a request's `Host` says. A page whose name was made to point here
    /// says its own (DNS rebinding).
    fn check_host(&mut self, head: &RequestHead) -> Result<(), Refusal> {
        let Some(Host::Name(name)) = head.host()? else { return Ok(()) };
        if self.access.host_allowed(&name) {
            return Ok(());
        }
        let text = format!(
            "cannot serve `{name}`: this server does not go by that name; if it should, add hosts = [\"{name}\"] to \
             [access] in the configuration"
        );
        self.note_unknown_host(name.into());
        Err(Refusal::new(Code::UnknownHost, text))
    }

    /// Whether the listener that a connection came through serves what is asked for.
    fn check_surface(&self, link: ConnectionId, head: &RequestHead) -> Result<(), Refusal> {
        let listener = link.socket().map_or(0, |socket| self.edge.io.listener(Socket(socket)));
        let wanted = surfaces_of(head.path(), &head.method);
        match self.config.surfaces_of(listener).intersects(wanted) {
            true => Ok(()),
            false => Err(nothing_at(head.path())),
        }
    }

    /// Logs a name that was refused, once: the first shard does so for all.
    pub(crate) fn note_unknown_host(&mut self, name: Box<str>) {
        if !self.http.note_host(&name, self.config.limits.unknown_hosts_max) {
            return;
        }
        if self.index.0 == 0 {
            tracing::warn!(
                "refused a request for `{name}`: if the server should go by that name, add hosts = [\"{name}\"] to \
                 [access] in the configuration"
            );
        } else {
            self.mail_to(ShardIndex(0), ShardMail::UnknownHost(name));
        }
    }

    fn open_native(&mut self, link: ConnectionId, head: &RequestHead, rest: &[u8]) {
        let checked = self.check_origin(head).and_then(|()| {
            let handshake = accept_handshake(head)?;
            self.check_room()?;
            self.check_memory()?;
            let network = self.network_of(link, head);
            let principal = match head.bearer_token()? {
                Some(token) => self.principal_of(network, Some(token))?,
                None => self.certified(link).unwrap_or_else(|| self.access.welcome()),
            };
            self.count_connection(link, network)?;
            Ok((handshake, principal))
        });
        let (mut handshake, principal) = match checked {
            Ok(checked) => checked,
            Err(refusal) => return self.refuse_request(link, head, &refusal),
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
        let manner =
            Manner { encoding, framing, is_deflated, has_fragments: false, has_ids: false };
        let native = self.open_session(link, manner, &principal);
        let mut answer = Vec::new();
        encode_handshake_response(&handshake, &mut answer);
        self.hub.tell_bytes(native.session, &answer);
        if let Some(connection) = self.connection(link) {
            connection.transport = Transport::WebSocket(Channel::default());
            connection.conversation = Conversation::Native(native);
        }
        self.expect_token(link, &principal);
        self.handle_rest(link, rest);
    }

    pub(crate) fn check_room(&self) -> Result<(), Refusal> {
        if self.turn.is_stopping() {
            let text =
                "cannot open a session: the server is stopping; go to another node, or come back";
            return Err(Refusal::new(Code::GoingAway, text));
        }
        let sessions_max = self.edge.sessions_max;
        if self.hub.session_count() + self.devices.connected < sessions_max {
            return Ok(());
        }
        let text = format!(
            "cannot open a session: this shard holds its {sessions_max} already; try again (another \
             shard or node may have room), or raise engine.shards or connections_per_shard_max"
        );
        Err(Refusal::new(Code::TooManyConnections, text))
    }

    pub(crate) fn handle_rest(&mut self, link: ConnectionId, rest: &[u8]) {
        if !rest.is_empty() {
            self.handle_bytes(link, &mut rest.to_vec());
        }
    }
}

/// The way back of an answer: it is framed here and mailed to the shard that holds the socket.
struct MailedAnswer {
    shard: MailSender<ShardMail>,
    link: ConnectionId,
    window: AnswerWindow,
    keep_alive: bool,
    is_head: bool,
    date: HttpDate,
    framing: Option<(BodyLen, Vec<u8>)>,
    /// What the answer refuses, until the shard was told.
    refusal: Option<Box<Refusal>>,
}

impl MailedAnswer {
    fn mail(&mut self, bytes: Vec<u8>, is_last: bool) -> Result<(), Vec<u8>> {
        let (link, count) = (self.link, bytes.len());
        let refusal = self.refusal.take();
        let response = Response { link, bytes, is_last, refusal };
        // Before it is sent: the shard may have had the socket take it the moment after.
        self.window.send(count);
        self.shard.send(ShardMail::Response(response)).map_err(|mail| {
            self.window.take_back(count);
            match mail {
                ShardMail::Response(response) => {
                    self.refusal = response.refusal;
                    response.bytes
                }
                _ => Vec::new(),
            }
        })
    }
}

impl Answer for MailedAnswer {
    fn window(&self) -> &AnswerWindow {
        &self.window
    }

    fn head(&mut self, parts: &http::response::Parts, body_len: Option<u64>) {
        let mut head = Vec::new();
        self.refusal = parts.extensions.get().cloned().map(Box::new);
        let framed_by_us = ["content-length", "transfer-encoding", "connection"];
        let fields: Vec<(&str, &str)> = parts
            .headers
            .iter()
            .filter(|(name, _)| !framed_by_us.contains(&name.as_str()))
            .filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)))
            .collect();
        let body = body_len.map_or(BodyLen::Chunked, BodyLen::Bytes);
        let status = parts.status.as_u16();
        encode_response_head(status, &self.date, &fields, body, self.keep_alive, &mut head);
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
        if *body == BodyLen::Chunked && !self.is_head {
            encode_last_chunk(&mut out);
        }
        self.mail(out, true).is_ok()
    }
}
