//! Sessions over plain HTTP: responses that go on, as Server-Sent Events or as lines, and the commands that
//! come in requests of their own. docs/protocol.md#sessions-over-plain-http.

use std::sync::Arc;

use access::check_read;
use engine::Io;
use hub::ConnectionId;
use model::{Code, Command, Hello, Position, Principal, Refusal, TopicName};
use protocol::http::{BodyLen, RequestHead, encode_last_chunk, encode_response_head};
use protocol::native::binary::IsBinary;
use protocol::native::{self, Batch, Encoding, Framing, MessageBuilder, Opening, decode_opening};

use crate::asker::origin_fields;
use crate::conversation::check_filter;
use crate::dialects::{Conversation, Native};
use crate::edge::Commands;
use crate::edge::{Connection, Transport};
use crate::encoder::Manner;
use crate::key::{SessionPlace, key_of, no_session, place_of};
use crate::mail::{SessionRequest, ShardMail};
use crate::reply::Asker;
use crate::routes::SessionRoute;
use crate::shard::Shard;

/// A session to be opened.
pub(crate) struct NewSession {
    pub opening: Opening,
    pub principal: Arc<Principal>,
    pub commands: Batch,
}

impl<I: Io> Shard<I> {
    /// Takes a whole request about a session over plain HTTP.
    pub(crate) fn handle_session_request(
        &mut self,
        route: SessionRoute,
        head: &RequestHead,
        body: &[u8],
        asker: Asker,
    ) -> Result<(), Refusal> {
        let mut opening = decode_opening(head, &self.config.limits)?;
        let commands = Batch::read(body.to_vec(), &self.config.limits)?;
        if let Some(key) = opening.session.take() {
            let place = place_of(&key, &self.secret).ok_or_else(no_session)?;
            let polled_after = (route == SessionRoute::Poll).then_some(opening.batch);
            let request = SessionRequest { place, asker, commands, polled_after };
            return self.send_session_request(request);
        }
        if route == SessionRoute::Commands {
            let text =
                "cannot take commands for no session: give its key, `?session=`, from `welcome`";
            return Err(Refusal::new(Code::BadRequest, text));
        }
        let new = self.check_session(&asker, opening, commands)?;
        match route {
            SessionRoute::Poll => {
                let counted = self.count(asker.network)?;
                self.open_polled(asker, new, counted);
            }
            _ => {
                self.count_connection(asker.connection.id, asker.network)?;
                self.open_stream(asker, route, head.version_minor, new);
            }
        }
        Ok(())
    }

    fn send_session_request(&mut self, request: SessionRequest) -> Result<(), Refusal> {
        let shard = request.place.shard;
        if shard == self.index {
            self.handle_own_session_request(request);
        } else if shard.0 < self.peers.count() {
            self.check_mail("take the request")?;
            self.mail_to(shard, ShardMail::SessionRequest(Box::new(request)));
        } else {
            return Err(no_session());
        }
        Ok(())
    }

    /// Whether a session may be opened, and for whom.
    fn check_session(
        &mut self,
        asker: &Asker,
        mut opening: Opening,
        commands: Batch,
    ) -> Result<NewSession, Refusal> {
        self.check_room()?;
        self.check_memory()?;
        let greeting = match commands.peek(&self.config.limits) {
            Some(Ok((_, Command::Hello(hello), _))) => hello.token,
            _ => None,
        };
        let greeting = greeting.as_deref();
        let token = opening.token.as_deref().or(greeting);
        let principal = self.principal_on(asker.connection.id, asker.network, token)?;
        self.resume(&mut opening);
        if let Some(subscribe) = &opening.subscribe {
            check_read(&principal, &subscribe.selectors)?;
            check_filter(&subscribe.options)?;
        }
        Ok(NewSession { opening, principal, commands })
    }

    /// Lets a subscription go on from the last event of its reader; where that names a topic, with its epoch.
    fn resume(&self, opening: &mut Opening) {
        let Some((topic, sequence)) = opening.resume(&self.config.limits) else { return };
        let (Some(id), Some(subscribe)) = (&opening.last_event_id, &mut opening.subscribe) else {
            return;
        };
        let epoch = self.backbones.pick_epoch(self.hub.policy_for(&topic), &id.epochs);
        let Some(epoch) = epoch.cloned() else { return };
        subscribe.positions = vec![(topic, Position { epoch, sequence })];
    }

    fn open_stream(
        &mut self,
        asker: Asker,
        route: SessionRoute,
        version_minor: u8,
        new: NewSession,
    ) {
        let link = asker.connection.id;
        let is_events = route == SessionRoute::Events;
        let selectors = new.opening.subscribe.as_ref().map(|it| it.selectors.as_slice());
        let encoding = match (is_events, selectors.and_then(only_topic)) {
            (false, _) => Encoding::Lines,
            (true, Some(_)) => Encoding::Events,
            (true, None) => Encoding::EventsOfMany,
        };
        let (framing, body) = match version_minor {
            0 => (Framing::Bare, BodyLen::UntilClosed),
            _ => (Framing::Chunk, BodyLen::Chunked),
        };
        let mut fields = origin_fields(asker.origin.as_deref());
        let kind = if is_events { "text/event-stream" } else { "application/x-ndjson" };
        fields.extend([
            ("content-type", kind),
            ("cache-control", "no-cache, no-store, no-transform"),
            // What nginx and others need to hear, or they hold everything back.
            ("x-accel-buffering", "no"),
            ("x-content-type-options", "nosniff"),
        ]);
        let mut begin = Vec::new();
        encode_response_head(200, &self.date(), &fields, body, false, &mut begin);
        begin_stream(encoding, framing, new.opening.padding_bytes, &mut begin);
        let manner =
            Manner { encoding, framing, is_deflated: false, has_fragments: false, has_ids: false };
        let native = self.open_session(link, manner, &new.principal);
        let session = native.session;
        self.hub.tell_bytes(session, &begin);
        let opened_at = self.now.coarse_seconds();
        if let Some(connection) = self.connection(link) {
            connection.transport = Transport::Response { is_closing: false };
            connection.conversation = Conversation::Native(native);
            connection.heard_at = opened_at;
        }
        self.edge.transports.responses.insert(link, opened_at);
        self.begin_session(link, new);
    }

    /// Opens a session that is spoken to in `manner`.
    pub(crate) fn open_session(
        &mut self,
        link: ConnectionId,
        manner: Manner,
        principal: &Arc<Principal>,
    ) -> Native {
        let session = self.hub.open_session(link, manner.index());
        self.hub.set_rates(session, principal.rates, self.now);
        self.log_opening(link, &principal.name);
        Native {
            session,
            principal: Arc::clone(principal),
            speech: native::Conversation::default(),
        }
    }

    /// Carries out what a request that opened a session asked for.
    pub(crate) fn begin_session(&mut self, link: ConnectionId, new: NewSession) {
        let NewSession { mut opening, mut commands, .. } = new;
        let first = commands.peek(&self.config.limits);
        // Pieces of a large publication come among others, whose ids would say that it came whole.
        if let (Some(Ok((_, Command::Hello(Hello { fragments: true, .. }), _))), Some(subscribe)) =
            (&first, &mut opening.subscribe)
        {
            subscribe.options.is_resumable = false;
        }
        let welcome = || Ok((None, Command::Hello(Hello::default()), IsBinary::No));
        let greeting = match first {
            Some(Ok((_, Command::Hello(_), _))) => commands.take(&self.config.limits),
            _ => Some(welcome()),
        };
        let subscribe = opening
            .subscribe
            .map(|subscribe| Ok((None, Command::Subscribe(subscribe), IsBinary::No)));
        for command in greeting.into_iter().chain(subscribe) {
            self.handle_command(link, command);
        }
        self.carry_out_or_keep(link, Commands::Batch(commands));
    }

    /// The key of the session on a connection.
    pub(crate) fn session_key(&self, link: ConnectionId) -> String {
        key_of(SessionPlace::of(self.name_of(link)), &self.secret)
    }

    /// Takes a request about a session that should be on this shard.
    pub(crate) fn handle_own_session_request(&mut self, request: SessionRequest) {
        let SessionRequest { place, asker, commands, polled_after } = request;
        let Some(link) = self.edge.connections.named(place.connection) else {
            return self.answer_refusal(asker, &no_session());
        };
        let answers_bytes_max = self.config.limits.answers_bytes_max;
        let connection = self.open_connection(link);
        if connection.and_then(Connection::open_native).is_none() {
            return self.answer_refusal(asker, &no_session());
        }
        let is_full = self.edge.inputs.bytes_of_commands(link) >= answers_bytes_max;
        if is_full && !commands.is_empty() {
            let text = "cannot take more commands now: answers_bytes_max bytes of earlier ones wait until their answers \
                        are read; read the session's response, then send these again";
            let refusal = Refusal::new(Code::TooManyAnswersWaiting, text);
            return self.answer_refusal(asker, &refusal);
        }
        let count = commands.len();
        self.carry_out_or_keep(link, Commands::Batch(commands));
        match polled_after {
            Some(batch) => self.poll(link, asker, batch),
            None => {
                let body = format!("{{\"accepted\":{count}}}");
                self.answer(asker, 202, "application/json", body.as_bytes());
            }
        }
    }

    /// Ends a response that goes on, after what is told already.
    pub(crate) fn encode_stream_end(framing: Framing, out: &mut Vec<u8>) {
        if framing == Framing::Chunk {
            encode_last_chunk(out);
        }
    }

    /// Sends a response that goes on a sign of life.
    pub(crate) fn keep_alive(&mut self, link: ConnectionId) {
        let now = self.now.coarse_seconds();
        let Some(connection) = self.connection(link) else { return };
        connection.heard_at = now;
        let Some(native) = connection.conversation.native() else { return };
        let session = native.session;
        let Manner { encoding, framing, .. } = Manner::of(self.hub.encoding(session));
        let mut sign = Vec::new();
        let message = MessageBuilder::begin(encoding, framing, &mut sign);
        sign.extend_from_slice(encoding.keep_alive());
        message.finish(&mut sign);
        self.hub.tell_bytes(session, &sign);
    }

    /// Ends a response that went on for as long as one may.
    pub(crate) fn roll(&mut self, link: ConnectionId) {
        let text =
            "the response went on for stream_ms_max: ask again, and go on from the last positions";
        let refusal = Refusal::new(Code::ResponseRolled, text);
        self.close(link, &refusal);
    }
}

/// The topic that a list of selectors names, if it is one topic.
fn only_topic(selectors: &[model::Selector]) -> Option<TopicName> {
    match selectors {
        [only] => only.to_topic(),
        _ => None,
    }
}

/// Appends the first chunk: for Server-Sent Events when to come back, and padding.
fn begin_stream(encoding: Encoding, framing: Framing, padding: usize, out: &mut Vec<u8>) {
    let message = MessageBuilder::begin(encoding, framing, out);
    if padding > 0 {
        out.extend_from_slice(if encoding == Encoding::Lines { b" " } else { b":" });
        out.resize(out.len() + padding, b' ');
        out.extend_from_slice(b"\n");
    }
    if encoding != Encoding::Lines {
        // Part of the first event: some readers take a block of its own for an empty event.
        out.extend_from_slice(b"retry: 1000\n");
    }
    message.finish(out);
}
