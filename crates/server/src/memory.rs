//! The budget over all memory: what the process uses, kernel socket buffers included, against
//! `memory_bytes_max`, and what is shed when it comes near.
//!
//! The order: histories beyond what policies keep in any case, then the sessions that lag most, then new
//! connections. Each step begins at a share of the budget.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use engine::Io;
use model::{Code, Refusal};

use crate::shard::Shard;

/// How short memory is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Pressure {
    #[default]
    None = 0,
    /// Histories are shed.
    Histories = 1,
    /// The sessions that lag most are closed, too.
    SlowSessions = 2,
    /// New sessions are refused, too.
    NewSessions = 3,
}

impl Pressure {
    /// How short memory is when `used` of `budget` bytes are in use.
    fn at(used: u64, budget: u64) -> Self {
        match used.saturating_mul(100) / budget.max(1) {
            0..80 => Self::None,
            80..90 => Self::Histories,
            90..100 => Self::SlowSessions,
            _ => Self::NewSessions,
        }
    }
}

/// How short memory is, as all shards see it.
#[derive(Clone, Debug, Default)]
pub struct SharedPressure(Arc<AtomicU8>);

impl SharedPressure {
    pub(crate) fn get(&self) -> Pressure {
        match self.0.load(Ordering::Relaxed) {
            0 => Pressure::None,
            1 => Pressure::Histories,
            2 => Pressure::SlowSessions,
            _ => Pressure::NewSessions,
        }
    }

    fn set(&self, pressure: Pressure) {
        self.0.store(pressure as u8, Ordering::Relaxed);
    }
}

/// The thread that looks at the memory in use.
pub(crate) struct Governor {
    is_stopping: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

/// How often it looks, and how often a shard sheds some more.
const LOOK_EVERY: Duration = Duration::from_millis(100);

impl Governor {
    /// Starts looking, if there is a budget.
    pub(crate) fn start(budget: usize, pressure: &SharedPressure) -> std::io::Result<Option<Self>> {
        if budget == 0 {
            return Ok(None);
        }
        let is_stopping = Arc::new(AtomicBool::new(false));
        let (stop, pressure, budget) = (Arc::clone(&is_stopping), pressure.clone(), budget as u64);
        let thread = std::thread::Builder::new().name("memory".into()).spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                look(budget, &pressure);
                std::thread::sleep(LOOK_EVERY);
            }
        })?;
        Ok(Some(Self { is_stopping, thread }))
    }

    pub(crate) fn stop(self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        // One that panicked has said so.
        let _ = self.thread.join();
    }
}

fn look(budget: u64, shared: &SharedPressure) {
    let Some(used) = used_bytes() else { return };
    let (before, pressure) = (shared.get(), Pressure::at(used, budget));
    if pressure == before {
        return;
    }
    shared.set(pressure);
    let what = match pressure {
        Pressure::None => "memory is enough again",
        Pressure::Histories => "memory is short: shedding histories",
        Pressure::SlowSessions => "memory is short: closing the sessions that lag most",
        Pressure::NewSessions => "memory is used up: refusing new sessions",
    };
    tracing::warn!(used, budget, "{what}");
}

/// Bytes that this process uses for itself, and that the kernel uses for the sockets of its network
/// namespace; `None` where the kernel does not tell.
fn used_bytes() -> Option<u64> {
    const PAGE: u64 = 4096;
    let pages = std::fs::read_to_string("/proc/self/statm").ok()?;
    let mut pages = pages.split_whitespace().skip(1).map_while(|text| text.parse::<u64>().ok());
    let (resident, shared) = (pages.next()?, pages.next()?);
    let sockets = std::fs::read_to_string("/proc/net/sockstat").ok()?;
    let tcp = sockets.lines().find_map(|line| line.strip_prefix("TCP:"))?;
    let mut words = tcp.split_whitespace();
    let buffers: u64 = words.find(|word| *word == "mem").and(words.next())?.parse().ok()?;
    Some((resident.saturating_sub(shared) + buffers) * PAGE)
}

impl<I: Io> Shard<I> {
    /// Sheds some, if memory is short and the last time is a while ago.
    pub(crate) fn relieve_memory(&mut self) {
        /// Of the sessions that take nothing, the share that is closed in one go.
        const CLOSED_SHARE: usize = 10;
        let pressure = self.pressure.get();
        if pressure == Pressure::None || self.now.elapsed < self.relieved_at + LOOK_EVERY {
            return;
        }
        self.relieved_at = self.now.elapsed;
        self.hub.shed_history();
        if pressure >= Pressure::SlowSessions {
            let stalled = self.hub.stalled_count();
            self.hub.shed_sessions(stalled.div_ceil(CLOSED_SHARE));
        }
    }

    /// Whether memory is left for one more session.
    pub(crate) fn check_memory(&self) -> Result<(), Refusal> {
        if self.pressure.get() < Pressure::NewSessions {
            return Ok(());
        }
        let text = "cannot open a session: the server uses all of memory_bytes_max; try again later, on \
                    another node, or raise the limit";
        Err(Refusal::new(Code::OutOfMemory, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_grows_with_use() {
        let cases = [
            (0, Pressure::None),
            (799, Pressure::None),
            (800, Pressure::Histories),
            (900, Pressure::SlowSessions),
            (1_000, Pressure::NewSessions),
            (9_000, Pressure::NewSessions),
        ];
        for (used, pressure) in cases {
            assert_eq!(Pressure::at(used, 1_000), pressure, "{used}");
        }
    }

    #[test]
    fn the_kernel_tells_what_is_used() {
        assert!(used_bytes().is_some_and(|bytes| bytes > 1 << 16));
    }
}
