//! Readings of this machine, from `/proc`.

use std::collections::HashMap;
use std::time::Instant;

use serde_json::json;

use super::Reading;

/// Bytes in a disk sector, as `/proc/diskstats` counts them.
const SECTOR_BYTES: u64 = 512;

/// Reads this machine; rates are against the last reading.
pub(super) struct Host {
    name: String,
    last_at: Instant,
    last: HashMap<String, (u64, u64)>,
}

impl Host {
    pub(super) fn new() -> Self {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let name = name.trim().replace(['/', '+', '#'], "-");
        let name = if name.is_empty() { "host".into() } else { name };
        Self { name, last_at: Instant::now(), last: HashMap::new() }
    }

    pub(super) fn read(&mut self) -> Vec<Reading> {
        let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let seconds = self.last_at.elapsed().as_secs_f64().max(0.001);
        self.last_at = Instant::now();
        let mut readings = Vec::new();
        for (cpu, busy, total) in cpu_times(&text("/proc/stat")) {
            if let Some((busy, total)) = self.difference(&format!("cpu/{cpu}"), busy, total) {
                let percent = 100.0 * busy as f64 / total.max(1) as f64;
                let percent = (percent * 10.0).round() / 10.0;
                readings.push((format!("cpu/{cpu}"), json!({ "busy_percent": percent })));
            }
        }
        let (total, available) = memory(&text("/proc/meminfo"));
        let value = json!({ "total_bytes": total, "available_bytes": available });
        readings.push(("memory".into(), value));
        let per_second = |count: u64| (count as f64 / seconds).round();
        for (name, received, sent) in network(&text("/proc/net/dev")) {
            let key = format!("network/{name}");
            if let Some((received, sent)) = self.difference(&key, received, sent) {
                let value = json!({
                    "received_bytes_per_second": per_second(received),
                    "sent_bytes_per_second": per_second(sent),
                });
                readings.push((key, value));
            }
        }
        for (name, read, written) in disks(&text("/proc/diskstats")) {
            let key = format!("disk/{name}");
            if let Some((read, written)) = self.difference(&key, read, written) {
                let value = json!({
                    "read_bytes_per_second": per_second(read * SECTOR_BYTES),
                    "written_bytes_per_second": per_second(written * SECTOR_BYTES),
                });
                readings.push((key, value));
            }
        }
        let name = &self.name;
        readings.into_iter().map(|(key, value)| (format!("host/{name}/{key}"), value)).collect()
    }

    /// How much two counters grew since the last reading, if there was one.
    fn difference(&mut self, key: &str, one: u64, other: u64) -> Option<(u64, u64)> {
        let last = self.last.insert(key.into(), (one, other))?;
        Some((one.saturating_sub(last.0), other.saturating_sub(last.1)))
    }
}

/// Of each `cpuN` line: number, busy jiffies, all jiffies.
fn cpu_times(stat: &str) -> Vec<(usize, u64, u64)> {
    let cpus = stat.lines().filter_map(|line| {
        let mut words = line.strip_prefix("cpu")?.split_whitespace();
        let number = words.next()?.parse().ok()?;
        let times: Vec<u64> = words.take(8).filter_map(|word| word.parse().ok()).collect();
        let (total, idle) = (times.iter().sum::<u64>(), times.get(3)? + times.get(4)?);
        // The fourth and fifth are idle and waiting for disks.
        line.starts_with(&format!("cpu{number} ")).then_some((number, total - idle, total))
    });
    cpus.collect()
}

/// Total and available bytes.
fn memory(meminfo: &str) -> (u64, u64) {
    let find = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name));
        let kib: Option<u64> = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
        kib.unwrap_or(0) * 1024
    };
    (find("MemTotal:"), find("MemAvailable:"))
}

/// Of each interface: name, bytes received, bytes sent.
fn network(dev: &str) -> Vec<(String, u64, u64)> {
    let interfaces = dev.lines().filter_map(|line| {
        let (name, rest) = line.split_once(':')?;
        let counts: Vec<u64> =
            rest.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        Some((name.trim().to_owned(), *counts.first()?, *counts.get(8)?))
    });
    interfaces.collect()
}

/// Of each whole disk that was ever used: name, sectors read, sectors written.
fn disks(diskstats: &str) -> Vec<(String, u64, u64)> {
    let disks = diskstats.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (name, read, written) = (words.get(2)?, words.get(5)?, words.get(9)?);
        let (read, written): (u64, u64) = (read.parse().ok()?, written.parse().ok()?);
        let is_disk = !name.starts_with("loop") && !name.starts_with("ram") && read + written > 0;
        is_disk.then(|| ((*name).to_owned(), read, written))
    });
    disks.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_texts_are_read() {
        let stat = "cpu  10 0 10 80 0 0 0 0 0 0\ncpu0 4 1 5 80 10 0 0 0 0 0\nintr 5\n";
        assert_eq!(cpu_times(stat), [(0, 10, 100)]);
        let meminfo = "MemTotal:       2000 kB\nMemFree: 1 kB\nMemAvailable:   1000 kB\n";
        assert_eq!(memory(meminfo), (2_048_000, 1_024_000));
        let dev = "Inter-|\n face |bytes\n  lo: 100 1 0 0 0 0 0 0 200 1 0 0 0 0 0 0\n";
        assert_eq!(network(dev), [("lo".to_owned(), 100, 200)]);
        let diskstats = " 254 0 vda 5 0 40 1 6 0 80 1 0 1 2\n 7 0 loop0 1 0 8 0 0 0 0 0 0 0 0\n";
        assert_eq!(disks(diskstats), [("vda".to_owned(), 40, 80)]);
    }

    #[test]
    fn this_machine_can_be_read() {
        let mut host = Host::new();
        host.read();
        let readings = host.read();
        assert!(readings.iter().any(|(topic, _)| topic.ends_with("/memory")), "{readings:?}");
        assert!(readings.iter().any(|(topic, _)| topic.contains("/cpu/0")), "{readings:?}");
    }
}
