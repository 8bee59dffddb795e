//! What this shard asked other shards to tell of, and for whom.

use model::{HashMap, Selector};

use crate::tables::index::AudienceIndex;
use crate::tables::places::SmallSet;
use crate::topics::selector_tree::SelectorTree;

/// A pattern about which this shard asked all others.
#[derive(Debug, Default)]
pub(crate) struct Interest {
    pub(crate) audiences: SmallSet<AudienceIndex>,
    /// The number of the wish; an answer to an older one counts for nothing.
    pub(crate) serial: u64,
    /// Shards that have not told all they have yet.
    pub(crate) unanswered: u16,
}

/// What a shard follows on others.
#[derive(Debug, Default)]
pub(crate) struct Following {
    /// Audiences of this shard by their patterns.
    pub patterns: SelectorTree<AudienceIndex>,
    /// The patterns that other shards were asked about.
    pub interests: HashMap<Selector, Interest>,
    /// How many `Follow` and `FollowSelector` were sent.
    asked: u64,
}

impl Following {
    /// The number of the next wish, which no other one has.
    pub(crate) fn next_serial(&mut self) -> u64 {
        self.asked += 1;
        self.asked
    }

    /// Whether a home that had heard of the wishes up to `heard` knew that this shard asks for a pattern.
    pub(crate) fn was_heard(&self, pattern: &Selector, heard: u64) -> bool {
        self.interests.get(pattern).is_some_and(|interest| interest.serial <= heard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_that_is_asked_for_again_was_not_heard_of() {
        let pattern = Selector::parse("a/#", &model::Limits::default()).expect("valid");
        let mut following = Following::default();
        assert!(!following.was_heard(&pattern, u64::MAX));
        for _ in 0..2 {
            let before = following.asked;
            let serial = following.next_serial();
            let interest = Interest { serial, ..Interest::default() };
            following.interests.insert(pattern.clone(), interest);
            assert!(!following.was_heard(&pattern, before));
            assert!(following.was_heard(&pattern, serial));
            following.interests.remove(&pattern);
        }
    }
}
