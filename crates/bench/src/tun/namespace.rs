//! A network namespace for one run: made, entered, left and removed; every setting put back.

use std::fs::File;
use std::process::Command;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::os::fd::AsFd;

use super::{DEVICE, SERVER};

/// The namespace while the run is in it. Dropping it leaves and removes it.
pub(crate) struct Namespace {
    name: String,
    outside: File,
}

const HASH_ENTRIES: &str = "/proc/sys/net/ipv4/tcp_child_ehash_entries";

impl Namespace {
    /// Makes a namespace for so many connections and moves the calling thread into it, and with it
    /// every thread and process that it starts.
    ///
    /// # Errors
    /// The missing part: root, the `ip` command, or the TUN driver.
    pub(crate) fn enter(connections: usize, server_cores: &[usize]) -> Result<Self, String> {
        let outside = File::open("/proc/thread-self/ns/net")
            .map_err(|error| format!("cannot find this thread's network: {error}"))?;
        let name = format!("tidegate-bench-{}", std::process::id());
        add(&name, connections)?;
        // From here on dropping it removes it again.
        let namespace = Self { name, outside };
        namespace.set_up(server_cores)?;
        let path = format!("/run/netns/{}", namespace.name);
        let inside = File::open(&path).map_err(|error| format!("cannot open {path}: {error}"))?;
        move_into_link_name_space(inside.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(|error| format!("cannot enter {path}: {error}"))?;
        Ok(namespace)
    }

    fn set_up(&self, server_cores: &[usize]) -> Result<(), String> {
        let mask = server_cores.iter().fold(0u64, |mask, core| mask | 1 << core.min(&63));
        let script = format!(
            "set -e\n\
             ip link set lo up\n\
             ip tuntap add dev {DEVICE} mode tun vnet_hdr\n\
             ip addr add {SERVER}/8 dev {DEVICE}\n\
             ip link set {DEVICE} txqueuelen 20000 up\n\
             echo {mask:x} > /sys/class/net/{DEVICE}/queues/rx-0/rps_cpus || true\n\
             sysctl -qw net.core.somaxconn=65535 net.ipv4.tcp_max_syn_backlog=65535 \
             net.ipv4.tcp_no_metrics_save=1 net.ipv4.tcp_syncookies=0 \
             net.ipv4.conf.all.rp_filter=0 net.ipv4.tcp_keepalive_time=7200"
        );
        run(&["netns", "exec", &self.name, "sh", "-c", &script])
    }
}

/// Adds the namespace with a connection hash of its own, large enough for short chains.
fn add(name: &str, connections: usize) -> Result<(), String> {
    let before = std::fs::read_to_string(HASH_ENTRIES).unwrap_or_default();
    let entries = connections.next_power_of_two().clamp(1 << 16, 1 << 24);
    // Without it the chains are only longer.
    let _ = std::fs::write(HASH_ENTRIES, entries.to_string());
    let added = run(&["netns", "add", name]);
    let _ = std::fs::write(HASH_ENTRIES, before.trim());
    added
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // The thread must be outside again, whatever else fails.
        let _ = move_into_link_name_space(self.outside.as_fd(), Some(LinkNameSpaceType::Network));
        if let Err(error) = run(&["netns", "del", &self.name]) {
            eprintln!("{error}; remove it by hand: ip netns del {}", self.name);
        }
    }
}

fn run(arguments: &[&str]) -> Result<(), String> {
    let what = format!("ip {}", arguments[..arguments.len().min(4)].join(" "));
    let output = Command::new("ip").args(arguments).output();
    let output =
        output.map_err(|error| format!("cannot run `{what}`: {error}; install iproute2"))?;
    if output.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&output.stderr);
    Err(format!("`{what}` failed: {}; it needs root", why.trim()))
}
