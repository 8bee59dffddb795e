//! A table by small numbers that grows without moving what it holds.
//!
//! A plain vector of a million sessions doubles: it copies megabytes within one turn, and leaves
//! the old megabytes to the allocator. Here growing adds one chunk.

/// Values by small dense numbers, in chunks that stay where they are.
#[derive(Debug)]
pub struct Chunks<T> {
    chunks: Vec<Vec<Option<T>>>,
    len: usize,
}

/// Entries in a chunk, a power of two.
pub(crate) const CHUNK: usize = 512;

impl<T> Default for Chunks<T> {
    fn default() -> Self {
        Self { chunks: Vec::new(), len: 0 }
    }
}

impl<T> Chunks<T> {
    /// One more than the greatest number that ever held a value.
    pub fn end(&self) -> usize {
        self.chunks.last().map_or(0, |last| (self.chunks.len() - 1) * CHUNK + last.len())
    }

    /// Puts a value at `index`; answers with the one that was there.
    pub fn put(&mut self, index: usize, value: T) -> Option<T> {
        let (chunk, at) = (index / CHUNK, index % CHUNK);
        while self.chunks.len() <= chunk {
            if let Some(last) = self.chunks.last_mut() {
                last.resize_with(CHUNK, || None);
            }
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        let chunk = &mut self.chunks[chunk];
        if chunk.len() <= at {
            chunk.resize_with(at + 1, || None);
        }
        let before = chunk[at].replace(value);
        self.len += usize::from(before.is_none());
        before
    }

    /// How many values there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Takes the value out.
    pub fn take(&mut self, index: usize) -> Option<T> {
        let value = self.chunks.get_mut(index / CHUNK)?.get_mut(index % CHUNK)?.take()?;
        self.len -= 1;
        Some(value)
    }

    /// The value at `index`, if there is one.
    pub fn get(&self, index: usize) -> Option<&T> {
        self.chunks.get(index / CHUNK)?.get(index % CHUNK)?.as_ref()
    }

    /// Mutable access to the value at `index`.
    pub fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.chunks.get_mut(index / CHUNK)?.get_mut(index % CHUNK)?.as_mut()
    }

    /// Mutable access to all values.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut T)> {
        let entries = self.chunks.iter_mut().flatten().enumerate();
        entries.filter_map(|(index, entry)| Some((index, entry.as_mut()?)))
    }

    /// All values with their numbers, in order of number.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        let entries = self.chunks.iter().flatten().enumerate();
        entries.filter_map(|(index, value)| Some((index, value.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stay_at_their_numbers() {
        let mut chunks = Chunks::default();
        let numbers = [0, 1, CHUNK - 1, CHUNK, 3 * CHUNK + 7, 5];
        for number in numbers {
            assert_eq!(chunks.put(number, number), None);
        }
        assert_eq!(chunks.put(5, 6), Some(5));
        assert_eq!(chunks.end(), 3 * CHUNK + 8);
        assert_eq!(chunks.take(1), Some(1));
        assert_eq!(chunks.take(9 * CHUNK), None);
        let left: Vec<usize> = chunks.iter().map(|(number, _)| number).collect();
        assert_eq!(chunks.len(), left.len());
        assert_eq!(left, [0, 5, CHUNK - 1, CHUNK, 3 * CHUNK + 7]);
        assert_eq!((chunks.get(2 * CHUNK), chunks.get(5)), (None, Some(&6)));
    }
}
