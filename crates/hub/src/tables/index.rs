//! Small numbers that name things inside one shard instead of pointers.
//!
//! What comes and goes by itself (sessions, topics, works) is named by a place and a generation: the name
//! of one that is gone finds nothing, also when its place was given to another. Audiences and options
//! are counted by those who hold them, and go with the last one, so that a bare place is enough.

use std::hash::BuildHasher;
use std::num::NonZeroU32;

use foldhash::fast::FixedState;
use model::TopicName;

use crate::tables::chunks::{CHUNK, Chunks};

/// A shard's number on this node, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShardIndex(pub u16);

/// A place in a table and a generation of it: the name of one value, never given to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Slot {
    place: u32,
    generation: NonZeroU32,
}

impl Slot {
    /// The bare place. It names something only while whoever keeps it knows that the value is there.
    pub(crate) fn place(self) -> u32 {
        self.place
    }

    pub(crate) fn generation(self) -> NonZeroU32 {
        self.generation
    }

    /// The name that the place and the generation of another shard's topic stand for.
    pub(crate) fn of(place: u32, generation: NonZeroU32) -> Self {
        Self { place, generation }
    }
}

/// A session of a hub. The index of a closed session names no other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionIndex(pub(crate) Slot);

/// A session as its audiences list it: it takes itself out of them before its place is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member(u32);

impl SessionIndex {
    pub(crate) fn member(self) -> Member {
        Member(self.0.place())
    }
}

impl Member {
    pub(crate) fn place(self) -> u32 {
        self.0
    }
}

/// A topic of a hub. The index of a forgotten topic names no other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct TopicIndex(pub Slot);

impl TopicIndex {
    /// The name that every topic in its place would have if there were no generations: what the tests plant.
    pub(crate) fn of_place(self) -> Self {
        Self(Slot::of(self.0.place(), NonZeroU32::MIN))
    }
}

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

/// Values that come and go by themselves: each has a name of its own, while places are used again.
#[derive(Debug)]
pub(crate) struct SlotMap<T> {
    chunks: Vec<Chunk<T>>,
    free: Vec<u32>,
    len: usize,
}

/// Some places, found together: growing adds a chunk and moves nothing.
#[derive(Debug)]
struct Chunk<T> {
    values: Vec<Option<T>>,
    /// Of each place, the generation that is there, or that comes next.
    generations: Vec<NonZeroU32>,
}

impl<T> Chunk<T> {
    fn value(&self, slot: Slot) -> Option<&Option<T>> {
        let at = slot.place as usize % CHUNK;
        self.generations.get(at).filter(|generation| **generation == slot.generation)?;
        self.values.get(at)
    }

    fn value_mut(&mut self, slot: Slot) -> Option<&mut Option<T>> {
        let at = slot.place as usize % CHUNK;
        self.generations.get(at).filter(|generation| **generation == slot.generation)?;
        self.values.get_mut(at)
    }
}

impl<T> Default for SlotMap<T> {
    fn default() -> Self {
        Self { chunks: Vec::new(), free: Vec::new(), len: 0 }
    }
}

impl<T> SlotMap<T> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn insert(&mut self, value: T) -> Slot {
        self.len += 1;
        if let Some(place) = self.free.pop() {
            let (chunk, at) = (place as usize / CHUNK, place as usize % CHUNK);
            let chunk = &mut self.chunks[chunk];
            chunk.values[at] = Some(value);
            return Slot { place, generation: chunk.generations[at] };
        }
        let place = u32::try_from(self.end()).expect("fewer than 2^32 slots");
        if self.chunks.last().is_none_or(|last| last.values.len() == CHUNK) {
            let (values, generations) = (Vec::with_capacity(CHUNK), Vec::with_capacity(CHUNK));
            self.chunks.push(Chunk { values, generations });
        }
        let last = self.chunks.last_mut().expect("there is one with room");
        last.values.push(Some(value));
        last.generations.push(NonZeroU32::MIN);
        Slot { place, generation: NonZeroU32::MIN }
    }

    pub(crate) fn remove(&mut self, slot: Slot) -> Option<T> {
        let chunk = self.chunks.get_mut(slot.place as usize / CHUNK)?;
        let value = chunk.value_mut(slot)?.take()?;
        self.len -= 1;
        // A place that had all its generations is not used again.
        if let Some(next) = slot.generation.checked_add(1) {
            chunk.generations[slot.place as usize % CHUNK] = next;
            self.free.push(slot.place);
        }
        Some(value)
    }

    pub(crate) fn get(&self, slot: Slot) -> Option<&T> {
        self.chunks.get(slot.place as usize / CHUNK)?.value(slot)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, slot: Slot) -> Option<&mut T> {
        self.chunks.get_mut(slot.place as usize / CHUNK)?.value_mut(slot)?.as_mut()
    }

    /// One more than the greatest place that was ever in use.
    pub(crate) fn end(&self) -> usize {
        self.chunks.last().map_or(0, |last| (self.chunks.len() - 1) * CHUNK + last.values.len())
    }

    /// The value at a place, for whoever knows that it is there.
    pub(crate) fn get_at(&self, place: u32) -> Option<&T> {
        let chunk = self.chunks.get(place as usize / CHUNK)?;
        chunk.values.get(place as usize % CHUNK)?.as_ref()
    }

    /// The same, to be changed.
    pub(crate) fn get_at_mut(&mut self, place: u32) -> Option<&mut T> {
        let chunk = self.chunks.get_mut(place as usize / CHUNK)?;
        chunk.values.get_mut(place as usize % CHUNK)?.as_mut()
    }

    /// The name of the value at a place, for whoever knows that it is there.
    pub(crate) fn slot_at(&self, place: u32) -> Option<Slot> {
        let chunk = self.chunks.get(place as usize / CHUNK)?;
        let generation = *chunk.generations.get(place as usize % CHUNK)?;
        Some(Slot { place, generation })
    }
}

/// Values that somebody counts: a place is free, and may be used again, once nobody holds it.
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_never_given_to_another_value() {
        let mut map = SlotMap::default();
        let mut gone = Vec::new();
        for value in 0..1_000 {
            let slot = map.insert(value);
            assert_eq!((slot.place(), map.get(slot)), (0, Some(&value)));
            assert_eq!(map.remove(slot), Some(value));
            gone.push(slot);
        }
        let last = map.insert(1_000);
        for slot in gone {
            assert_eq!(map.get(slot), None);
            assert_eq!(map.remove(slot), None);
        }
        assert_eq!((map.get(last), map.len()), (Some(&1_000), 1));
    }

    #[test]
    fn a_place_that_had_all_its_generations_is_not_used_again() {
        let mut map = SlotMap::default();
        let first = map.insert(1);
        map.remove(first);
        map.chunks[0].generations[0] = NonZeroU32::MAX;
        let last = map.insert(2);
        assert_eq!(map.remove(last), Some(2));
        let next = map.insert(3);
        assert_eq!((next.place(), map.get(first), map.get(last)), (1, None, None));
        assert_eq!(map.len(), 1);
    }

    /// What `generations` keeps for each place: all that a session, a topic or a work costs more for a name of its own.
    #[test]
    fn a_generation_costs_four_bytes() {
        assert_eq!(size_of::<Option<NonZeroU32>>(), 4);
        assert_eq!(size_of::<Option<SessionIndex>>(), 8);
    }
}
