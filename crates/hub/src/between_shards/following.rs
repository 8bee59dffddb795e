//! What this shard asked other shards to tell of.

use crate::tables::index::AudienceIndex;
use crate::tables::places::SmallSet;

/// A pattern about which this shard asked all others.
#[derive(Debug, Default)]
pub(crate) struct Interest {
    pub(crate) audiences: SmallSet<AudienceIndex>,
    /// The number of the wish; an answer to an older one counts for nothing.
    pub(crate) serial: u64,
    /// Shards that have not told all they have yet.
    pub(crate) unanswered: u16,
}
