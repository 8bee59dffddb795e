//! The only clock, and the only source of randomness.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// One reading of both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Monotonic time since the clock was made.
    pub elapsed: Duration,
    /// Milliseconds since the Unix epoch. Never less than what this clock read before, on whichever thread.
    pub unix_ms: u64,
}

/// A clock; all of a server's threads share the moment at which it was made, and the time that it read last.
#[derive(Clone, Debug)]
pub struct Clock {
    made_at: Instant,
    wall: Arc<Wall>,
}

impl Clock {
    /// A clock that starts now.
    pub fn start() -> Self {
        Self { made_at: Instant::now(), wall: Arc::default() }
    }

    /// Reads both clocks.
    pub fn now(&self) -> Reading {
        let system = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let system_ms = u64::try_from(system.as_millis()).unwrap_or(u64::MAX);
        let elapsed = self.made_at.elapsed();
        Reading { elapsed, unix_ms: self.wall.read(elapsed, system_ms) }
    }
}

/// The system's clock, but that it never goes back. Where that one is set back this one goes at half its speed until both show
/// the same, so that an hour too much is over after two, and no time of a token or a publication stands still.
#[derive(Debug, Default)]
struct Wall {
    latest_ms: AtomicU64,
    /// Where going slowly began.
    slow_since: Mutex<SlowSince>,
}

#[derive(Clone, Copy, Debug, Default)]
struct SlowSince {
    elapsed: Duration,
    unix_ms: u64,
}

impl Wall {
    /// The clock's time when the system's clock shows `system_ms`.
    fn read(&self, elapsed: Duration, system_ms: u64) -> u64 {
        // The common case writes nothing, so that shards do not contend.
        let latest = self.latest_ms.load(Ordering::Relaxed);
        if system_ms == latest {
            return latest;
        }
        if system_ms > latest {
            return self.latest_ms.fetch_max(system_ms, Ordering::Relaxed).max(system_ms);
        }
        let mut since = self.slow_since.lock().unwrap_or_else(PoisonError::into_inner);
        let gone_ms = elapsed.saturating_sub(since.elapsed).as_millis() / 2;
        let slow_ms = since.unix_ms.saturating_add(u64::try_from(gone_ms).unwrap_or(u64::MAX));
        let latest = self.latest_ms.fetch_max(slow_ms, Ordering::Relaxed);
        if slow_ms < latest {
            *since = SlowSince { elapsed, unix_ms: latest };
        }
        latest.max(slow_ms)
    }
}

/// Eight bytes that nobody can guess, from the operating system.
pub fn random_seed() -> u64 {
    u64::from_ne_bytes(random_bytes())
}

/// Bytes that nobody can guess.
///
/// # Panics
/// The operating system has none.
pub fn random_bytes<const COUNT: usize>() -> [u8; COUNT] {
    let mut bytes = [0; COUNT];
    let filled = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty());
    assert_eq!(filled, Ok(COUNT), "the operating system has random bytes");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_MS: u64 = 3_600_000;
    /// How often the clock is read.
    const STEP_MS: u64 = HOUR_MS * 3 / 20;

    /// The times of a clock, step by step from its start on, if the system's clock is set by so much then.
    fn shown(set_by_ms: i64, count: u64) -> Vec<u64> {
        let (wall, start) = (Wall::default(), 100 * HOUR_MS);
        assert_eq!(wall.read(Duration::ZERO, start), start);
        let read = |number: u64| {
            let gone_ms = number * STEP_MS;
            let system_ms = (start + gone_ms).saturating_add_signed(set_by_ms);
            wall.read(Duration::from_millis(gone_ms), system_ms) - start
        };
        (0..count).map(read).collect()
    }

    #[test]
    fn it_shows_what_the_system_shows() {
        assert_eq!(shown(0, 4), [0, STEP_MS, 2 * STEP_MS, 3 * STEP_MS]);
        let set_forward = shown(HOUR_MS as i64, 3);
        assert_eq!(set_forward, [HOUR_MS, HOUR_MS + STEP_MS, HOUR_MS + 2 * STEP_MS]);
    }

    #[test]
    fn it_goes_slowly_and_never_back_while_the_system_is_behind() {
        let slow = (0..13).map(|number| number * STEP_MS / 2);
        let caught_up = (13..17).map(|number| number * STEP_MS - HOUR_MS);
        let expected: Vec<u64> = slow.chain(caught_up).collect();
        assert_eq!(shown(-(HOUR_MS as i64), 17), expected);
    }

    #[test]
    fn being_set_back_again_and_again_changes_nothing() {
        let wall = Wall::default();
        let mut latest = 0;
        for step in 0..10_000_u64 {
            // An hour back, an hour forth, a day back, in steps of some milliseconds.
            let set_by = [0, HOUR_MS, 5 * HOUR_MS, 29 * HOUR_MS][(step / 7 % 4) as usize];
            let system_ms = 100 * HOUR_MS + 3 * step - set_by;
            let shown = wall.read(Duration::from_millis(3 * step), system_ms);
            assert!(latest <= shown && system_ms <= shown, "step {step}: {shown} after {latest}");
            assert!(shown <= 100 * HOUR_MS + 3 * step, "step {step}: it never goes faster");
            latest = shown;
        }
    }

    #[test]
    fn threads_that_read_it_one_after_another_never_see_it_go_back() {
        let wall = Wall::default();
        let latest = Mutex::new((0_u64, 0_u64));
        let reads = || {
            for _ in 0..2_000 {
                let mut known = latest.lock().expect("no thread panics");
                let (step, before) = *known;
                let system_ms = 1_000_000 + step - (step % 5) * 1_000;
                let shown = wall.read(Duration::from_millis(step), system_ms);
                assert!(before <= shown, "{shown} after {before}");
                *known = (step + 1, shown);
            }
        };
        std::thread::scope(|threads| (0..4).for_each(|_| drop(threads.spawn(reads))));
    }
}
