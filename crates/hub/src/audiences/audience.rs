//! Audiences: the sessions of a shard that see exactly the same stream.
//!
//! Everybody who subscribed with the same selectors, options and encoding is in one audience. Its
//! `members` are the sessions in step: they took everything up to the audience's last batch. A
//! session that is behind is counted in `population` only, and reads on by itself.

use std::hash::{BuildHasher, Hash};

use hashbrown::HashTable;
use model::{HashMap, RandomState, Selector};
use smallvec::SmallVec;

use crate::audiences::delta::Bases;
use crate::audiences::job::WorkIndex;
use crate::audiences::options::OptionsIndex;
use crate::tables::index::{AudienceIndex, Member, Slots};

/// What makes two subscriptions see the same stream.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AudienceKey {
    /// Sorted, without doubles.
    pub selectors: Box<[Selector]>,
    pub options: OptionsIndex,
}

/// The sessions that see exactly the same stream.
#[derive(Debug)]
pub(crate) struct Audience {
    pub key: AudienceKey,
    /// The sessions in step. While a batch is being sent, those before the work's cursor have it.
    pub members: SmallVec<[Member; 4]>,
    /// The batch being sent or gathered, if there is anything to send.
    pub work: Option<WorkIndex>,
    /// All its sessions, in step or behind.
    pub population: u32,
    /// Topics and patterns whose state has not arrived yet; reading starts at 0.
    pub waiting: u32,
}

impl Audience {
    /// Whether the topic named `topic` is part of the stream.
    pub(crate) fn selects(&self, topic: &str) -> bool {
        self.selects_plainly(topic)
            || self.key.selectors.iter().any(|s| s.has_wildcard() && s.matches(topic))
    }

    /// Whether the topic is named in it without a wildcard.
    fn selects_plainly(&self, topic: &str) -> bool {
        self.key.selectors.binary_search_by(|selector| selector.as_str().cmp(topic)).is_ok()
    }
}

/// The audiences of a shard, found by key.
#[derive(Debug, Default)]
pub(crate) struct AudienceTable {
    slots: Slots<Audience>,
    by_key: HashTable<u32>,
    hasher: RandomState,
    /// Memberships that are not in step: as long as there are any, recent deliveries are needed.
    pub behind: usize,
    /// What audiences with deltas were told last.
    pub bases: HashMap<AudienceIndex, Bases>,
}

impl AudienceTable {
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn find(&self, key: &AudienceKey) -> Option<AudienceIndex> {
        let hash = self.hasher.hash_one(key);
        let is_it =
            |index: &u32| self.slots.get(*index).is_some_and(|audience| audience.key == *key);
        self.by_key.find(hash, is_it).copied().map(AudienceIndex)
    }

    pub(crate) fn insert(&mut self, key: AudienceKey) -> AudienceIndex {
        let hash = self.hasher.hash_one(&key);
        let index = self.slots.insert(Audience {
            key,
            members: SmallVec::new(),
            work: None,
            population: 0,
            waiting: 0,
        });
        let (slots, hasher) = (&self.slots, &self.hasher);
        self.by_key.insert_unique(hash, index, |index| {
            hasher.hash_one(&slots.get(*index).expect("an indexed audience exists").key)
        });
        AudienceIndex(index)
    }

    /// Closes an audience: nobody finds it any more. Its place is kept until it is taken out of its topics.
    pub(crate) fn close(
        &mut self,
        index: AudienceIndex,
    ) -> Option<(AudienceKey, Option<WorkIndex>)> {
        let audience = self.slots.get_mut(index.0)?;
        let hash = self.hasher.hash_one(&audience.key);
        self.by_key.find_entry(hash, |found| *found == index.0).ok()?.remove();
        let selectors = std::mem::take(&mut audience.key.selectors);
        let key = AudienceKey { selectors, options: audience.key.options };
        Some((key, audience.work.take()))
    }

    /// Gives the place of a closed audience free.
    pub(crate) fn remove(&mut self, index: AudienceIndex) {
        self.slots.remove(index.0);
    }

    pub(crate) fn get(&self, index: AudienceIndex) -> Option<&Audience> {
        self.slots.get(index.0)
    }

    pub(crate) fn get_mut(&mut self, index: AudienceIndex) -> Option<&mut Audience> {
        self.slots.get_mut(index.0)
    }

    pub(crate) fn at(&self, index: AudienceIndex) -> &Audience {
        self.slots.get(index.0).expect("the slot holds an audience")
    }

    pub(crate) fn at_mut(&mut self, index: AudienceIndex) -> &mut Audience {
        self.slots.get_mut(index.0).expect("the slot holds an audience")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_audience_of_one_is_small() {
        assert!(size_of::<Option<Audience>>() <= 64, "{}", size_of::<Option<Audience>>());
    }
}
