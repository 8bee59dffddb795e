//! Bytes that wait in order: received and not read yet, or made and not sent yet.

/// Bytes of which the first were taken already. Taking some moves nothing. An empty one is a pointer wide: most are.
#[derive(Debug, Default)]
pub(crate) struct ByteQueue(Option<Box<Held>>);

#[derive(Debug, Default)]
struct Held {
    bytes: Vec<u8>,
    taken: usize,
}

impl ByteQueue {
    /// What was not taken yet.
    pub(crate) fn rest(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], |held| &held.bytes[held.taken..])
    }

    /// How many bytes were not taken yet.
    pub(crate) fn len(&self) -> usize {
        self.rest().len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes so many bytes from the front; a queue of which all is taken holds no buffer.
    pub(crate) fn take(&mut self, count: usize) {
        if let Some(held) = &mut self.0 {
            held.taken += count;
        }
        if self.is_empty() {
            self.0 = None;
        }
    }

    /// What was not taken yet, to be unmasked in place.
    pub(crate) fn rest_mut(&mut self) -> &mut [u8] {
        self.0.as_mut().map_or(&mut [], |held| &mut held.bytes[held.taken..])
    }

    /// Puts bytes behind the others.
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        self.end_mut().extend_from_slice(bytes);
    }

    /// Where more is put behind the others; what stands there already is not to be touched.
    pub(crate) fn end_mut(&mut self) -> &mut Vec<u8> {
        let held = self.0.get_or_insert_default();
        held.compact();
        &mut held.bytes
    }
}

impl Held {
    /// Drops what was taken once that is most of it, so that each byte is moved about once; answers how many were.
    fn compact(&mut self) -> usize {
        if self.taken < self.bytes.len().div_ceil(2) {
            return 0;
        }
        self.bytes.drain(..self.taken);
        self.taken = 0;
        self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_in_pieces_is_moved_about_once() {
        for count in [1_000, 2_000] {
            let (mut queue, mut moved, mut read) = (ByteQueue::default(), 0, Vec::new());
            for number in 0..count {
                moved += queue.0.as_mut().map_or(0, |held| held.compact());
                queue.append(&[number as u8; 64]);
                // It gets ever further behind, then catches up.
                let taken = if number < count / 2 { 40 } else { 88 };
                let taken = taken.min(queue.len());
                read.extend_from_slice(&queue.rest()[..taken]);
                queue.take(taken);
            }
            read.extend_from_slice(queue.rest());
            let sent: Vec<u8> = (0..count).flat_map(|number| [number as u8; 64]).collect();
            assert_eq!(read, sent);
            assert!(moved <= 2 * sent.len(), "{moved} bytes were moved of {}", sent.len());
        }
    }
}
