//! How hash tables are seeded.
//!
//! Peers choose the keys, so each table has a random seed, and nobody can aim at its places. In a simulation the
//! seeds follow from that of the run: then whatever depends on the order of a table is replayed with it.

use std::cell::Cell;
use std::hash::BuildHasher;
use std::marker::PhantomData;

use foldhash::SharedSeed;
use foldhash::fast::{FoldHasher, SeedableRandomState};

thread_local! {
    /// From which the next table of this thread is seeded, if it is not at random.
    static NEXT: Cell<Option<u64>> = const { Cell::new(None) };
}

/// The seed of one hash table.
#[derive(Clone, Debug)]
pub struct RandomState(SeedableRandomState);

impl Default for RandomState {
    fn default() -> Self {
        // An odd constant: 2^64 tables are made before a seed comes again.
        const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
        let Some(seed) = NEXT.get() else { return Self(SeedableRandomState::random()) };
        NEXT.set(Some(seed.wrapping_add(STEP)));
        Self(SeedableRandomState::with_seed(seed, SharedSeed::global_fixed()))
    }
}

impl BuildHasher for RandomState {
    type Hasher = FoldHasher<'static>;

    #[inline]
    fn build_hasher(&self) -> FoldHasher<'static> {
        self.0.build_hasher()
    }
}

/// A table whose order a simulation can replay. The standard library's own cannot be used in the pure crates
/// (`clippy.toml` of each).
pub type HashMap<K, V> = std::collections::HashMap<K, V, RandomState>;

/// The same of keys alone.
pub type HashSet<K> = std::collections::HashSet<K, RandomState>;

/// While it lives, the tables that its thread makes are seeded from one number. For simulations only.
#[derive(Debug)]
pub struct SeededHashing {
    before: Option<u64>,
    /// It belongs to its thread.
    thread: PhantomData<*const ()>,
}

impl SeededHashing {
    /// Seeds the tables that this thread makes from now on.
    #[must_use = "the tables are seeded as long as it lives"]
    pub fn begin(seed: u64) -> Self {
        Self { before: NEXT.replace(Some(seed)), thread: PhantomData }
    }
}

impl Drop for SeededHashing {
    fn drop(&mut self) {
        NEXT.set(self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashes(seed: Option<u64>) -> Vec<u64> {
        let _seeded = seed.map(SeededHashing::begin);
        (0..4).map(|_| RandomState::default().hash_one("a")).collect()
    }

    #[test]
    fn tables_of_a_seed_are_alike_in_every_run_and_all_others_are_not() {
        assert_eq!(hashes(Some(7)), hashes(Some(7)));
        assert_ne!(hashes(Some(7)), hashes(Some(8)));
        assert_ne!(hashes(None), hashes(None));
        let mut all = hashes(Some(7));
        all.dedup();
        assert_eq!(all.len(), 4, "each table has its own");
    }
}
