//! Connections that we are closing: each goes once it took what waits for it, or when its time is up. They are looked at when
//! something happened to them, not in every turn.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use engine::Io;
use hub::ConnectionId;
use model::RandomState;

use crate::byte_queue::ByteQueue;
use crate::connection::{Conversation, Native};
use crate::shard::Shard;

/// How long a connection that we close may take to receive the reason.
const CLOSE_PATIENCE: Duration = Duration::from_secs(5);

/// The connections that are being closed.
#[derive(Debug, Default)]
pub(crate) struct ClosingConnections {
    all: HashSet<ConnectionId, RandomState>,
    /// When the time of each is up, the earliest first; some of them may be gone.
    until: VecDeque<(Duration, ConnectionId)>,
    /// To be looked at in this turn.
    touched: Vec<ConnectionId>,
}

impl ClosingConnections {
    fn add(&mut self, link: ConnectionId, until: Duration) {
        self.touched.push(link);
        if self.all.insert(link) {
            self.until.push_back((until, link));
        }
    }

    /// Hears that something happened to a connection.
    pub(crate) fn touch(&mut self, link: ConnectionId) {
        if !self.all.is_empty() && self.all.contains(&link) {
            self.touched.push(link);
        }
    }

    /// Forgets a connection that is gone.
    pub(crate) fn forget(&mut self, link: ConnectionId) {
        self.all.remove(&link);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether something happened that was not looked at.
    pub(crate) fn is_touched(&self) -> bool {
        !self.touched.is_empty()
    }

    /// When the time of the next one is up.
    pub(crate) fn due_at(&self) -> Option<Duration> {
        self.until.front().map(|(until, _)| *until)
    }

    /// The next connection whose time is up.
    fn pop_due(&mut self, now: Duration) -> Option<ConnectionId> {
        loop {
            let (_, link) = self.until.pop_front_if(|(until, _)| *until <= now)?;
            if self.all.contains(&link) {
                return Some(link);
            }
        }
    }
}

impl<I: Io> Shard<I> {
    /// Lets a connection go whose last words were said, once they are taken. Input that waited has a turn, which finds that out.
    pub(crate) fn end_soon(&mut self, link: ConnectionId) {
        self.inputs.wake(link);
        self.close_soon(link);
    }

    /// Lets a connection go once it took what waits for it.
    pub(crate) fn close_soon(&mut self, link: ConnectionId) {
        let until = self.now.elapsed + CLOSE_PATIENCE;
        if self.open_connection(link).is_some() {
            self.closing.add(link, until);
        }
    }

    /// Drops the connections that took what waited for them, and those whose time is up.
    pub(crate) fn finish_closing(&mut self) {
        for link in std::mem::take(&mut self.closing.touched) {
            self.note_work(1);
            if self.has_taken_all(link) {
                self.drop_connection(link);
            }
        }
        while let Some(link) = self.closing.pop_due(self.now.elapsed) {
            self.note_work(1);
            self.drop_connection(link);
        }
    }

    /// Whether a connection that is being closed took what waited for it.
    fn has_taken_all(&self, link: ConnectionId) -> bool {
        let Some(connection) = self.open_connection(link) else { return false };
        self.closing.all.contains(&link)
            && match &connection.conversation {
                Conversation::Native(Native { session, .. }) => {
                    self.hub.answers_bytes(*session) == 0
                }
                Conversation::Echo(_) | Conversation::Device(_) | Conversation::Queries(_) => {
                    connection.conversation.unsent().is_none_or(ByteQueue::is_empty)
                }
                Conversation::Answering(answering) => {
                    answering.unsent.is_empty() && answering.is_whole
                }
                Conversation::Head(_) | Conversation::Body(_) => true,
            }
    }
}
