//! Steps that the API takes in what its clients choose the number or the size of, counted as shards count theirs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that are decoded or told in the time of a step.
const BYTES_PER_STEP: usize = 64;

/// Steps so far; a clone counts on with it.
#[derive(Clone, Debug, Default)]
pub struct ApiWork(Arc<AtomicU64>);

impl ApiWork {
    /// How many there were.
    pub fn steps(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts things that were looked at, made or told.
    pub(crate) fn note(&self, count: usize) {
        self.0.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Counts bytes that were decoded or told.
    pub(crate) fn note_bytes(&self, bytes: usize) {
        self.note(bytes / BYTES_PER_STEP);
    }
}
