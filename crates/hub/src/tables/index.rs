//! Small numbers that name things inside one shard instead of pointers.
//!
//! What comes and goes by itself (sessions, topics, works) is named by a place and a generation: the name
//! of one that is gone finds nothing, also when its place was given to another. Audiences and options
//! are counted by those who hold them, and go with the last one, so that a bare place is enough.

use std::hash::BuildHasher;
use std::num::NonZeroU32;
use std::ops::Deref;

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

/// Values that come and go by themselves, at places that the caller chooses: each has a name of its own.
#[derive(Debug)]
pub(crate) struct SlotTable<T> {
    chunks: Vec<Chunk<T>>,
    len: usize,
}

/// Values that come and go by themselves: each has a name of its own, while places are used again.
#[derive(Debug)]
pub(crate) struct SlotMap<T> {
    table: SlotTable<T>,
    free: Vec<u32>,
}

/// Some places, found together: growing adds a chunk and moves nothing.
#[derive(Debug)]
struct Chunk<T> {
    values: Vec<Option<T>>,
    /// Of each place, the generation that is there, or that comes next; none if it had all of them.
    generations: Vec<Option<NonZeroU32>>,
}

impl<T> Chunk<T> {
    fn value(&self, slot: Slot) -> Option<&Option<T>> {
        let at = slot.place as usize % CHUNK;
        self.generations.get(at).filter(|generation| **generation == Some(slot.generation))?;
        self.values.get(at)
    }

    fn value_mut(&mut self, slot: Slot) -> Option<&mut Option<T>> {
        let at = slot.place as usize % CHUNK;
        self.generations.get(at).filter(|generation| **generation == Some(slot.generation))?;
        self.values.get_mut(at)
    }

    fn resize(&mut self, len: usize) {
        self.values.resize_with(len, || None);
        self.generations.resize(len, Some(NonZeroU32::MIN));
    }
}

impl<T> Default for SlotTable<T> {
    fn default() -> Self {
        Self { chunks: Vec::new(), len: 0 }
    }
}

impl<T> SlotTable<T> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Puts a value at a place; gives it back if the place had all its generations.
    ///
    /// # Panics
    /// If a value is there.
    pub(crate) fn insert_at(&mut self, place: u32, value: T) -> Result<Slot, T> {
        let (chunk, at) = (place as usize / CHUNK, place as usize % CHUNK);
        while self.chunks.len() <= chunk {
            if let Some(last) = self.chunks.last_mut() {
                last.resize(CHUNK);
            }
            let (values, generations) = (Vec::with_capacity(CHUNK), Vec::with_capacity(CHUNK));
            self.chunks.push(Chunk { values, generations });
        }
        let chunk = &mut self.chunks[chunk];
        if chunk.values.len() <= at {
            chunk.resize(at + 1);
        }
        assert!(chunk.values[at].is_none(), "a place is free before it is used again");
        let Some(generation) = chunk.generations[at] else { return Err(value) };
        chunk.values[at] = Some(value);
        self.len += 1;
        Ok(Slot { place, generation })
    }

    /// Takes a value out; tells with it whether its place may be used again.
    pub(crate) fn remove(&mut self, slot: Slot) -> Option<(T, bool)> {
        let chunk = self.chunks.get_mut(slot.place as usize / CHUNK)?;
        let value = chunk.value_mut(slot)?.take()?;
        self.len -= 1;
        let next = slot.generation.checked_add(1);
        chunk.generations[slot.place as usize % CHUNK] = next;
        Some((value, next.is_some()))
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

    /// Mutable access to the value at a place.
    pub(crate) fn get_at_mut(&mut self, place: u32) -> Option<&mut T> {
        let chunk = self.chunks.get_mut(place as usize / CHUNK)?;
        chunk.values.get_mut(place as usize % CHUNK)?.as_mut()
    }

    /// The name of the value at a place, for whoever knows that it is there.
    pub(crate) fn slot_at(&self, place: u32) -> Option<Slot> {
        let chunk = self.chunks.get(place as usize / CHUNK)?;
        let generation = (*chunk.generations.get(place as usize % CHUNK)?)?;
        Some(Slot { place, generation })
    }

    /// All values with their names, in order of place.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Slot, &T)> {
        let places =
            self.chunks.iter().flat_map(|chunk| chunk.values.iter().zip(&chunk.generations));
        (0..).zip(places).filter_map(|(place, (value, generation))| {
            Some((Slot { place, generation: (*generation)? }, value.as_ref()?))
        })
    }

    /// The next value at a place has its last generation: what would take years.
    #[cfg(test)]
    pub(crate) fn use_up(&mut self, place: u32) {
        let (chunk, at) = (place as usize / CHUNK, place as usize % CHUNK);
        self.chunks[chunk].generations[at] = Some(NonZeroU32::MAX);
    }
}

impl<T> Default for SlotMap<T> {
    fn default() -> Self {
        Self { table: SlotTable::default(), free: Vec::new() }
    }
}

impl<T> SlotMap<T> {
    pub(crate) fn insert(&mut self, value: T) -> Slot {
        let end = || u32::try_from(self.table.end()).expect("fewer than 2^32 slots");
        let place = self.free.pop().unwrap_or_else(end);
        let inserted = self.table.insert_at(place, value);
        inserted.map_err(drop).expect("a place that had all its generations is not among the free")
    }

    pub(crate) fn remove(&mut self, slot: Slot) -> Option<T> {
        let (value, may_be_used_again) = self.table.remove(slot)?;
        if may_be_used_again {
            self.free.push(slot.place);
        }
        Some(value)
    }

    pub(crate) fn get_mut(&mut self, slot: Slot) -> Option<&mut T> {
        self.table.get_mut(slot)
    }

    /// The value at a place, to be changed by whoever knows that it is there.
    pub(crate) fn get_at_mut(&mut self, place: u32) -> Option<&mut T> {
        self.table.get_at_mut(place)
    }
}

impl<T> Deref for SlotMap<T> {
    type Target = SlotTable<T>;

    fn deref(&self) -> &SlotTable<T> {
        &self.table
    }
}

#[cfg(test)]
impl<T> SlotMap<T> {
    pub(crate) fn use_up(&mut self, place: u32) {
        self.table.use_up(place);
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
        map.use_up(0);
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
