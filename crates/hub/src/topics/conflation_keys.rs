//! What the publications of a topic with a conflation key are about.

use model::HashMap;

/// Which entity of its topic a publication is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct EntityIndex(u32);

impl EntityIndex {
    /// Of topics that are about one thing, and of publications of which it is not known.
    pub(crate) const NONE: Self = Self(u32::MAX);
}

/// The entities of one topic, each with the newest delivery about it.
#[derive(Debug, Default)]
pub(crate) struct Entities {
    by_key: HashMap<Box<str>, EntityIndex>,
    newest: Vec<u64>,
}

impl Entities {
    /// The entity called `key`; `NONE` for those beyond `count_max`, which are never replaced.
    pub(crate) fn find_or_make(&mut self, key: Box<str>, count_max: usize) -> EntityIndex {
        if let Some(&known) = self.by_key.get(&key) {
            return known;
        }
        if self.newest.len() >= count_max {
            return EntityIndex::NONE;
        }
        let index = EntityIndex(self.newest.len() as u32);
        self.by_key.insert(key, index);
        self.newest.push(0);
        index
    }

    pub(crate) fn note(&mut self, entity: EntityIndex, delivery: u64) {
        if let Some(newest) = self.newest.get_mut(entity.0 as usize) {
            *newest = delivery;
        }
    }

    /// Whether something newer was delivered about `entity` after `delivery`.
    pub(crate) fn is_replaced(&self, entity: EntityIndex, delivery: u64) -> bool {
        self.newest.get(entity.0 as usize).is_some_and(|newest| *newest > delivery)
    }
}
