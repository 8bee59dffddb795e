//! Which selectors share a topic with some others, without comparing each with each.
//!
//! Selectors of one shape have their wildcards at the same levels. Two of different shapes overlap if they
//! agree at the levels at which both have names; so those of one shape are put into a table by these levels,
//! and those of the other are looked up in it. Few shapes are used at a time, however many selectors.

use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, Hash, Hasher};

use hashbrown::HashTable;
use model::{HashMap, RandomState, Selector};
use smallvec::SmallVec;

/// One letter for each level.
type Shape = SmallVec<[u8; 16]>;

const NAME: u8 = b'a';
const RESERVED: u8 = b'$';
const ANY: u8 = b'+';
const REST: u8 = b'#';

/// The levels of a selector, without a final `#`.
type Levels<'a> = SmallVec<[&'a str; 8]>;

/// Selectors, to be asked whether one of them overlaps with another.
pub(crate) struct Overlaps<'a> {
    selectors: &'a [Selector],
    hasher: RandomState,
    shapes: Vec<(Shape, Vec<Levels<'a>>)>,
    /// By a shape to be looked up, a table for each of these shapes that may overlap with it.
    tables: HashMap<Shape, Vec<Table>>,
    /// How many selectors were looked at.
    steps: usize,
    steps_max: usize,
}

#[derive(Debug)]
struct Table {
    /// Of which shape's selectors it is.
    shape: usize,
    /// The levels at which both have names.
    levels: NamedLevels,
    entries: HashTable<u32>,
}

type NamedLevels = SmallVec<[u32; 8]>;

/// More was to be compared than may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooMany;

/// Up to so many selectors are compared one by one.
const FEW: usize = 8;

impl<'a> Overlaps<'a> {
    /// Selectors about which at most `steps_max` steps may be taken.
    pub(crate) fn with(selectors: &'a [Selector], steps_max: usize) -> Self {
        let mut shapes: Vec<(Shape, Vec<Levels<'a>>)> = Vec::new();
        let mut known: HashMap<Shape, usize> = HashMap::default();
        if selectors.len() > FEW {
            for selector in selectors {
                let (shape, levels) = shape_of(selector);
                let at = *known.entry(shape).or_insert_with_key(|shape| {
                    shapes.push((shape.clone(), Vec::new()));
                    shapes.len() - 1
                });
                shapes[at].1.push(levels);
            }
        }
        let tables = HashMap::default();
        let hasher = RandomState::default();
        Self { selectors, hasher, shapes, tables, steps: 0, steps_max }
    }

    /// How many steps were taken.
    pub(crate) fn steps(&self) -> usize {
        self.steps
    }

    /// Whether one of the selectors overlaps with one of `others`.
    pub(crate) fn any(&mut self, others: &[Selector]) -> Result<bool, TooMany> {
        for other in others {
            let is_found = match self.selectors.len() {
                0..=FEW => {
                    self.steps += self.selectors.len();
                    self.selectors.iter().any(|known| known.overlaps(other))
                }
                _ => self.has(other),
            };
            if is_found {
                return Ok(true);
            }
            if self.steps > self.steps_max {
                return Err(TooMany);
            }
        }
        Ok(false)
    }

    fn has(&mut self, other: &Selector) -> bool {
        let (shape, levels) = shape_of(other);
        let Self { shapes, hasher, tables, steps, .. } = self;
        let tables = match tables.entry(shape) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let wanted = place.key();
                let mut made = Vec::new();
                for (at, (shape, list)) in shapes.iter().enumerate() {
                    *steps += 1;
                    if let Some(levels) = common_names(shape, wanted) {
                        *steps += list.len();
                        made.push(Table::of(at, list, levels, hasher));
                    }
                }
                place.insert(made)
            }
        };
        *steps += 1 + tables.len();
        tables.iter().any(|table| table.has(&shapes[table.shape].1, &levels, hasher))
    }
}

impl Table {
    fn of(shape: usize, list: &[Levels<'_>], levels: NamedLevels, hasher: &RandomState) -> Self {
        let mut table = Self { shape, levels, entries: HashTable::with_capacity(list.len()) };
        for (at, selector) in list.iter().enumerate() {
            if !table.has(list, selector, hasher) {
                let levels = &table.levels;
                let hash_at = |at: &u32| hash_of(hasher, levels, &list[*at as usize]);
                table.entries.insert_unique(hash_at(&(at as u32)), at as u32, hash_at);
            }
        }
        table
    }

    fn has(&self, list: &[Levels<'_>], wanted: &Levels<'_>, hasher: &RandomState) -> bool {
        let hash = hash_of(hasher, &self.levels, wanted);
        let agrees = |at: &u32| {
            let known = &list[*at as usize];
            self.levels.iter().all(|level| known[*level as usize] == wanted[*level as usize])
        };
        self.entries.find(hash, agrees).is_some()
    }
}

fn hash_of(hasher: &RandomState, levels: &[u32], selector: &Levels<'_>) -> u64 {
    let mut state = hasher.build_hasher();
    levels.iter().for_each(|at| selector[*at as usize].hash(&mut state));
    state.finish()
}

fn shape_of(selector: &Selector) -> (Shape, Levels<'_>) {
    let mut levels: Levels<'_> = selector.as_str().split('/').collect();
    let letter = |(at, level): (usize, &&str)| match *level {
        "+" => ANY,
        "#" => REST,
        name if at == 0 && name.starts_with('$') => RESERVED,
        _ => NAME,
    };
    let shape: Shape = levels.iter().enumerate().map(letter).collect();
    if shape.last() == Some(&REST) {
        levels.pop();
    }
    (shape, levels)
}

/// The levels at which selectors of both shapes have names, or `None` if no topic can be of both.
fn common_names(one: &Shape, other: &Shape) -> Option<NamedLevels> {
    let starts_wild = |shape: &Shape| matches!(shape.first(), Some(&ANY | &REST));
    let is_reserved = |shape: &Shape| shape.first() == Some(&RESERVED);
    if starts_wild(one) && is_reserved(other) || starts_wild(other) && is_reserved(one) {
        return None;
    }
    let split = |shape: &Shape| match shape.last() {
        Some(&REST) => (shape.len() - 1, true),
        _ => (shape.len(), false),
    };
    let ((mine, has_rest), (theirs, have_rest)) = (split(one), split(other));
    if mine < theirs && !has_rest || theirs < mine && !have_rest {
        return None;
    }
    let is_name = |shape: &Shape, at: usize| matches!(shape[at], NAME | RESERVED);
    let common = 0..mine.min(theirs);
    let names = common.filter(|at| is_name(one, *at) && is_name(other, *at));
    Some(names.map(|at| at as u32).collect())
}

#[cfg(test)]
mod tests {
    use model::Limits;
    use proptest::prelude::*;

    use super::*;

    fn parse(texts: &[String]) -> Vec<Selector> {
        let limits = Limits::default();
        texts.iter().filter_map(|text| Selector::parse(text, &limits).ok()).collect()
    }

    proptest! {
        #[test]
        fn tables_agree_with_comparing_each_with_each(
            mine in prop::collection::vec("(a|b|\\+|\\$s)(/(a|b|\\+)){0,3}(/#)?|#", 1..30),
            theirs in prop::collection::vec("(a|b|\\+|\\$s)(/(a|b|\\+)){0,3}(/#)?|#", 1..8),
        ) {
            let (mine, theirs) = (parse(&mine), parse(&theirs));
            for other in &theirs {
                let expected = mine.iter().any(|known| known.overlaps(other));
                let mut overlaps = Overlaps::with(&mine, usize::MAX);
                prop_assert_eq!(overlaps.any(std::slice::from_ref(other)), Ok(expected), "{}", other);
            }
        }
    }
}
