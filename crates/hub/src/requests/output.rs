//! What is to be done for requests, and what was counted.

use model::Asked;

use super::mail::{Outcome, RequestMail};
use crate::tables::connections::ConnectionId;
use crate::tables::index::ShardIndex;

/// What is to be done.
#[derive(Debug)]
pub enum RequestOutput<A> {
    /// Mail another shard.
    Mail(ShardIndex, RequestMail),
    /// Tell a handler of this shard.
    Tell {
        /// Its connection.
        link: ConnectionId,
        /// The request.
        asked: Asked,
    },
    /// Tell a handler that every shard knows of what it handles.
    Registered {
        /// Its connection.
        link: ConnectionId,
    },
    /// Tell whoever asked.
    Answer {
        /// Whoever asked.
        asker: A,
        /// What became of it; one of several, if there are more to come.
        outcome: Outcome,
        /// Whether others may answer, too.
        has_more: bool,
    },
    /// Tell whoever asked all that everybody has answered, or will not.
    AnswersEnd {
        /// Whoever asked.
        asker: A,
        /// How many answered.
        count: u64,
        /// How many did not.
        missing: u64,
    },
}

/// How often things happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCounters {
    /// Requests that were asked here.
    pub requests: u64,
    /// Of these, answered.
    pub answered: u64,
    /// Of these, refused in any way, deadlines included.
    pub refused: u64,
    /// Of these, not answered in time.
    pub timed_out: u64,
    /// Answers that came too late and were discarded.
    pub late_answers: u64,
    /// Requests that are open with handlers here.
    pub open: u64,
    /// Selectors that are handled on the node.
    pub handlers: u64,
}
