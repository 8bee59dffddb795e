//! What one word decides: the fields of a step, a byte for each.

/// Fields that are taken from a word one after the other.
pub struct Choices {
    bytes: [u8; 8],
    at: usize,
}

impl Choices {
    pub fn of(word: u64) -> Self {
        Self { bytes: word.to_le_bytes(), at: 0 }
    }

    pub fn byte(&mut self) -> u8 {
        let byte = self.bytes[self.at % self.bytes.len()];
        self.at += 1;
        byte
    }

    /// A number below `count`, which is at most 256.
    pub fn below(&mut self, count: usize) -> usize {
        usize::from(self.byte()) % count
    }

    /// True in about `part` of 256 cases.
    pub fn is(&mut self, part: u8) -> bool {
        self.byte() < part
    }

    pub fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    /// An index, each as often as its weight says.
    pub fn weighted(&mut self, weights: &[u8]) -> usize {
        let all: usize = weights.iter().map(|weight| usize::from(*weight)).sum();
        let mut left = usize::from(self.byte()) * all / 256;
        let mut heavy = weights.iter().enumerate();
        let is_it = |(_, weight): &(usize, &u8)| {
            let is_here = left < usize::from(**weight);
            left = left.saturating_sub(usize::from(**weight));
            is_here
        };
        heavy.find(is_it).map_or(0, |(at, _)| at)
    }
}
