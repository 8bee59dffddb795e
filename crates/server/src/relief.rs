//! Where a shard asks whether memory is left, and what it sheds when it is short ([`crate::memory`]).

use engine::Io;
use hub::{ConnectionId, SessionIndex};
use model::Refusal;
use protocol::websocket::Inbound;

use crate::dialects::Conversation;
use crate::memory::Pressure;
use crate::shard::Shard;

impl<I: Io> Shard<I> {
    /// Sheds some, if memory is short. Goes on with what the last turn began; begins anew after a while.
    pub(crate) fn relieve_memory(&mut self) {
        /// Of the sessions that take nothing, the share that is closed in one go.
        const CLOSED_SHARE: usize = 10;
        self.relief.elsewhere.handle_time(self.now.elapsed);
        let pressure = self.memory.pressure();
        if pressure == Pressure::None {
            self.hub.end_shedding();
            return;
        }
        if self.relief.begins_round(self.now.elapsed) {
            self.hub.begin_shedding();
            if pressure >= Pressure::SlowSessions {
                let stalled = self.hub.stalled_count();
                self.hub.shed_sessions(stalled.div_ceil(CLOSED_SHARE));
            }
        }
        self.hub.shed_history();
    }

    /// Whether memory is left for one more session.
    pub(crate) fn check_memory(&self) -> Result<(), Refusal> {
        /// What a session takes with its connection before it did anything.
        const SESSION_BYTES: usize = 4 << 10;
        self.memory.check(SESSION_BYTES, "open a session")
    }

    /// Whether memory is left for so many bytes that a command would have the server keep, here or on other shards.
    pub(crate) fn check_kept(&mut self, bytes: usize, what: &str) -> Result<(), Refusal> {
        if bytes > 0 && self.memory.is_bounded() {
            let elsewhere = self.memory.reserve(bytes, what)?;
            self.relief.elsewhere.keep(elsewhere);
        }
        Ok(())
    }

    /// Whether memory is left to tell a session `payload_bytes` beside what waits for its connection.
    pub(crate) fn check_telling(
        &self,
        session: SessionIndex,
        payload_bytes: usize,
        what: &str,
    ) -> Result<(), Refusal> {
        /// The buffer of answers doubles when it grows, and is in two places meanwhile; base64 is longer.
        const BYTES_PER_BYTE: usize = 3;
        let bytes = self.hub.answers_bytes(session) + payload_bytes;
        self.memory.check(bytes * BYTES_PER_BYTE, what)
    }

    /// Whether memory is left for `count` more bytes of a request that is arriving. A head that is arriving
    /// in few bytes finds room in any case: it may ask for the server's health.
    pub(crate) fn check_arriving(
        &mut self,
        link: ConnectionId,
        count: usize,
    ) -> Result<(), Refusal> {
        const SMALL_BYTES: usize = 4 << 10;
        let needed = match self.connection(link).map(|connection| &connection.conversation) {
            Some(Conversation::Body(arriving)) => arriving.body.room_needed(count),
            Some(Conversation::Head(early)) if early.len() + count > SMALL_BYTES => {
                early.len() + count
            }
            _ => return Ok(()),
        };
        match needed {
            0 => Ok(()),
            needed => self.memory.check(needed, "take the request"),
        }
    }

    /// Ends a WebSocket that has part of a message arriving for which no memory is left.
    pub(crate) fn check_partial(&mut self, link: ConnectionId) {
        const SMALL_BYTES: usize = 4 << 10;
        let partial_bytes =
            self.edge.transports.inbounds.get(link).map_or(0, Inbound::partial_bytes);
        if partial_bytes <= SMALL_BYTES {
            return;
        }
        if let Err(refusal) = self.memory.check(1, "take the rest of the message") {
            self.close(link, &refusal);
        }
    }
}
