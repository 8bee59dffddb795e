//! Where a publication stands in its topic: (epoch, sequence).

use std::fmt;
use std::sync::Arc;

/// A place in a topic. They grow, and where one node orders they do so by one, from 1 on. 0 stands before the first publication.
///
/// Always below 2^53, so that a JavaScript number holds it exactly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence(u64);

impl Sequence {
    /// The place before the first publication.
    pub const START: Self = Self(0);
    /// The largest sequence there can be: 2^53 - 1.
    pub const MAX: Self = Self((1 << 53) - 1);

    /// The sequence with this number, or `None` from 2^53 on.
    pub fn new(number: u64) -> Option<Self> {
        (number <= Self::MAX.0).then_some(Self(number))
    }

    /// The number itself.
    pub fn get(self) -> u64 {
        self.0
    }

    /// The sequence that follows this one.
    ///
    /// # Panics
    /// After 2^53 - 1 publications to one topic: at a million a second, in 285 years.
    pub fn next(self) -> Self {
        assert!(self.0 < Self::MAX.0, "a topic ran out of sequences");
        Self(self.0 + 1)
    }

    /// How many publications lie after `earlier`, up to and with this one; 0 when none do.
    pub fn count_after(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The sequence `count` places before this one, but never before the start.
    pub fn back(self, count: u64) -> Self {
        Self(self.0.saturating_sub(count))
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One life of a topic's numbering: an opaque text. Equal epochs mean comparable sequences.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(Arc<str>);

impl Epoch {
    /// An epoch with this text; whoever orders a topic chooses it.
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// The text, to be compared and sent, never read.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A place in a topic that stays meaningful after a restart and on another node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Position {
    /// The life of the numbering that `sequence` counts in.
    pub epoch: Epoch,
    /// The last publication taken, or `Sequence::START` before any.
    pub sequence: Sequence,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_fits_a_javascript_number() {
        assert_eq!(Sequence::new((1 << 53) - 1), Some(Sequence::MAX));
        assert_eq!(Sequence::new(1 << 53), None);
    }

    #[test]
    fn counting_back_stops_at_the_start() {
        let third = Sequence::START.next().next().next();
        assert_eq!(third.back(2), Sequence::START.next());
        assert_eq!(third.back(9), Sequence::START);
        assert_eq!(third.count_after(Sequence::START.next()), 2);
        assert_eq!(Sequence::START.count_after(third), 0);
    }
}
