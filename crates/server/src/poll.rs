//! Sessions that are polled: a session without a connection of its own. Between polls it is one whose connection
//! takes nothing; the answer to a poll is kept until the next poll says that it arrived.

use std::time::Duration;

use access::Counted;
use engine::Io;
use hub::ConnectionId;
use protocol::native::{Encoding, Framing};

use crate::dialects::Conversation;
use crate::edge::{Connection, Poll, Polled, Transport};
use crate::encoder::Manner;
use crate::key::no_session;
use crate::reply::Asker;
use crate::shard::Shard;
use crate::stream::NewSession;

impl<I: Io> Shard<I> {
    /// Opens a session whose first poll this is.
    pub(crate) fn open_polled(&mut self, asker: Asker, new: NewSession, counted: Option<Counted>) {
        let (encoding, framing) = (Encoding::Lines, Framing::Bare);
        let manner =
            Manner { encoding, framing, is_deflated: false, has_fragments: false, has_ids: false };
        let heard_at = self.now.coarse_seconds();
        let link = self.edge.connections.open_unattached(Connection::new(heard_at));
        let native = self.open_session(link, manner, &new.principal);
        let poll = Poll::new(asker, counted);
        if let Some(connection) = self.connection(link) {
            connection.transport = Transport::Polls { is_closing: false };
            connection.conversation = Conversation::Native(native);
        }
        self.edge.transports.polls.insert(link, poll);
        self.begin_session(link, new);
    }

    /// Ends the sessions for which no poll waits.
    pub(crate) fn drop_unpolled(&mut self) {
        let is_unpolled = |link: &ConnectionId| {
            self.edge.transports.polls.get(link).is_some_and(|poll| !poll.is_waiting())
        };
        let all = self.edge.connections.iter_unattached().map(|(link, _)| link);
        let unpolled: Vec<ConnectionId> = all.filter(is_unpolled).collect();
        unpolled.into_iter().for_each(|link| self.drop_connection(link));
    }

    /// Takes a poll whose sender has every batch up to `batch`.
    pub(crate) fn poll(&mut self, link: ConnectionId, asker: Asker, batch: u64) {
        let now = self.now.coarse_seconds();
        if let Some(connection) = self.connection(link) {
            connection.heard_at = now;
        }
        let Some(polled) = self.edge.transports.polls.get_mut(&link) else {
            return self.answer_refusal(asker, &no_session());
        };
        match polled.handle_poll(asker, batch) {
            Polled::Again(asker, told) => return self.answer_lines(asker, &told),
            Polled::Lost(asker) => return self.answer_refusal(asker, &no_session()),
            Polled::Waits(None) => {}
            Polled::Waits(Some(given_up)) => self.answer_lines(given_up, b""),
        }
        if let Some(native) = self.open_connection(link).and_then(|open| open.conversation.native())
        {
            self.hub.handle_writable(native.session);
        }
    }

    /// Answers the poll of a session that was told something, unless the answer to its `subscribe` is about to
    /// come from a topic's home.
    pub(crate) fn answer_told_poll(&mut self, link: ConnectionId) {
        let native = self.open_connection(link).and_then(|open| open.conversation.native());
        if native.is_some_and(|native| !self.hub.awaits_topics(native.session)) {
            self.answer_poll(link);
        }
    }

    /// Answers the poll of a session that was told something, or waited long enough.
    pub(crate) fn answer_poll(&mut self, link: ConnectionId) {
        let now = self.now.coarse_seconds();
        let Some(polled) = self.edge.transports.polls.get_mut(&link) else { return };
        let Some((asker, lines)) = polled.take_answer() else { return };
        let lines = lines.to_vec();
        if let Some(connection) = self.connection(link) {
            connection.heard_at = now;
        }
        self.answer_lines(asker, &lines);
    }

    fn answer_lines(&mut self, asker: Asker, lines: &[u8]) {
        self.answer(asker, 200, "application/x-ndjson", lines);
    }

    /// Ends the waits of polls that got nothing, and the sessions of those who poll no more.
    pub(crate) fn sweep_polled(&mut self, now: u32) {
        let limits = &self.config.limits;
        let (wait, silence) = (limits.poll_ms, limits.poll_silence_ms);
        let (mut waited, mut gone) = (Vec::new(), Vec::new());
        for (link, connection) in self.edge.connections.iter_unattached() {
            let Some(polled) = self.edge.transports.polls.get(&link) else { continue };
            let quiet = Duration::from_secs(u64::from(now.saturating_sub(connection.heard_at)));
            match polled.is_waiting() {
                true if quiet >= wait => waited.push(link),
                false if quiet >= silence => gone.push(link),
                _ => {}
            }
        }
        waited.into_iter().for_each(|link| self.answer_poll(link));
        gone.into_iter().for_each(|link| self.drop_connection(link));
    }
}
