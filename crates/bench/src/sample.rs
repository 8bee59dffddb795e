//! The resources that the server uses, read from `/proc`.

use serde_json::{Value, json};

/// CPU time of some processes so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cpu {
    pub user_us: f64,
    pub system_us: f64,
}

impl Cpu {
    /// The sum is exact to the nanosecond (the scheduler's own account of each thread); how it
    /// splits into user and system time is the kernel's estimate from clock ticks.
    pub(crate) fn of(processes: &[u32]) -> Self {
        let mut all = Self::default();
        for one in processes.iter().map(|pid| Self::of_one(*pid)) {
            all.user_us += one.user_us;
            all.system_us += one.system_us;
        }
        all
    }

    fn of_one(pid: u32) -> Self {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The name in parentheses may hold spaces: count from behind it.
        let rest = stat.rsplit(") ").next().unwrap_or("");
        let words: Vec<&str> = rest.split(' ').collect();
        let ticks = |at: usize| words.get(at).and_then(|word| word.parse::<f64>().ok());
        let (user, system) = (ticks(11).unwrap_or(0.0), ticks(12).unwrap_or(0.0));
        let whole_us = scheduled_us(pid);
        let user_us = whole_us * user / (user + system).max(1.0);
        Self { user_us, system_us: whole_us - user_us }
    }

    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            user_us: self.user_us - earlier.user_us,
            system_us: self.system_us - earlier.system_us,
        }
    }

    pub(crate) fn total_us(self) -> f64 {
        self.user_us + self.system_us
    }
}

/// Time that all threads of a process ran.
fn scheduled_us(pid: u32) -> f64 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let nanoseconds = threads.filter_map(|thread| {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<f64>().ok()
    });
    nanoseconds.sum::<f64>() / 1e3
}

/// A process and all that it started.
pub(crate) fn family(pid: u32) -> Vec<u32> {
    let parent_of = |pid: u32| -> Option<u32> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit(") ").next()?.split(' ').nth(1)?.parse().ok()
    };
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let all: Vec<(u32, Option<u32>)> = entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .map(|pid| (pid, parent_of(pid)))
        .collect();
    let mut family = vec![pid];
    let mut at = 0;
    while at < family.len() {
        let parent = Some(family[at]);
        family.extend(all.iter().filter(|(_, of)| *of == parent).map(|(child, _)| *child));
        at += 1;
    }
    family
}

/// Memory of some processes and of the kernel, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Memory {
    /// Private memory of the processes that no file backs.
    pub anonymous: u64,
    /// All of the processes that is in memory.
    pub resident: u64,
    /// Kernel objects, sockets among them, of both ends.
    pub slab: u64,
}

impl Memory {
    pub(crate) fn of(processes: &[u32]) -> Self {
        let rollups = processes.iter().map(|pid| format!("/proc/{pid}/smaps_rollup"));
        let rollups: Vec<String> =
            rollups.map(|path| std::fs::read_to_string(path).unwrap_or_default()).collect();
        let sum = |name| rollups.iter().map(|rollup| kib(rollup, name)).sum();
        let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        Self { anonymous: sum("Anonymous:"), resident: sum("Rss:"), slab: kib(&meminfo, "Slab:") }
    }
}

fn kib(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kib: Option<u64> = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    kib.unwrap_or(0) * 1024
}

/// The congestion control that new sockets get.
fn congestion_control() -> String {
    let path = "/proc/sys/net/ipv4/tcp_congestion_control";
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// The machine, as far as it matters for numbers.
pub(crate) fn machine() -> Value {
    let first_word = |path: &str, line_start: &str| {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with(line_start)).unwrap_or_default();
        line.split(':').next_back().unwrap_or_default().trim().to_owned()
    };
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    json!({
        "cores": std::thread::available_parallelism().map_or(1, usize::from),
        "processor": first_word("/proc/cpuinfo", "model name"),
        "memory_bytes": kib(&std::fs::read_to_string("/proc/meminfo").unwrap_or_default(), "MemTotal:"),
        "kernel": release.trim(),
        "congestion_control": congestion_control(),
    })
}

/// Bytes of memory that are free for use, by the kernel's own estimate.
pub(crate) fn memory_available() -> u64 {
    kib(&std::fs::read_to_string("/proc/meminfo").unwrap_or_default(), "MemAvailable:")
}
