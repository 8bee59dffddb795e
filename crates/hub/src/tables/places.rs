//! Lists of distinct values in which one is found without a search, however long they grow.

use std::hash::Hash;

use model::HashMap;
use smallvec::{Array, SmallVec};

/// Where each value of a long list stands. A short list has none: it is searched.
#[derive(Debug)]
pub(crate) struct Places<V>(Option<Box<Table<V>>>);

type Table<V> = HashMap<V, u32>;

impl<V> Default for Places<V> {
    fn default() -> Self {
        Self(None)
    }
}

/// Values up to which a list is searched.
pub(crate) const SHORT_LIST: usize = 16;

impl<V: Copy + Eq + Hash> Places<V> {
    /// Whether `value` is in `list`.
    pub(crate) fn contains(&self, list: &[V], value: V) -> bool {
        match &self.0 {
            Some(places) => places.contains_key(&value),
            None => list.contains(&value),
        }
    }

    /// Adds `value` to `list`; answers whether it is new there.
    pub(crate) fn insert<A: Array<Item = V>>(&mut self, list: &mut SmallVec<A>, value: V) -> bool {
        if self.contains(list, value) {
            return false;
        }
        list.push(value);
        match &mut self.0 {
            Some(places) => drop(places.insert(value, list.len() as u32 - 1)),
            None if list.len() > SHORT_LIST => {
                let places = list.iter().enumerate().map(|(at, value)| (*value, at as u32));
                self.0 = Some(Box::new(places.collect()));
            }
            None => {}
        }
        true
    }

    /// Removes `value` from `list`, whose last value takes its place; answers whether it was there.
    pub(crate) fn remove<A: Array<Item = V>>(&mut self, list: &mut SmallVec<A>, value: V) -> bool {
        let at = match &mut self.0 {
            Some(places) => places.remove(&value).map(|at| at as usize),
            None => list.iter().position(|known| *known == value),
        };
        let Some(at) = at else { return false };
        list.swap_remove(at);
        if let (Some(places), Some(moved)) = (&mut self.0, list.get(at)) {
            places.insert(*moved, at as u32);
        }
        if list.len() < SHORT_LIST / 2 {
            self.0 = None;
            list.shrink_to_fit();
        }
        true
    }
}

/// Distinct values, in no order that means anything.
#[derive(Debug)]
pub(crate) struct SmallSet<V> {
    list: SmallVec<[V; 2]>,
    places: Places<V>,
}

impl<V> Default for SmallSet<V> {
    fn default() -> Self {
        Self { list: SmallVec::new(), places: Places::default() }
    }
}

impl<V: Copy + Eq + Hash> SmallSet<V> {
    pub(crate) fn as_slice(&self) -> &[V] {
        &self.list
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(crate) fn contains(&self, value: V) -> bool {
        self.places.contains(&self.list, value)
    }

    pub(crate) fn insert(&mut self, value: V) -> bool {
        self.places.insert(&mut self.list, value)
    }

    pub(crate) fn remove(&mut self, value: V) -> bool {
        self.places.remove(&mut self.list, value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_and_short_ones_hold_what_was_put_in() {
        let mut set = SmallSet::default();
        for value in 0..100 {
            assert!(set.insert(value) && !set.insert(value));
        }
        for value in (0..100).filter(|value| value % 7 != 0) {
            assert!(set.remove(value) && !set.remove(value));
        }
        let mut left = set.as_slice().to_vec();
        left.sort_unstable();
        assert_eq!(left, (0..100).filter(|value| value % 7 == 0).collect::<Vec<_>>());
        for value in left.into_iter().rev() {
            assert!(set.contains(value) && set.remove(value) && !set.contains(value));
        }
        assert!(set.is_empty());
    }
}
