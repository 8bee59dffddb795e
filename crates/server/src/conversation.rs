//! What sessions say in the native dialect, and what the hub is asked for it.

use engine::Io;
use hub::{ConnectionId, SessionIndex};
use model::{CommandId, Event, Features, Hello, Refusal, SubscribeOptions};
use protocol::native::binary::IsBinary;
use protocol::native::{self, Framing, MessageBuilder, json};
use protocol::websocket::Heard;

use crate::dialect::Dialect;
use crate::dialects::Native;
use crate::edge::Commands;
use crate::encoder::Manner;
use crate::shard::Shard;

/// The server's version, told in `welcome`.
const VERSION: &str = env!("CARGO_PKG_VERSION");

impl<I: Io> Dialect<I> for Native {
    fn hear(shard: &mut Shard<I>, link: ConnectionId, heard: Heard<'_>) {
        shard.hear_native(link, heard);
    }

    fn handle_writable(shard: &mut Shard<I>, link: ConnectionId) {
        if let Some(native) = shard.open_connection(link).and_then(|it| it.conversation.native()) {
            shard.hub.handle_writable(native.session);
        }
    }

    fn handle_gone(&self, shard: &mut Shard<I>, link: ConnectionId) {
        tracing::debug!(session = shard.session_name(link), "session ended");
        shard.hub.close_session(self.session);
        shard.asking.forget(link, shard.now.elapsed);
        shard.end_session_devices(link);
        shard.subscribers.forget(link);
    }
}

impl<I: Io> Shard<I> {
    /// Hears a message of the native dialect.
    fn hear_native(&mut self, link: ConnectionId, heard: Heard<'_>) {
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
        manner.has_ids = features.has(Features::IDS);
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
}

pub(crate) fn check_filter(options: &SubscribeOptions) -> Result<(), Refusal> {
    options.filter.as_deref().map_or(Ok(()), |text| payload::filter::compile(text).map(drop))
}
