//! The resources of the process, under the names that all client libraries of Prometheus use.

use std::fmt;
use std::fs;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// Linux tells programs of its times in these, whatever it counts in itself.
const TICKS_PER_SECOND: f64 = 100.0;

/// The kernel's figures for this process; missing ones are left out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Process {
    cpu_seconds: Option<f64>,
    start_time_seconds: Option<f64>,
    virtual_memory_bytes: Option<u64>,
    resident_memory_bytes: Option<u64>,
    open_fds: Option<u64>,
    max_fds: Option<u64>,
}

impl Process {
    /// Reads it; `sockets_apart` are in tables of descriptors that other threads have to themselves. How much is read
    /// does not depend on how much is open.
    pub(crate) fn read(sockets_apart: u64) -> Self {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let (stat, status) = (text("/proc/self/stat"), text("/proc/self/status"));
        // The program's name may have spaces and parentheses in it.
        let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let fields: Vec<f64> = after_name
            .split_whitespace()
            .skip(1)
            .map(|field| field.parse().unwrap_or(0.0))
            .collect();
        // utime is the 14th of proc(5), and the first of these the 4th.
        let ticks = |number: usize| Some(fields.get(number - 4)? / TICKS_PER_SECOND);
        let booted_at = number_after(&text("/proc/stat"), "btime ");
        Self {
            cpu_seconds: ticks(14).zip(ticks(15)).map(|(user, system)| user + system),
            start_time_seconds: ticks(22).zip(booted_at).map(|(since, at)| at as f64 + since),
            virtual_memory_bytes: number_after(&status, "VmSize:").map(|kib| kib << 10),
            resident_memory_bytes: number_after(&status, "VmRSS:").map(|kib| kib << 10),
            open_fds: open_here().map(|count| count + sockets_apart),
            max_fds: number_after(&text("/proc/self/limits"), "Max open files"),
        }
    }
}

/// Descriptors in this thread's table. Linux since 6.2 tells the count as the size of the directory; before, they are
/// counted if there are few.
fn open_here() -> Option<u64> {
    const COUNTED_MAX: usize = 4_096;
    let directory = "/proc/thread-self/fd";
    match fs::metadata(directory).ok()?.len() {
        0 => {
            let count = fs::read_dir(directory).ok()?.take(COUNTED_MAX + 1).count();
            (count <= COUNTED_MAX).then_some(count as u64)
        }
        count => Some(count),
    }
}

/// The number that comes after the first of these words.
fn number_after(text: &str, words: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(words))?;
    line.split_whitespace().next()?.parse().ok()
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        if let Some(seconds) = self.cpu_seconds {
            let help = "Processor time used, in user and in system mode";
            let metric = encoder.encode_descriptor(
                "process_cpu_seconds",
                help,
                None,
                MetricType::Counter,
            )?;
            ConstCounter::new(seconds).encode(metric)?;
        }
        let gauges = [
            ("process_virtual_memory_bytes", "Address space used", self.virtual_memory_bytes),
            ("process_resident_memory_bytes", "Memory in RAM", self.resident_memory_bytes),
            ("process_open_fds", "Open file descriptors", self.open_fds),
            ("process_max_fds", "File descriptors that may be open", self.max_fds),
        ];
        for (name, help, value) in gauges {
            let Some(value) = value else { continue };
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(value as i64).encode(metric)?;
        }
        if let Some(seconds) = self.start_time_seconds {
            let help = "When the process started, in seconds since 1970";
            let name = "process_start_time_seconds";
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(seconds).encode(metric)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use super::*;

    #[test]
    fn what_is_told_is_of_this_process() {
        let file = fs::File::open("/proc/self/stat").expect("Linux");
        let before = Process::read(0);
        let more: Vec<_> = (0..50).map(|_| file.try_clone().expect("a descriptor")).collect();
        let with_more = Process::read(1_000);
        drop(more);
        let opened =
            with_more.open_fds.expect("told") as i64 - before.open_fds.expect("told") as i64;
        // Other tests open and close some meanwhile.
        assert!((1_030..1_070).contains(&opened), "{opened}");
        assert!(before.max_fds >= before.open_fds);
        let resident = before.resident_memory_bytes.expect("told");
        assert!(
            (1 << 20..1 << 40).contains(&resident) && before.virtual_memory_bytes > Some(resident)
        );
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs_f64();
        let age = now - before.start_time_seconds.expect("told");
        assert!((-2.0..3_600.0).contains(&age), "{age} s");
        let began = before.cpu_seconds.expect("told");
        while Process::read(0).cpu_seconds.expect("told") < began + 0.03 {}
    }
}
