//! What is to happen later: the time, and whose turn it then is.
//!
//! A timer that is not wanted any more is not searched for: whoever set it remembers the time it
//! waits for, and one that comes at another time means nothing.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use crate::audiences::job::WorkIndex;
use crate::tables::index::{SessionIndex, TopicIndex};

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// A batch that was held back for its audience's interval.
    Work(WorkIndex),
    /// A topic whose publications were held back for its interval.
    Topic(TopicIndex),
    /// A topic whose oldest publication may be too old.
    Age(TopicIndex),
    /// A session that was sent as much as it may be for now.
    Session(SessionIndex),
}

/// All timers of a shard, the earliest first.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Duration, Timer)>>,
}

impl Timers {
    pub(crate) fn set(&mut self, at: Duration, timer: Timer) {
        self.heap.push(Reverse((at, timer)));
    }

    /// The next timer whose time has come.
    pub(crate) fn pop_due(&mut self, now: Duration) -> Option<(Duration, Timer)> {
        self.next().filter(|at| *at <= now)?;
        self.heap.pop().map(|Reverse(due)| due)
    }

    /// When the earliest is due.
    pub(crate) fn next(&self) -> Option<Duration> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }
}
