//! Sessions that are polled: a session without a connection of its own. Between polls it is one whose connection
//! takes nothing; the answer to a poll is kept until the next poll says that it arrived.

use std::time::Duration;

use access::Counted;
use engine::Io;
use hub::ConnectionId;
use protocol::native::{Encoding, Framing};

use model::planted::{Fault, is_planted};

use crate::connection::{Connection, Conversation, Transport};
use crate::encoder::Manner;
use crate::key::no_session;
use crate::memory::Memory;
use crate::reply::Asker;
use crate::shard::Shard;
use crate::stream::NewSession;

/// State between a polled session and its polls.
#[derive(Debug)]
pub(crate) struct Poll {
    /// Its place among the connections of its client's address.
    pub counted: Option<Counted>,
    /// The poll that waits for something to tell.
    asker: Option<Asker>,
    /// What the next answer will say.
    unsent: Vec<u8>,
    /// The number of the last answer.
    batch: u64,
    /// The last answer, until it is known to have arrived.
    told: Vec<u8>,
}

impl<I: Io> Shard<I> {
    /// Opens a session whose first poll this is.
    pub(crate) fn open_polled(&mut self, asker: Asker, new: NewSession, counted: Option<Counted>) {
        let (encoding, framing) = (Encoding::Lines, Framing::Bare);
        let manner = Manner { encoding, framing, is_deflated: false, has_fragments: false };
        let heard_at = self.now.coarse_seconds();
        let link = self.connections.open_unattached(Connection::new(heard_at));
        let native = self.open_session(link, manner, &new.principal);
        let poll =
            Poll { counted, asker: Some(asker), unsent: Vec::new(), batch: 0, told: Vec::new() };
        if let Some(connection) = self.connection(link) {
            connection.transport = Transport::Polls { is_closing: false };
            connection.conversation = Conversation::Native(native);
        }
        self.transports.polls.insert(link, poll);
        self.begin_session(link, new);
    }

    /// Ends the sessions for which no poll waits.
    pub(crate) fn drop_unpolled(&mut self) {
        let is_unpolled = |link: &ConnectionId| {
            self.transports.polls.get(link).is_some_and(|poll| poll.asker.is_none())
        };
        let all = self.connections.iter_unattached().map(|(link, _)| link);
        let unpolled: Vec<ConnectionId> = all.filter(is_unpolled).collect();
        unpolled.into_iter().for_each(|link| self.drop_connection(link));
    }

    /// Takes a poll whose sender has every batch up to `batch`.
    pub(crate) fn poll(&mut self, link: ConnectionId, asker: Asker, batch: u64) {
        let now = self.now.coarse_seconds();
        if let Some(connection) = self.connection(link) {
            connection.heard_at = now;
        }
        let Some(polled) = self.transports.polls.get_mut(&link) else {
            return self.answer_refusal(asker, &no_session());
        };
        if batch + 1 == polled.batch && is_planted(Fault::PollsUnkept) {
            polled.batch = batch;
        } else if batch + 1 == polled.batch && !polled.told.is_empty() {
            let told = polled.told.clone();
            return self.answer_lines(asker, &told);
        }
        if batch != polled.batch {
            return self.answer_refusal(asker, &no_session());
        }
        polled.told = Vec::new();
        // Whoever polls twice at a time gave the first one up.
        if let Some(given_up) = polled.asker.replace(asker) {
            self.answer_lines(given_up, b"");
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
        let Some(polled) = self.transports.polls.get_mut(&link) else { return };
        let Some(asker) = polled.asker.take() else { return };
        polled.batch += 1;
        let mut lines = std::mem::take(&mut polled.unsent);
        let end = format!("{{\"type\":\"polled\",\"batch\":{}}}\n", polled.batch);
        lines.extend_from_slice(end.as_bytes());
        polled.told.clone_from(&lines);
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
        for (link, connection) in self.connections.iter_unattached() {
            let Some(polled) = self.transports.polls.get(&link) else { continue };
            let quiet = Duration::from_secs(u64::from(now.saturating_sub(connection.heard_at)));
            match polled.asker {
                Some(_) if quiet >= wait => waited.push(link),
                None if quiet >= silence => gone.push(link),
                _ => {}
            }
        }
        waited.into_iter().for_each(|link| self.answer_poll(link));
        gone.into_iter().for_each(|link| self.drop_connection(link));
    }

    /// Tells whoever polls that the session ended.
    pub(crate) fn end_polled(&mut self, link: ConnectionId) {
        if let Some(asker) = self.transports.polls.remove(&link).and_then(|poll| poll.asker) {
            self.answer_refusal(asker, &no_session());
        }
    }
}

/// What a polled session takes of what it is told; nothing while nobody polls.
pub(crate) fn take(
    polled: Option<&mut Poll>,
    bytes: &[u8],
    bytes_max: usize,
    memory: &Memory,
) -> hub::Sent {
    /// A little is taken in any case.
    const LITTLE_BYTES: usize = 4 << 10;
    /// Kept until it is known to have arrived, and on its way twice.
    const COPIES: usize = 4;
    match polled {
        Some(polled)
            if polled.asker.is_some()
                && polled.unsent.len() < bytes_max
                && (polled.unsent.len() + bytes.len() <= LITTLE_BYTES
                    || memory.has_room(COPIES * bytes.len())) =>
        {
            polled.unsent.extend_from_slice(bytes);
            hub::Sent::Taken(bytes.len())
        }
        Some(_) => hub::Sent::Taken(0),
        None => hub::Sent::Closed,
    }
}
