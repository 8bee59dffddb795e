//! The topics that a shard knows: those it is home to, and those its sessions read.

use std::collections::BTreeMap;
use std::hash::BuildHasher;

use hashbrown::HashTable;
use model::{Epoch, RandomState, Sequence, TopicName};
use smallvec::SmallVec;

use crate::between_shards::mail::TopicNumber;
use crate::tables::index::{AudienceIndex, ShardIndex, SlotMap, TopicIndex};
use crate::tables::places::{Places, SHORT_LIST};
use crate::topics::conflation_keys::Entities;
use crate::topics::history::History;
use crate::topics::pace::Gate;

/// One topic as this shard knows it.
#[derive(Debug)]
pub(crate) struct Topic {
    pub name: TopicName,
    /// Its number in binary records, the same on all shards; known once it is live.
    pub number: u32,
    /// Which of the topics that had this number at its home it is; 0 until it is live.
    pub home_generation: u32,
    pub epoch: EpochIndex,
    pub policy: PolicyIndex,
    /// The number of the `Follow` sent for it to its home; an answer to an older one is stale.
    pub follow_serial: u64,
    /// Whether epoch, head and history are known, so that reading can start.
    pub is_live: bool,
    /// The newest sequence known here.
    pub head: Sequence,
    /// Delivery number of the newest publication or loss that this shard's readers were given.
    pub newest_delivery: u64,
    /// Allocated when there is something to keep.
    pub history: Option<Box<History>>,
    /// What few topics have.
    pub rare: Option<Box<Rare>>,
    /// The audiences that read it.
    pub readers: SmallVec<[AudienceIndex; 4]>,
    /// The shards that read it, at its home.
    pub followers: SmallVec<[Follower; 4]>,
}

/// What few topics have: an interval, a conflation key, many readers.
#[derive(Debug, Default)]
pub(crate) struct Rare {
    pub gate: Gate,
    pub entities: Entities,
    /// Where each of very many readers stands in the list.
    reader_places: Places<AudienceIndex>,
    pub lateness: Lateness,
}

/// How long after its time a topic's publications were told at most, and until when that went on. A reader that
/// keeps no positions but a time may lack what was told late; it goes back so much further.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lateness {
    most_ms: u64,
    until_ms: u64,
}

impl Lateness {
    /// What is told sooner than this is not late: readers go back further anyway.
    const LATE_MS: u64 = 1_000;

    /// Whether what was published at `unix_ms` is told late at `now_ms`.
    fn is_late(unix_ms: u64, now_ms: u64) -> bool {
        now_ms.saturating_sub(unix_ms) > Self::LATE_MS
    }

    /// How much further a reader goes back that has everything before `unix_ms`.
    pub(crate) fn at(self, unix_ms: u64) -> u64 {
        if unix_ms <= self.until_ms { self.most_ms } else { 0 }
    }

    /// The greater of both.
    fn or(self, other: Self) -> Self {
        Self {
            most_ms: self.most_ms.max(other.most_ms),
            until_ms: self.until_ms.max(other.until_ms),
        }
    }
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

impl EpochIndex {
    /// Of no topic.
    pub(crate) const NONE: Self = Self(u16::MAX);
}

/// Which of a server's policies goes for a topic: its place among the rules, or after them where none selects the topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyIndex(pub(crate) u16);

impl Topic {
    /// What shards call it among each other.
    pub(crate) fn home_number(&self) -> TopicNumber {
        TopicNumber { number: self.number, generation: self.home_generation }
    }

    pub(crate) fn rare_mut(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// Lets an audience read it; answers whether it is new to it.
    pub(crate) fn add_reader(&mut self, audience: AudienceIndex) -> bool {
        if self.rare.is_none() && self.readers.len() < SHORT_LIST {
            return Places::default().insert(&mut self.readers, audience);
        }
        let places = &mut self.rare.get_or_insert_default().reader_places;
        places.insert(&mut self.readers, audience)
    }

    /// Lets an audience read it no more; answers whether it did.
    pub(crate) fn remove_reader(&mut self, audience: AudienceIndex) -> bool {
        match &mut self.rare {
            Some(rare) => rare.reader_places.remove(&mut self.readers, audience),
            None => Places::default().remove(&mut self.readers, audience),
        }
    }

    pub(crate) fn is_read_by(&self, audience: AudienceIndex) -> bool {
        match &self.rare {
            Some(rare) => rare.reader_places.contains(&self.readers, audience),
            None => self.readers.contains(&audience),
        }
    }

    /// How late its publications were told.
    pub(crate) fn lateness(&self) -> Lateness {
        self.rare.as_ref().map_or(Lateness::default(), |rare| rare.lateness)
    }

    /// Notes that what was published at `unix_ms` is told now.
    pub(crate) fn note_told(&mut self, unix_ms: u64, now_ms: u64) {
        if Lateness::is_late(unix_ms, now_ms) {
            self.note_lateness(Lateness { most_ms: now_ms - unix_ms, until_ms: now_ms });
        }
    }

    /// Notes how late another shard told its publications.
    pub(crate) fn note_lateness(&mut self, lateness: Lateness) {
        if lateness != Lateness::default() {
            let rare = self.rare_mut();
            rare.lateness = rare.lateness.or(lateness);
        }
    }

    /// Everything after this is in the history.
    pub(crate) fn in_memory_after(&self) -> Sequence {
        self.history.as_deref().and_then(History::kept_after).unwrap_or(self.head)
    }

    /// After what the newest `count` publications come. Where memory holds fewer, the others are taken to be dense: so it is where
    /// this node numbers, and elsewhere the place is among them.
    pub(crate) fn before_newest(&self, count: u64) -> Sequence {
        let Ok(wanted @ 1..) = usize::try_from(count) else { return self.head.back(count) };
        let history = self.history.as_deref();
        let held = history.map_or(0, History::len) as u64;
        let in_memory = history.and_then(|history| history.before_newest(wanted));
        in_memory.unwrap_or_else(|| self.in_memory_after().back(count - held))
    }

    /// How many publications come after one sequence, through another; of those that memory does not hold, at most.
    pub(crate) fn count_between(&self, after: Sequence, through: Sequence) -> u64 {
        let history = self.history.as_deref();
        let held = history.map_or(0, |history| history.count_between(after, through));
        held + self.in_memory_after().min(through).count_after(after)
    }

    /// Whether anything was ever published to it, so that patterns select it.
    pub(crate) fn is_revealed(&self) -> bool {
        self.head > Sequence::START
    }
}

/// The topics of a shard, found by name, by number and in order of name.
#[derive(Debug, Default)]
pub(crate) struct TopicTable {
    // The indices of names and numbers list bare places: a topic is taken out of them when it is forgotten.
    slots: SlotMap<Topic>,
    by_name: HashTable<u32>,
    hasher: RandomState,
    /// Of the topics that this shard follows elsewhere.
    by_number: HashTable<u32>,
    /// Those that were ever published to, for patterns and listings.
    revealed: BTreeMap<TopicName, u32>,
    epochs: Vec<Epoch>,
    /// Payload bytes in all histories.
    history_bytes: u64,
    /// How often a topic had another reader, or one less.
    pub readers_changed: u64,
    /// The topic at which shedding histories goes on, while a round of that is under way.
    pub shedding: Option<u32>,
}

fn change_counted<R>(
    history: &mut History,
    bytes: &mut u64,
    change: impl FnOnce(&mut History) -> R,
) -> R {
    *bytes -= history.bytes() as u64;
    let result = change(history);
    *bytes += history.bytes() as u64;
    result
}

impl TopicTable {
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn find(&self, name: &str) -> Option<TopicIndex> {
        let hash = self.hasher.hash_one(name);
        let is_it = |place: &u32| {
            self.slots.get_at(*place).is_some_and(|topic| topic.name.as_str() == name)
        };
        self.by_name.find(hash, is_it).map(|place| self.index_at(*place))
    }

    /// The topic at a place, if there is one.
    pub(crate) fn find_at(&self, place: u32) -> Option<TopicIndex> {
        self.slots.get_at(place)?;
        self.slots.slot_at(place).map(TopicIndex)
    }

    fn index_at(&self, place: u32) -> TopicIndex {
        TopicIndex(self.slots.slot_at(place).expect("an indexed topic exists"))
    }

    pub(crate) fn find_number(&self, number: TopicNumber) -> Option<TopicIndex> {
        let is_it =
            |place: &u32| self.slots.get_at(*place).is_some_and(|t| t.home_number() == number);
        let hash = self.hasher.hash_one(number.number);
        self.by_number.find(hash, is_it).map(|place| self.index_at(*place))
    }

    pub(crate) fn insert(&mut self, topic: Topic) -> TopicIndex {
        let hash = self.hasher.hash_one(topic.name.as_str());
        let index = self.slots.insert(topic);
        let (slots, hasher) = (&self.slots, &self.hasher);
        self.by_name.insert_unique(hash, index.place(), |place| {
            let topic = slots.get_at(*place).expect("an indexed topic exists");
            hasher.hash_one(topic.name.as_str())
        });
        TopicIndex(index)
    }

    pub(crate) fn remove(&mut self, index: TopicIndex) {
        let Some(topic) = self.slots.remove(index.0) else { return };
        self.history_bytes -= topic.history.as_ref().map_or(0, |history| history.bytes() as u64);
        let hash = self.hasher.hash_one(topic.name.as_str());
        if let Ok(entry) = self.by_name.find_entry(hash, |found| *found == index.0.place()) {
            entry.remove();
        }
        let hash = self.hasher.hash_one(topic.number);
        if let Ok(entry) = self.by_number.find_entry(hash, |found| *found == index.0.place()) {
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

    /// Changes a topic's history, made if there is none. Nobody changes one elsewhere: the bytes of all are counted.
    pub(crate) fn change_history<R>(
        &mut self,
        index: TopicIndex,
        change: impl FnOnce(&mut History) -> R,
    ) -> R {
        let topic = self.slots.get_mut(index.0).expect("the slot holds a topic");
        change_counted(topic.history.get_or_insert_default(), &mut self.history_bytes, change)
    }

    /// The same with the history at a place, if there is one.
    pub(crate) fn change_history_at<R>(
        &mut self,
        place: u32,
        change: impl FnOnce(PolicyIndex, &mut History) -> R,
    ) -> Option<R> {
        let topic = self.slots.get_at_mut(place)?;
        let (policy, history) = (topic.policy, topic.history.as_deref_mut()?);
        let change = |history: &mut History| change(policy, history);
        Some(change_counted(history, &mut self.history_bytes, change))
    }

    /// Payload bytes in all histories.
    pub(crate) fn history_bytes(&self) -> u64 {
        self.history_bytes
    }

    /// One more than the greatest place of a topic.
    pub(crate) fn end(&self) -> u32 {
        self.slots.end() as u32
    }

    /// The topic in a slot that is known to be in use.
    pub(crate) fn at(&self, index: TopicIndex) -> &Topic {
        self.slots.get(index.0).expect("the slot holds a topic")
    }

    /// Mutable access to the topic in a slot.
    pub(crate) fn at_mut(&mut self, index: TopicIndex) -> &mut Topic {
        self.slots.get_mut(index.0).expect("the slot holds a topic")
    }

    pub(crate) fn set_number(&mut self, index: TopicIndex, number: TopicNumber) {
        let topic = self.at_mut(index);
        (topic.number, topic.home_generation) = (number.number, number.generation);
        let (slots, hasher) = (&self.slots, &self.hasher);
        self.by_number.insert_unique(hasher.hash_one(number.number), index.0.place(), |place| {
            hasher.hash_one(slots.get_at(*place).expect("an indexed topic exists").number)
        });
    }

    /// Lets patterns and listings find a topic; answers whether they did not before.
    pub(crate) fn reveal(&mut self, index: TopicIndex) -> bool {
        let name = self.at(index).name.clone();
        self.revealed.insert(name, index.0.place()).is_none()
    }

    /// The revealed topics whose names are at or after `from`, in order of name.
    pub(crate) fn revealed_from<'a>(
        &'a self,
        from: &str,
    ) -> impl Iterator<Item = (&'a TopicName, TopicIndex)> + use<'a> {
        let from: (std::ops::Bound<&str>, std::ops::Bound<&str>) =
            (std::ops::Bound::Included(from), std::ops::Bound::Unbounded);
        self.revealed.range::<str, _>(from).map(|(name, place)| (name, self.index_at(*place)))
    }

    /// The short name of an epoch; there are as many as backbones had lives.
    pub(crate) fn intern_epoch(&mut self, epoch: &Epoch) -> EpochIndex {
        let index = self.epochs.iter().position(|known| known == epoch).unwrap_or_else(|| {
            self.epochs.push(epoch.clone());
            self.epochs.len() - 1
        });
        let index = u16::try_from(index).ok().map(EpochIndex).filter(|it| *it != EpochIndex::NONE);
        index.expect("fewer than 65,535 epochs in a process")
    }

    pub(crate) fn epoch(&self, index: EpochIndex) -> &Epoch {
        &self.epochs[usize::from(index.0)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_is_small() {
        assert!(size_of::<Option<Topic>>() <= 112, "{}", size_of::<Option<Topic>>());
    }

    /// A topic without the generation that it has at its home.
    struct Ungenerated {
        _name: TopicName,
        _number: u32,
        _indices: (EpochIndex, PolicyIndex),
        _follow_serial: u64,
        _is_live: bool,
        _head: Sequence,
        _newest_delivery: u64,
        _history: Option<Box<History>>,
        _rare: Option<Box<Rare>>,
        _readers: SmallVec<[AudienceIndex; 4]>,
        _followers: SmallVec<[Follower; 4]>,
    }

    #[test]
    fn the_generation_of_a_number_takes_no_room() {
        assert_eq!(size_of::<Topic>(), size_of::<Ungenerated>());
    }
}
