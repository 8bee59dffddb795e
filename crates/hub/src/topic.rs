//! The topics that a shard knows: those it is home to, and those its sessions read.

use std::collections::BTreeMap;
use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use model::{Epoch, Sequence, TopicName};
use smallvec::SmallVec;

use crate::entity::Entities;
use crate::gate::Gate;
use crate::history::History;
use crate::index::{AudienceIndex, ShardIndex, Slots, TopicIndex};

/// One topic as this shard knows it.
#[derive(Debug)]
pub(crate) struct Topic {
    pub name: TopicName,
    /// Its number in binary records, the same on all shards; known once it is live.
    pub number: u32,
    pub epoch: EpochIndex,
    pub policy: PolicyIndex,
    /// The number of the `Follow` sent for it to its home; an answer to an older one is stale.
    pub follow_serial: u32,
    /// Whether epoch, head and history are known, so that reading can start.
    pub is_live: bool,
    /// The newest sequence known here.
    pub head: Sequence,
    /// Delivery number of the newest delivery of this topic on this shard.
    pub newest_delivery: u64,
    /// Deliveries up to this number are of an earlier topic in the same slot.
    pub since: u64,
    /// Allocated when there is something to keep.
    pub history: Option<Box<History>>,
    /// What few topics have.
    pub rare: Option<Box<Rare>>,
    /// The audiences that read it.
    pub readers: SmallVec<[AudienceIndex; 4]>,
    /// The shards that read it, at its home.
    pub followers: SmallVec<[Follower; 4]>,
}

/// What few topics have: an interval, a conflation key.
#[derive(Debug, Default)]
pub(crate) struct Rare {
    pub gate: Gate,
    pub entities: Entities,
}

/// A shard that reads a topic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Follower {
    pub shard: ShardIndex,
    /// Whether its mailbox was full: it gets the rest from history once there is room.
    pub is_lapped: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EpochIndex(pub u16);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PolicyIndex(pub u16);

impl Topic {
    pub(crate) fn rare_mut(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// Whether anything was ever published to it, so that patterns select it.
    pub(crate) fn is_revealed(&self) -> bool {
        self.head > Sequence::START
    }
}

/// The topics of a shard, found by name, by number and in order of name.
#[derive(Debug, Default)]
pub(crate) struct TopicTable {
    slots: Slots<Topic>,
    by_name: HashTable<u32>,
    hasher: RandomState,
    /// Of the topics that this shard follows elsewhere.
    by_number: HashTable<u32>,
    /// Those that were ever published to, for patterns and listings.
    revealed: BTreeMap<TopicName, TopicIndex>,
    epochs: Vec<Epoch>,
}

impl TopicTable {
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn find(&self, name: &str) -> Option<TopicIndex> {
        let hash = self.hasher.hash_one(name);
        let is_it =
            |index: &u32| self.slots.get(*index).is_some_and(|topic| topic.name.as_str() == name);
        self.by_name.find(hash, is_it).copied().map(TopicIndex)
    }

    pub(crate) fn find_number(&self, number: u32) -> Option<TopicIndex> {
        let is_it = |index: &u32| self.slots.get(*index).is_some_and(|t| t.number == number);
        self.by_number.find(self.hasher.hash_one(number), is_it).copied().map(TopicIndex)
    }

    pub(crate) fn insert(&mut self, topic: Topic) -> TopicIndex {
        let hash = self.hasher.hash_one(topic.name.as_str());
        let index = self.slots.insert(topic);
        let (slots, hasher) = (&self.slots, &self.hasher);
        self.by_name.insert_unique(hash, index, |index| {
            let topic = slots.get(*index).expect("an indexed topic exists");
            hasher.hash_one(topic.name.as_str())
        });
        TopicIndex(index)
    }

    pub(crate) fn remove(&mut self, index: TopicIndex) {
        let Some(topic) = self.slots.remove(index.0) else { return };
        let hash = self.hasher.hash_one(topic.name.as_str());
        if let Ok(entry) = self.by_name.find_entry(hash, |found| *found == index.0) {
            entry.remove();
        }
        let hash = self.hasher.hash_one(topic.number);
        if let Ok(entry) = self.by_number.find_entry(hash, |found| *found == index.0) {
            entry.remove();
        }
        self.revealed.remove(&topic.name);
    }

    pub(crate) fn get(&self, index: TopicIndex) -> Option<&Topic> {
        self.slots.get(index.0)
    }

    pub(crate) fn get_mut(&mut self, index: TopicIndex) -> Option<&mut Topic> {
        self.slots.get_mut(index.0)
    }

    /// Every history there is, with its topic's policy.
    pub(crate) fn histories_mut(&mut self) -> impl Iterator<Item = (PolicyIndex, &mut History)> {
        let topics = self.slots.iter_mut();
        topics.filter_map(|(_, topic)| Some((topic.policy, topic.history.as_deref_mut()?)))
    }

    /// The topic in a slot that is known to be in use.
    pub(crate) fn at(&self, index: TopicIndex) -> &Topic {
        self.slots.get(index.0).expect("the slot holds a topic")
    }

    /// The same, to be changed.
    pub(crate) fn at_mut(&mut self, index: TopicIndex) -> &mut Topic {
        self.slots.get_mut(index.0).expect("the slot holds a topic")
    }

    pub(crate) fn set_number(&mut self, index: TopicIndex, number: u32) {
        self.at_mut(index).number = number;
        let (slots, hasher) = (&self.slots, &self.hasher);
        self.by_number.insert_unique(hasher.hash_one(number), index.0, |index| {
            hasher.hash_one(slots.get(*index).expect("an indexed topic exists").number)
        });
    }

    pub(crate) fn reveal(&mut self, index: TopicIndex) {
        let name = self.at(index).name.clone();
        self.revealed.insert(name, index);
    }

    /// The revealed topics whose names are at or after `from`, in order of name.
    pub(crate) fn revealed_from<'a>(
        &'a self,
        from: &str,
    ) -> impl Iterator<Item = (&'a TopicName, TopicIndex)> {
        let from: (std::ops::Bound<&str>, std::ops::Bound<&str>) =
            (std::ops::Bound::Included(from), std::ops::Bound::Unbounded);
        self.revealed.range::<str, _>(from).map(|(name, index)| (name, *index))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Topic> {
        self.slots.iter().map(|(_, topic)| topic)
    }

    /// The short name of an epoch; there are as many as backbones had lives.
    pub(crate) fn intern_epoch(&mut self, epoch: &Epoch) -> EpochIndex {
        let index = self.epochs.iter().position(|known| known == epoch).unwrap_or_else(|| {
            self.epochs.push(epoch.clone());
            self.epochs.len() - 1
        });
        EpochIndex(u16::try_from(index).expect("fewer than 65,536 epochs in a process"))
    }

    pub(crate) fn epoch(&self, index: EpochIndex) -> &Epoch {
        &self.epochs[usize::from(index.0)]
    }
}
