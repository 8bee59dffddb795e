//! A hiccup meter: how much longer than 1 ms a thread of this process that sleeps 1 ms sleeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const NAP: Duration = Duration::from_millis(1);
/// Steps within each doubling: counts are exact to 1/16.
const STEPS: u64 = 16;
const BUCKETS: usize = 40 * STEPS as usize;

/// Counts of naps by how much too long they were. Shared: one thread writes, any may read.
#[derive(Debug)]
pub struct Hiccups {
    counts: Vec<AtomicU64>,
    is_over: AtomicBool,
}

impl Hiccups {
    /// Starts a thread that naps until `stop`.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start() -> std::io::Result<Arc<Self>> {
        let counts = (0..BUCKETS).map(|_| AtomicU64::new(0)).collect();
        let hiccups = Arc::new(Self { counts, is_over: AtomicBool::new(false) });
        let napper = Arc::clone(&hiccups);
        std::thread::Builder::new().name("hiccups".into()).spawn(move || napper.run())?;
        Ok(hiccups)
    }

    fn run(&self) {
        while !self.is_over.load(Ordering::Relaxed) {
            let began = Instant::now();
            std::thread::sleep(NAP);
            let over = began.elapsed().saturating_sub(NAP).as_nanos() as u64;
            self.counts[bucket_of(over)].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Lets the thread end.
    pub fn stop(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// The counts since the last call: (upper bound in nanoseconds, naps), growing, none empty.
    pub fn take(&self) -> Vec<(u64, u64)> {
        let counts = self.counts.iter().enumerate();
        let taken = counts.map(|(at, count)| (upper_of(at), count.swap(0, Ordering::Relaxed)));
        taken.filter(|(_, count)| *count > 0).collect()
    }
}

fn bucket_of(nanoseconds: u64) -> usize {
    let doublings = nanoseconds.max(STEPS).ilog2() - STEPS.ilog2();
    let within = (nanoseconds >> doublings).saturating_sub(STEPS).min(STEPS - 1);
    ((u64::from(doublings) * STEPS + within) as usize).min(BUCKETS - 1)
}

fn upper_of(bucket: usize) -> u64 {
    let (doublings, within) = (bucket as u64 / STEPS, bucket as u64 % STEPS);
    (STEPS + within + 1) << doublings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_what_is_just_below_its_bound() {
        for nanoseconds in [0, 17, 1_000, 57_123, 1_000_000, 987_654_321] {
            let upper = upper_of(bucket_of(nanoseconds));
            assert!(upper >= nanoseconds, "{nanoseconds}");
            assert!(
                upper as f64 <= nanoseconds.max(16) as f64 * 1.07 + 1.0,
                "{nanoseconds}: {upper}"
            );
        }
    }
}
