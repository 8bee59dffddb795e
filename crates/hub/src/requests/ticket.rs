//! The name of a pending request, which no other one of the process has.

use crate::tables::index::ShardIndex;

/// A pending request: the shard where it is, and its number there, which no other request of the process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket {
    pub(super) shard: ShardIndex,
    pub(super) number: u64,
}
