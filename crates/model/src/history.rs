//! Asking for what is kept of a topic, a page at a time.

use crate::{Position, Publication, Sequence, TopicName};

/// A wish for a page of a topic's history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryQuery {
    /// Which topic.
    pub topic: TopicName,
    /// From where.
    pub start: HistoryStart,
    /// At most so many publications; the server has a bound of its own.
    pub limit: usize,
}

/// Where a page of a history begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistoryStart {
    /// After this sequence.
    After(Sequence),
    /// So that it ends before this sequence.
    Before(Sequence),
    /// So that it ends with the newest, this many.
    Last(u64),
    /// With the first that is not older than this, in milliseconds since 1970.
    Since(u64),
}

/// A page of a topic's history.
#[derive(Clone, Debug, PartialEq)]
pub struct HistoryPage {
    /// Where the topic stands.
    pub position: Position,
    /// The sequence that the page comes after; what is missing between is not kept any more.
    pub after: Sequence,
    /// The publications, oldest first.
    pub publications: Vec<Publication>,
}
