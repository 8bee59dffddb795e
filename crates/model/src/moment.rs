//! A reading of the clock, as it is handed to code that may not look at one.

use std::time::Duration;

/// One reading of both clocks. Only the engine and the simulator make them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// Monotonic time since the clock was made; deadlines are counted in it.
    pub elapsed: Duration,
    /// Milliseconds since the Unix epoch; it may jump, so it only labels things.
    pub unix_ms: u64,
}

impl Moment {
    /// Whole seconds of monotonic time: coarse enough to store in four bytes for 136 years.
    pub fn coarse_seconds(&self) -> u32 {
        u32::try_from(self.elapsed.as_secs()).unwrap_or(u32::MAX)
    }
}
