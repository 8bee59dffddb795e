//! Small numbers that name things inside one shard: four bytes instead of a pointer.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use model::TopicName;

use crate::chunks::Chunks;

/// A shard's number on this node, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShardIndex(pub u16);

/// A session's place in its hub. Used again after the session is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionIndex(pub u32);

/// A topic's place in its hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct TopicIndex(pub u32);

/// An audience's place in its hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct AudienceIndex(pub u32);

/// The shard that gives positions in `topic`: the same on every shard of the node.
pub fn home_shard(topic: &TopicName, shard_count: u16) -> ShardIndex {
    home_shard_of(topic.as_str(), shard_count)
}

/// The shard that a name is at home on.
pub fn home_shard_of(name: &str, shard_count: u16) -> ShardIndex {
    const SEED: u64 = 0x7469_6465_6761_7465;
    if shard_count == 1 {
        return ShardIndex(0);
    }
    let hash = FixedState::with_seed(SEED).hash_one(name);
    ShardIndex((hash % u64::from(shard_count)) as u16)
}

/// Values in slots that are used again, addressed by a four-byte index.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    values: Chunks<T>,
    free: Vec<u32>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { values: Chunks::default(), free: Vec::new() }
    }
}

impl<T> Slots<T> {
    pub(crate) fn len(&self) -> usize {
        self.values.end() - self.free.len()
    }

    pub(crate) fn insert(&mut self, value: T) -> u32 {
        let end = || u32::try_from(self.values.end()).expect("fewer than 2^32 slots");
        let index = self.free.pop().unwrap_or_else(end);
        self.values.put(index as usize, value);
        index
    }

    pub(crate) fn remove(&mut self, index: u32) -> Option<T> {
        let value = self.values.take(index as usize)?;
        self.free.push(index);
        Some(value)
    }

    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        self.values.get(index as usize)
    }

    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.values.get_mut(index as usize)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        self.values.iter_mut().map(|(index, value)| (index as u32, value))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.values.iter().map(|(index, value)| (index as u32, value))
    }
}
