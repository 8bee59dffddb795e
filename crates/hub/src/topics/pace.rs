//! When a topic with an interval may tell its next publication, and what it holds back until then.

use std::collections::VecDeque;
use std::time::Duration;

use model::Publication;

/// What a topic holds back.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    /// When it opens; it is open if `None`.
    pub opens_at: Option<Duration>,
    pub withheld: VecDeque<Publication>,
}

/// Publications that a gate holds; where there are more, it opens early.
pub(crate) const WITHHELD_MAX: usize = 4_096;
