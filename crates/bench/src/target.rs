//! The server under test: a child process of our own, pinned to the first core.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Connections that one shard of the server is planned for: its descriptor table holds 20,000.
pub(crate) const PER_SHARD: usize = 18_500;

/// A running server.
pub(crate) struct Target {
    child: Child,
    pub address: SocketAddr,
    pub shards: usize,
}

impl Target {
    /// Starts this program as a server with room for so many connections.
    pub(crate) fn start(connections: usize, more_config: &str) -> Result<Self, String> {
        let cannot = |what: &str, error: std::io::Error| format!("cannot {what}: {error}");
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .and_then(|listener| listener.local_addr())
            .map_err(|error| cannot("find a free port", error))?
            .port();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let shards = connections.div_ceil(PER_SHARD).max(1);
        let file = std::env::temp_dir().join(format!("tidegate-bench-{port}.toml"));
        let config = format!(
            "[engine]\nshards = {shards}\nbacklog = 65535\n{more_config}\n\
             [limits]\nsilence_ms = 3600000\nping_after_ms = 3600000\n"
        );
        std::fs::write(&file, config).map_err(|error| cannot("write a configuration", error))?;
        let program =
            std::env::current_exe().map_err(|error| cannot("find this program", error))?;
        let before = sched_getaffinity(None).map_err(|e| cannot("read the affinity", e.into()))?;
        pin(0);
        // The child inherits the affinity of this thread.
        let child = Command::new(program)
            .args(["serve", "--listen", &address.to_string(), "--config"])
            .arg(&file)
            .stderr(Stdio::null())
            .spawn();
        let _ = sched_setaffinity(None, &before);
        let child = child.map_err(|error| cannot("start the server", error))?;
        let mut target = Self { child, address, shards };
        target.await_health()?;
        let _ = std::fs::remove_file(&file);
        Ok(target)
    }

    fn await_health(&mut self) -> Result<(), String> {
        let until = Instant::now() + Duration::from_secs(20);
        while Instant::now() < until {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("the server ended at its start: {status}"));
            }
            if get(self.address, "/health").is_ok_and(|answer| answer.contains("\"ok\"")) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err("the server did not answer /health within 20 s".into())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// One of the server's own counters, summed over its shards.
    pub(crate) fn counter(&self, name: &str) -> u64 {
        let text = get(self.address, "/metrics").unwrap_or_default();
        let start = format!("{name}{{");
        let lines = text.lines().filter(|line| line.starts_with(&start));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // By its own process id, and only if it still runs.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Keeps the calling thread on one core, if the machine has it.
pub(crate) fn pin(core: usize) {
    let mut cores = CpuSet::new();
    cores.set(core);
    let _ = sched_setaffinity(None, &cores);
}

fn get(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
