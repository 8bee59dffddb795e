//! The shards that follow topics at home here, and what they asked for.

use model::{HashMap, Selector, Sequence, TopicName};
use smallvec::SmallVec;

use crate::between_shards::mail::ToldFor;
use crate::tables::index::{ShardIndex, TopicIndex};
use crate::topics::name_walk::Walk;
use crate::topics::selector_tree::SelectorTree;

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

/// What other shards want of this one.
#[derive(Debug, Default)]
pub(crate) struct Followers {
    /// The patterns that they asked to be told of.
    pub interests: SelectorTree<ShardIndex>,
    /// Those that are being told of the topics at home here that a pattern of theirs selects.
    pub introducing: HashMap<(ShardIndex, Selector), Introducing>,
    /// Those that asked for topics at home here before these were live, each with the number of its wish.
    pub askers: HashMap<TopicIndex, Vec<(ShardIndex, u64)>>,
    lapped: Vec<Lapped>,
    /// The number of the newest wish that was heard of each.
    heard: Vec<u64>,
}

impl Followers {
    /// Hears a wish of another shard.
    pub(crate) fn note_heard(&mut self, from: ShardIndex, serial: u64) {
        let place = usize::from(from.0);
        if self.heard.len() <= place {
            self.heard.resize(place + 1, 0);
        }
        self.heard[place] = serial;
    }

    /// What another shard is told of because its patterns select it, as far as this one has heard of them.
    pub(crate) fn told_for_pattern(&self, to: ShardIndex) -> ToldFor {
        ToldFor::Pattern { heard: self.heard.get(usize::from(to.0)).copied().unwrap_or(0) }
    }

    /// The shards with a pattern that selects a topic.
    pub(crate) fn interested_in(&self, name: &TopicName) -> SmallVec<[ShardIndex; 8]> {
        let mut shards: SmallVec<[ShardIndex; 8]> = SmallVec::new();
        self.interests.visit_matches(name.as_str(), &mut |shard| {
            if !shards.contains(&shard) {
                shards.push(shard);
            }
        });
        shards
    }

    /// Notes that a follower's mailbox was full, and the last sequence that it got.
    pub(crate) fn lap(&mut self, shard: ShardIndex, topic: TopicIndex, after: Sequence) {
        self.lapped.push(Lapped { shard, topic, after });
    }

    /// Takes what a shard missed while its mailbox was full.
    pub(crate) fn take_lapped(&mut self, shard: ShardIndex) -> Vec<Lapped> {
        let (taken, kept) = self.lapped.iter().partition(|lapped| lapped.shard == shard);
        self.lapped = kept;
        taken
    }

    /// Forgets what a shard missed of a topic: it does not follow that any more, or is told all of it.
    pub(crate) fn forget_lapped(&mut self, shard: ShardIndex, topic: TopicIndex) {
        self.lapped.retain(|lapped| lapped.topic != topic || lapped.shard != shard);
    }

    /// Whether a follower waits for room in its mailbox.
    pub(crate) fn has_lapped(&self) -> bool {
        !self.lapped.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use crate::tables::index::Slot;

    #[test]
    fn each_shard_is_told_what_it_missed_once() {
        let topic = |place| TopicIndex(Slot::of(place, NonZeroU32::MIN));
        let mut followers = Followers::default();
        for (shard, place) in [(0, 1), (1, 1), (1, 2)] {
            followers.lap(ShardIndex(shard), topic(place), Sequence::START);
        }
        followers.forget_lapped(ShardIndex(1), topic(1));
        let taken = followers.take_lapped(ShardIndex(1));
        assert_eq!(taken.iter().map(|it| it.topic).collect::<Vec<_>>(), [topic(2)]);
        assert!(followers.take_lapped(ShardIndex(1)).is_empty() && followers.has_lapped());
        assert_eq!(followers.take_lapped(ShardIndex(0)).len(), 1);
        assert!(!followers.has_lapped());
    }

    #[test]
    fn what_a_shard_is_told_names_the_newest_wish_that_was_heard_of_it() {
        let mut followers = Followers::default();
        assert_eq!(followers.told_for_pattern(ShardIndex(3)), ToldFor::Pattern { heard: 0 });
        followers.note_heard(ShardIndex(3), 7);
        assert_eq!(followers.told_for_pattern(ShardIndex(3)), ToldFor::Pattern { heard: 7 });
        assert_eq!(followers.told_for_pattern(ShardIndex(2)), ToldFor::Pattern { heard: 0 });
    }
}
