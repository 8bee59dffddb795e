//! What both sides of the port know: what a bridge is told, and how much of it may be.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use model::{Event, Position, Publication, TopicName};

/// What a bridge is told.
#[derive(Clone, Debug, PartialEq)]
pub enum Told {
    /// The next publication of its topic. The payload is shared with everybody who keeps it.
    Publication {
        /// Where it was published.
        topic: TopicName,
        /// Its place there.
        position: Position,
        /// What was published.
        publication: Publication,
    },
    /// Anything else: gaps, and answers to commands.
    Event(Event),
    /// The session is over. Nothing follows.
    Closed,
}

/// Hears what a session is told, on the shard's thread: it hands it on and must not wait.
pub type Listener = Box<dyn FnMut(Told) + Send>;

/// What a session may be told in all since it began, answers aside: publications and gaps, and the bytes of payloads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Credit {
    /// How many.
    pub count: u64,
    /// Bytes. The one that goes beyond is still told.
    pub bytes: u64,
}

/// What both sides of a session read and write: what may be told, and whether the shard waits for more of that.
#[derive(Debug, Default)]
pub(crate) struct Window {
    count: AtomicU64,
    bytes: AtomicU64,
    is_waiting: AtomicBool,
}

impl Window {
    /// Whether more may be told than was.
    pub(crate) fn is_open(&self, told: Credit) -> bool {
        told.count < self.count.load(Ordering::SeqCst)
            && told.bytes < self.bytes.load(Ordering::SeqCst)
    }

    /// The same; if not, the other side calls once there is credit again.
    pub(crate) fn is_open_or_wait(&self, told: Credit) -> bool {
        if self.is_open(told) {
            return true;
        }
        self.is_waiting.store(true, Ordering::SeqCst);
        // Either it is open by now, or whoever opens it sees that somebody waits.
        self.is_open(told) && self.stop_waiting()
    }

    /// Whether somebody waited until now.
    pub(crate) fn stop_waiting(&self) -> bool {
        self.is_waiting.swap(false, Ordering::SeqCst)
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.is_waiting.load(Ordering::SeqCst)
    }

    /// Opens it further, never less far. Answers whether somebody waits for that.
    pub(crate) fn open(&self, to: Credit) -> bool {
        self.count.fetch_max(to.count, Ordering::SeqCst);
        self.bytes.fetch_max(to.bytes, Ordering::SeqCst);
        self.is_waiting()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_opens_by_count_and_by_bytes_and_whoever_waits_is_called() {
        let (window, told) = (Window::default(), |count, bytes| Credit { count, bytes });
        assert!(!window.is_open_or_wait(told(0, 0)));
        assert!(window.open(told(2, 10)), "somebody waits");
        assert!(window.stop_waiting() && !window.open(told(1, 1)), "nobody does");
        assert!(window.is_open_or_wait(told(1, 9)) && !window.is_waiting());
        assert!(!window.is_open_or_wait(told(2, 0)) && window.is_waiting());
        window.stop_waiting();
        assert!(!window.is_open_or_wait(told(0, 10)) && window.is_waiting());
        window.open(told(3, 50));
        assert!(window.is_open(told(2, 10)), "whatever the size of the next");
    }
}
