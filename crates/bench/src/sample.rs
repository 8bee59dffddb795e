//! What the server costs, read from `/proc`.

/// CPU time of a process so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cpu {
    pub user_us: f64,
    pub system_us: f64,
}

impl Cpu {
    pub(crate) fn of(pid: u32) -> Self {
        const TICK_US: f64 = 10_000.0;
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The name in parentheses may hold spaces: count from behind it.
        let rest = stat.rsplit(") ").next().unwrap_or("");
        let words: Vec<&str> = rest.split(' ').collect();
        let ticks = |at: usize| words.get(at).and_then(|word| word.parse::<f64>().ok());
        Self {
            user_us: ticks(11).unwrap_or(0.0) * TICK_US,
            system_us: ticks(12).unwrap_or(0.0) * TICK_US,
        }
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

/// Memory of a process and of the kernel, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Memory {
    /// Private memory of the process that no file backs.
    pub anonymous: u64,
    /// All of the process that is in memory.
    pub resident: u64,
    /// Kernel objects, sockets among them, of both ends.
    pub slab: u64,
}

impl Memory {
    pub(crate) fn of(pid: u32) -> Self {
        let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"));
        let rollup = rollup.unwrap_or_default();
        let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        Self {
            anonymous: kib(&rollup, "Anonymous:"),
            resident: kib(&rollup, "Rss:"),
            slab: kib(&meminfo, "Slab:"),
        }
    }
}

fn kib(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kib: Option<u64> = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    kib.unwrap_or(0) * 1024
}

/// The congestion control that new sockets get.
pub(crate) fn congestion_control() -> String {
    let path = "/proc/sys/net/ipv4/tcp_congestion_control";
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}
