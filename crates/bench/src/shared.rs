//! State that all threads of a run share: the clock, the phase, the counts that are watched.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// The state of a run. Phase 0 is warming up: nothing of it is reported.
#[derive(Debug)]
pub(crate) struct Shared {
    clock: Instant,
    phase: AtomicUsize,
    /// Names of the measured phases; phase `n` is `phases[n - 1]`.
    pub phases: Vec<&'static str>,
    pub is_over: AtomicBool,
    /// Clients whose subscription stands.
    pub live: AtomicUsize,
    /// Clients that were away and have everything that they missed.
    pub caught_up: AtomicUsize,
    pub delivered: AtomicU64,
    pub published: AtomicU64,
    /// The server's epoch, once a client was told.
    pub epoch: OnceLock<String>,
}

impl Shared {
    pub(crate) fn new(phases: &[&'static str]) -> Arc<Self> {
        Arc::new(Self {
            clock: Instant::now(),
            phase: AtomicUsize::new(0),
            phases: phases.to_vec(),
            is_over: AtomicBool::new(false),
            live: AtomicUsize::new(0),
            caught_up: AtomicUsize::new(0),
            delivered: AtomicU64::new(0),
            published: AtomicU64::new(0),
            epoch: OnceLock::new(),
        })
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.clock.elapsed().as_nanos() as u64
    }

    pub(crate) fn phase(&self) -> usize {
        self.phase.load(Ordering::Relaxed)
    }

    pub(crate) fn enter(&self, phase: usize) {
        self.phase.store(phase, Ordering::Relaxed);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    pub(crate) fn live(&self) -> usize {
        self.live.load(Ordering::Relaxed)
    }

    pub(crate) fn delivered(&self) -> u64 {
        self.delivered.load(Ordering::Relaxed)
    }
}
