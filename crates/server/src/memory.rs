//! The budget over all memory: what the process uses against `memory_bytes_max`, and what is shed and refused
//! when it comes near.
//!
//! The order: histories beyond what policies keep in any case, then the sessions that lag most; at the budget itself
//! nothing more is taken: publications, sessions, subscriptions, bodies and answers are refused (4106).
//! Each step begins at a share of the budget. What is used is known without asking the kernel: the allocator counts
//! ([`engine::allocated_bytes`]), and who is about to allocate asks for room first. The kernel's figure, looked
//! at by a thread, corrects the count by what the allocator itself and the stacks take. Decision 0020.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use engine::{Supervision, Supervisor};
use model::{Code, Refusal};

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
    /// Nothing more is taken, either.
    Full = 3,
}

impl Pressure {
    /// How short memory is when `used` of `budget` bytes are in use.
    fn at(used: u64, budget: u64) -> Self {
        match used.saturating_mul(100) / budget.max(1) {
            0..80 => Self::None,
            80..90 => Self::Histories,
            90..100 => Self::SlowSessions,
            _ => Self::Full,
        }
    }
}

/// What may be used of memory and what is used, for all who are about to use more of it.
#[derive(Clone, Debug)]
pub struct Memory(Arc<Gauge>);

#[derive(Debug)]
struct Gauge {
    /// Bytes that may be used; 0 is without bound.
    budget: u64,
    /// What the allocator counted; `None` where what is used is said.
    allocated: Option<fn() -> u64>,
    /// What will be allocated soon.
    reserved: AtomicU64,
    /// What the kernel says beyond what is counted.
    correction: AtomicU64,
    /// The pressure that was told last.
    told: AtomicU8,
    refused: AtomicU64,
}

/// Room for what will be allocated, until it is dropped.
#[derive(Debug)]
pub struct Reservation {
    memory: Memory,
    bytes: u64,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.memory.0.reserved.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Default for Memory {
    /// Without bound.
    fn default() -> Self {
        Self::fixed(0)
    }
}

impl Memory {
    /// The memory of this process, of which `budget` bytes may be used; 0 is without bound.
    pub fn of_process(budget: usize) -> Self {
        Self::new(budget, Some(engine::allocated_bytes))
    }

    /// Memory of which as much is used as [`Memory::set_used`] says, and nothing before: for servers that are
    /// simulated or tested.
    pub fn fixed(budget: usize) -> Self {
        Self::new(budget, None)
    }

    fn new(budget: usize, allocated: Option<fn() -> u64>) -> Self {
        let (reserved, correction, refused) = Default::default();
        let told = AtomicU8::default();
        let budget = budget as u64;
        Self(Arc::new(Gauge { budget, allocated, reserved, correction, told, refused }))
    }

    /// Says what is used, for memory that is [`Memory::fixed`].
    pub fn set_used(&self, bytes: u64) {
        self.0.correction.store(bytes, Ordering::Relaxed);
    }

    /// Bytes that are used or reserved.
    fn used(&self) -> u64 {
        let [allocated, reserved, correction] = self.parts();
        allocated + reserved + correction
    }

    /// Bytes allocated, reserved, and beyond what is counted.
    pub(crate) fn parts(&self) -> [u64; 3] {
        let gauge = &*self.0;
        let (reserved, correction) = (&gauge.reserved, &gauge.correction);
        let load = |bytes: &AtomicU64| bytes.load(Ordering::Relaxed);
        [gauge.allocated.map_or(0, |count| count()), load(reserved), load(correction)]
    }

    /// How often something was refused.
    pub(crate) fn refused(&self) -> u64 {
        self.0.refused.load(Ordering::Relaxed)
    }

    pub(crate) fn pressure(&self) -> Pressure {
        match self.0.budget {
            0 => Pressure::None,
            budget => Pressure::at(self.used(), budget),
        }
    }

    /// Whether there is a budget at all.
    pub(crate) fn is_bounded(&self) -> bool {
        self.0.budget > 0
    }

    /// Whether `bytes` more may be allocated now.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.0.budget == 0 || self.used().saturating_add(bytes as u64) <= self.0.budget
    }

    /// The same, or the refusal of whoever wants to do `what` ("publish to `a/b`") and would use `bytes` for it.
    pub(crate) fn check(&self, bytes: usize, what: &str) -> Result<(), Refusal> {
        if self.has_room(bytes) { Ok(()) } else { Err(self.refusal(what)) }
    }

    /// Room for `bytes` that will be allocated soon.
    pub(crate) fn reserve(&self, bytes: usize, what: &str) -> Result<Reservation, Refusal> {
        let reservation = self.claim(bytes);
        if self.has_room(0) { Ok(reservation) } else { Err(self.refusal(what)) }
    }

    /// The same, whether there is room or not.
    #[must_use = "memory is given back when it is dropped"]
    pub(crate) fn claim(&self, bytes: usize) -> Reservation {
        let reservation = Reservation { memory: self.clone(), bytes: bytes as u64 };
        self.0.reserved.fetch_add(reservation.bytes, Ordering::Relaxed);
        reservation
    }

    /// Refuses to do `what`, and counts that.
    pub(crate) fn refusal(&self, what: &str) -> Refusal {
        self.0.refused.fetch_add(1, Ordering::Relaxed);
        let text = format!(
            "cannot {what}: the server uses all of memory_bytes_max; try again later, on another node, or \
             raise the limit"
        );
        Refusal::new(Code::OutOfMemory, text)
    }

    /// Corrects the count by what the kernel says, and tells the operator how short memory is.
    fn look(&self) {
        let Some(Kernel { resident, sockets }) = Kernel::ask() else { return };
        let [allocated, ..] = self.parts();
        let uncounted = resident.saturating_sub(allocated);
        self.0.correction.store(uncounted + sockets, Ordering::Relaxed);
        let pressure = self.pressure();
        if self.0.told.swap(pressure as u8, Ordering::Relaxed) == pressure as u8 {
            return;
        }
        let what = match pressure {
            Pressure::None => "memory is enough again",
            Pressure::Histories => "memory is short: shedding histories",
            Pressure::SlowSessions => "memory is short: closing the sessions that lag most",
            Pressure::Full => "memory is used up: refusing what would take more",
        };
        let [allocated, reserved, correction] = self.parts();
        tracing::warn!(allocated, reserved, correction, budget = self.0.budget, "{what}");
    }
}

/// What a shard does where memory is short, and what it makes others allocate.
#[derive(Debug, Default)]
pub(crate) struct Relief {
    /// Room for what this shard makes others allocate.
    pub elsewhere: Elsewhere,
    /// When the last round of shedding began.
    began_at: Duration,
}

impl Relief {
    /// Whether another round of shedding begins now: it does after a while.
    #[must_use = "it is told once"]
    pub(crate) fn begins_round(&mut self, now: Duration) -> bool {
        let begins = now >= self.began_at + LOOK_EVERY;
        if begins {
            self.began_at = now;
        }
        begins
    }
}

/// Of what a shard allocates, other shards allocate as much a moment later: room for that is reserved meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Elsewhere {
    now: Vec<Reservation>,
    before: Vec<Reservation>,
    turned_at: Duration,
}

impl Elsewhere {
    /// How long mail may be under way.
    const MOMENT: Duration = Duration::from_millis(100);

    pub(crate) fn keep(&mut self, reservation: Reservation) {
        self.now.push(reservation);
    }

    /// Lets go of what was reserved more than a moment ago.
    pub(crate) fn handle_time(&mut self, now: Duration) {
        if now >= self.turned_at + Self::MOMENT {
            self.before = std::mem::take(&mut self.now);
            self.turned_at = now;
        }
    }
}

/// The thread that looks at the memory in use.
pub(crate) struct Governor {
    is_stopping: Arc<AtomicBool>,
}

/// How often it looks, and how often a shard begins to shed some more.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The same when memory is short: what is freed and allocated elsewhere is resident twice for a while.
const LOOK_EVERY_WHEN_SHORT: Duration = Duration::from_millis(5);

impl Governor {
    /// Starts looking, if there is a budget.
    pub(crate) fn start(memory: &Memory, supervisor: &Supervisor) -> std::io::Result<Option<Self>> {
        if memory.0.budget == 0 || memory.0.allocated.is_none() {
            return Ok(None);
        }
        let is_stopping = Arc::new(AtomicBool::new(false));
        let (stop, memory) = (Arc::clone(&is_stopping), memory.clone());
        supervisor.spawn("memory", Supervision::Awaited, move || {
            while !stop.load(Ordering::Relaxed) {
                memory.look();
                let is_short = memory.used() > memory.0.budget / 2;
                std::thread::sleep(if is_short { LOOK_EVERY_WHEN_SHORT } else { LOOK_EVERY });
            }
        })?;
        Ok(Some(Self { is_stopping }))
    }

    /// Lets the thread end.
    pub(crate) fn stop(self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }
}

/// What the kernel says, in bytes.
struct Kernel {
    /// What this process uses for itself.
    resident: u64,
    /// What the kernel uses for the sockets of the process's network namespace.
    sockets: u64,
}

impl Kernel {
    /// `None` where the kernel does not tell.
    fn ask() -> Option<Self> {
        const PAGE: u64 = 4096;
        let pages = std::fs::read_to_string("/proc/self/statm").ok()?;
        let resident: u64 = pages.split_whitespace().nth(1)?.parse().ok()?;
        let sockets = std::fs::read_to_string("/proc/net/sockstat").ok()?;
        let tcp = sockets.lines().find_map(|line| line.strip_prefix("TCP:"))?;
        let mut words = tcp.split_whitespace();
        let buffers: u64 = words.find(|word| *word == "mem").and(words.next())?.parse().ok()?;
        Some(Self { resident: resident * PAGE, sockets: buffers * PAGE })
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
            (1_000, Pressure::Full),
            (9_000, Pressure::Full),
        ];
        let memory = Memory::fixed(1_000);
        for (used, pressure) in cases {
            memory.set_used(used);
            assert_eq!(memory.pressure(), pressure, "{used}");
        }
    }

    #[test]
    fn what_is_reserved_is_used_until_it_is_given_back() {
        let memory = Memory::fixed(1_000);
        let first = memory.reserve(600, "test").expect("there is room");
        assert!(memory.has_room(400) && !memory.has_room(401));
        let refusal = memory.reserve(401, "test").expect_err("there is none");
        assert_eq!(refusal.code, Code::OutOfMemory);
        assert!(memory.has_room(400), "what was refused holds nothing");
        drop(first);
        assert!(memory.has_room(1_000));
        assert_eq!(memory.refused(), 1);
    }

    #[test]
    fn without_a_budget_there_is_always_room() {
        let memory = Memory::default();
        memory.set_used(u64::MAX / 2);
        assert!(memory.has_room(usize::MAX) && memory.pressure() == Pressure::None);
    }

    #[test]
    fn room_for_others_stays_reserved_for_a_moment() {
        let (memory, mut elsewhere) = (Memory::fixed(1_000), Elsewhere::default());
        let at = Duration::from_millis;
        elsewhere.handle_time(at(1_000));
        elsewhere.keep(memory.reserve(900, "test").expect("there is room"));
        elsewhere.handle_time(at(1_099));
        elsewhere.handle_time(at(1_100));
        elsewhere.handle_time(at(1_199));
        assert!(!memory.has_room(200));
        elsewhere.handle_time(at(1_200));
        assert!(memory.has_room(1_000));
    }

    #[test]
    fn a_round_of_shedding_begins_every_so_often() {
        let (mut relief, at) = (Relief::default(), Duration::from_millis);
        let begins = [99, 100, 150, 199, 200].map(|ms| relief.begins_round(at(ms)));
        assert_eq!(begins, [false, true, false, false, true]);
    }

    #[test]
    fn the_kernel_tells_what_is_used() {
        assert!(Kernel::ask().is_some_and(|kernel| kernel.resident > 1 << 16));
    }
}
