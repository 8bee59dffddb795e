//! How far the topics were looked for of a session that fell off the recent deliveries.

use crate::tables::index::AudienceIndex;
use crate::topics::name_walk::Walk;

/// How far a session's topics were looked for, of one audience.
#[derive(Debug)]
pub(crate) struct Rewinding {
    pub audience: AudienceIndex,
    /// Up to where it has everything.
    pub(crate) cursor: u64,
    /// Where it goes on when all are found.
    pub(crate) newest: u64,
    pub(crate) walk: Walk,
    /// Whether the recent deliveries do not reach back to the cursor.
    pub(crate) is_lapped: bool,
    /// Whether all topics so far are ones of which it is told the newest publication only.
    pub(crate) all_skip: bool,
}
