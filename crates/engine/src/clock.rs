//! The only clock, and the only source of randomness.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// One reading of both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Monotonic time since the clock was made.
    pub elapsed: Duration,
    /// Milliseconds since the Unix epoch.
    pub unix_ms: u64,
}

/// A clock; all of a server's threads share the moment at which it was made.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    made_at: Instant,
}

impl Clock {
    /// A clock that starts now.
    pub fn start() -> Self {
        Self { made_at: Instant::now() }
    }

    /// Reads both clocks.
    pub fn now(&self) -> Reading {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Reading {
            elapsed: self.made_at.elapsed(),
            unix_ms: u64::try_from(unix.as_millis()).unwrap_or(u64::MAX),
        }
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
