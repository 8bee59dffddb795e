//! The shards that follow topics at home here, and what they asked for.

use model::Sequence;

use crate::tables::index::{ShardIndex, TopicIndex};
use crate::topics::name_walk::Walk;

/// A follower whose mailbox was full, and the last sequence that it got.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lapped {
    pub(crate) shard: ShardIndex,
    pub(crate) topic: TopicIndex,
    pub(crate) after: Sequence,
}

/// How far another shard was told of the topics at home here that its pattern selects.
#[derive(Debug)]
pub(crate) struct Introducing {
    pub(crate) walk: Walk,
    /// The wish that is answered.
    pub(crate) serial: u64,
}
