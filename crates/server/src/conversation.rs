//! What sessions say in the native dialect, and what the hub is asked for it.

use engine::Io;
use hub::{ConnectionId, SessionIndex};
use model::{Code, CommandId, Event, Features, Hello, Refusal, SubscribeOptions};
use protocol::native::binary::IsBinary;
use protocol::native::{self, Framing, MessageBuilder, json};
use protocol::websocket::Heard;

use crate::edge::Commands;
use crate::edge::Transport;
use crate::encoder::Manner;
use crate::shard::Shard;

/// The server's version, told in `welcome`.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// When to come back after the server closed, in milliseconds.
const RETRY_AFTER_MS: u64 = 1_000;

impl<I: Io> Shard<I> {
    /// Hears a message of the native dialect.
    pub(crate) fn hear_native(&mut self, link: ConnectionId, heard: Heard<'_>) {
        match heard {
            Heard::Text(text) => {
                let decoded = json::decode_command(text, &self.config.limits);
                let decoded = decoded.map(|(id, command)| (id, command, IsBinary::No));
                self.handle_command(link, decoded);
            }
            Heard::Binary(mut records) => {
                if !self.carry_out(link, &mut records) {
                    self.edge.keep_commands(link, Commands::records(records));
                }
            }
            Heard::Control(_) | Heard::Closed | Heard::Broken(_) => {}
        }
    }

    pub(crate) fn handle_hello(
        &mut self,
        link: ConnectionId,
        id: Option<CommandId>,
        hello: Hello,
        is_first: bool,
    ) -> Result<(), Refusal> {
        native::Conversation::check_greeting(is_first)?;
        let principal = match &hello.token {
            Some(token) => Some(self.principal_of(self.network_on(link), Some(token))?),
            None => None,
        };
        let node = self.config.name.clone();
        let limits = &self.config.limits;
        let (payload_bytes_max, message_bytes_max) =
            (limits.payload_bytes_max, limits.message_bytes_max);
        let Some(connection) = self.connection(link) else { return Ok(()) };
        let Some(native) = connection.conversation.native_mut() else { return Ok(()) };
        let session = native.session;
        native.speech.handle_greeting(hello.features);
        let speech = native.speech;
        if let Some(principal) = principal {
            native.principal = principal;
        }
        let rates = native.principal.rates;
        if let Some(client) = hello.client {
            self.asking.name(link, &client, self.config.limits.client_bytes_max);
        }
        let mut manner = Manner::of(self.hub.encoding(session));
        let features = speech.agreed(self.config.features);
        manner.encoding = manner.encoding.with_batch(hello.batch && features.has(Features::BATCH));
        if features.has(Features::EXTENDED) {
            manner.encoding = manner.encoding.extended();
        }
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

    /// Tells a peer why its connection ends, then ends it.
    pub(crate) fn close_native(&mut self, link: ConnectionId, refusal: &Refusal, close_code: u16) {
        let Some(session) = self.open_session_of(link) else { return };
        self.note_refusal(link, refusal);
        let refusal = refusal.clone();
        let last_words = self.last_words(link, close_code, &refusal.text);
        // What came after it would look like a hole to a client that was closed for its slowness.
        self.hub.end_reading(session);
        let retry_after_ms = match refusal.code {
            Code::ResponseRolled => 0,
            _ => RETRY_AFTER_MS,
        };
        self.hub.tell(session, &Event::Closing { refusal, retry_after_ms });
        self.hub.tell_bytes(session, &last_words);
        self.end_soon(link);
    }

    /// Ends a session whose client wants no more.
    pub(crate) fn end_session(&mut self, link: ConnectionId) {
        let Some(session) = self.open_session_of(link) else { return };
        let last_words = self.last_words(link, 1000, "");
        self.hub.end_reading(session);
        self.hub.tell_bytes(session, &last_words);
        self.end_soon(link);
        if link.socket().is_none() {
            self.drop_connection(link);
        }
    }

    /// The session on a connection that is not being closed.
    fn open_session_of(&self, link: ConnectionId) -> Option<SessionIndex> {
        self.open_connection(link)?.open_native().map(|native| native.session)
    }

    /// The bytes that end what a session is told; it hears nothing any more.
    fn last_words(&mut self, link: ConnectionId, close_code: u16, text: &str) -> Vec<u8> {
        let mut words = Vec::new();
        let Some(connection) = self.edge.connections.get_mut(link) else { return words };
        match &mut connection.transport {
            Transport::WebSocket(channel) => channel.close(close_code, text, &mut words),
            Transport::Response { is_closing } | Transport::Polls { is_closing } => {
                *is_closing = true;
                let session = connection.conversation.native().map(|native| native.session);
                let framing = session.map(|it| Manner::of(self.hub.encoding(it)).framing);
                if let Some(framing) = framing {
                    Self::encode_stream_end(framing, &mut words);
                }
            }
            Transport::Local { is_closing } => *is_closing = true,
            Transport::Http => {}
        }
        words
    }
}

pub(crate) fn check_filter(options: &SubscribeOptions) -> Result<(), Refusal> {
    options.filter.as_deref().map_or(Ok(()), |text| payload::filter::compile(text).map(drop))
}
