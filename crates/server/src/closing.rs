//! Connections that we are closing: each goes once it took what waits for it, or when its time is up.

use engine::Io;
use hub::ConnectionId;

use crate::byte_queue::ByteQueue;
use crate::dialects::{Conversation, Native};
use crate::shard::Shard;

impl<I: Io> Shard<I> {
    /// Lets a connection go whose last words were said, once they are taken.
    pub(crate) fn end_soon(&mut self, link: ConnectionId) {
        self.edge.end_soon(link, self.now.elapsed);
    }

    /// Lets a connection go once it took what waits for it.
    pub(crate) fn close_soon(&mut self, link: ConnectionId) {
        self.edge.close_soon(link, self.now.elapsed);
    }

    /// Drops the connections that took what waited for them, and those whose time is up.
    pub(crate) fn finish_closing(&mut self) {
        for link in self.edge.closing.take_touched() {
            self.note_work(1);
            if self.has_taken_all(link) {
                self.drop_connection(link);
            }
        }
        while let Some(link) = self.edge.closing.pop_due(self.now.elapsed) {
            self.note_work(1);
            self.drop_connection(link);
        }
    }

    /// Whether a connection that is being closed took what waited for it.
    fn has_taken_all(&self, link: ConnectionId) -> bool {
        let Some(connection) = self.open_connection(link) else { return false };
        self.edge.closing.contains(link)
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
