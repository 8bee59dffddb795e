//! How often each kind of event came about: what never happens in a simulation is not tested by it.

use std::collections::BTreeMap;
use std::fmt;

/// Counts by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts(BTreeMap<&'static str, u64>);

impl Counts {
    /// Notes that something came about.
    pub fn note(&mut self, kind: &'static str) {
        *self.0.entry(kind).or_default() += 1;
    }

    /// How often it did.
    pub fn of(&self, kind: &str) -> u64 {
        self.0.get(kind).copied().unwrap_or(0)
    }

    /// Adds those of another run.
    pub fn add(&mut self, other: &Self) {
        for (kind, count) in &other.0 {
            *self.0.entry(kind).or_default() += count;
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(kind, count)| writeln!(f, "{count:>10} {kind}"))
    }
}
