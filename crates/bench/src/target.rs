//! The server under test: one of our own beside the load, a peer, or one that runs elsewhere.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::thread::{sched_getaffinity, sched_setaffinity};

use crate::cores::{Cores, pin};
use crate::dialect::{Dialect, dialect};
use crate::sample::family;
use crate::swarm::PER_TABLE;

/// Which server a run is against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetChoice {
    /// A server of this program, started for the run.
    Own,
    /// A server that runs already, by address `ws://host:port`; its cost is not measured.
    Running(String),
    /// A peer, started by `PROGRAM PORT`; the file's folder has the adapter's name.
    Peer(PathBuf),
}

/// A server under test.
pub(crate) struct Target {
    child: Option<Child>,
    pub address: SocketAddr,
    pub dialect: Arc<dyn Dialect>,
    pub name: String,
    pub shards: usize,
    pub processes: Vec<u32>,
    /// From its start until it listened; not known of one that runs elsewhere.
    pub started_in: Duration,
}

/// The requirements of a run on its server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Needs {
    pub connections: usize,
    /// Where a server of our own listens; a free port of the loopback if `None`.
    pub listen: Option<SocketAddr>,
    /// Lines for the section `[engine]`, of a server of our own.
    pub engine: String,
    /// Whole sections for the end of the file.
    pub sections: String,
    /// Lines for the section `[limits]`.
    pub limits: String,
}

impl Target {
    pub(crate) fn start(
        choice: &TargetChoice,
        needs: &Needs,
        cores: &Cores,
    ) -> Result<Self, String> {
        match choice {
            TargetChoice::Own => Self::own(needs, cores),
            TargetChoice::Peer(program) => Self::peer(program, cores),
            TargetChoice::Running(url) => Self::running(url),
        }
    }

    fn own(needs: &Needs, cores: &Cores) -> Result<Self, String> {
        let address = needs.listen.map_or_else(free_address, Ok)?;
        let port = address.port();
        let shards = needs.connections.div_ceil(PER_TABLE).max(cores.server.len());
        let file = std::env::temp_dir().join(format!("tidegate-bench-{port}.toml"));
        let Needs { engine, sections, limits, .. } = needs;
        let config = format!(
            "[engine]\nshards = {shards}\nbacklog = 65535\n{engine}\n{sections}\n\
             [limits]\nconnections_per_address_max = 100000000\n\
             requests_per_second_per_address_max = 1000000000\nsilence_ms = 3600000\nping_after_ms = 3600000\n{limits}\n"
        );
        std::fs::write(&file, config).map_err(|error| cannot("write a configuration", &error))?;
        let program =
            std::env::current_exe().map_err(|error| cannot("find this program", &error))?;
        let mut command = Command::new(program);
        command.args(["serve", "--listen", &address.to_string(), "--config"]).arg(&file);
        let target = Self::spawn(command, "tidegate", address, shards, cores);
        // The server has read it, or has failed.
        let _ = std::fs::remove_file(&file);
        target
    }

    fn peer(program: &PathBuf, cores: &Cores) -> Result<Self, String> {
        let folder = program.parent().and_then(|folder| folder.file_name());
        let name = folder.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let address = free_address()?;
        let mut command = Command::new(program);
        command.arg(address.port().to_string());
        Self::spawn(command, &name, address, cores.server.len(), cores)
    }

    fn running(url: &str) -> Result<Self, String> {
        let how = "write such as ws://127.0.0.1:8470";
        let host = url.strip_prefix("ws://").and_then(|rest| rest.split('/').next());
        let host =
            host.ok_or_else(|| format!("cannot measure {url}: it is not a ws:// address; {how}"))?;
        let mut addresses = host
            .to_socket_addrs()
            .map_err(|error| format!("cannot measure {url}: {error}; {how}"))?;
        let address = addresses.find(SocketAddr::is_ipv4);
        let address = address.ok_or_else(|| format!("cannot measure {url}: no IPv4; {how}"))?;
        let patience = Duration::from_secs(5);
        TcpStream::connect_timeout(&address, patience)
            .map_err(|error| format!("cannot measure {url}: {error}; is the server running?"))?;
        let dialect = dialect("tidegate")?;
        let (name, processes, started_in) = (url.into(), vec![], Duration::ZERO);
        Ok(Self { child: None, address, dialect, name, shards: 0, processes, started_in })
    }

    fn spawn(
        mut command: Command,
        name: &str,
        address: SocketAddr,
        shards: usize,
        cores: &Cores,
    ) -> Result<Self, String> {
        let dialect = dialect(name)?;
        let before = sched_getaffinity(None).map_err(|e| cannot("read the affinity", &e.into()))?;
        pin(&cores.server);
        engine::end_with_starter(&mut command);
        // The child inherits the affinity of this thread.
        let child = command.stdout(Stdio::null()).stderr(errors_to()).spawn();
        let _ = sched_setaffinity(None, &before);
        let child = child.map_err(|error| cannot(&format!("start {name}"), &error))?;
        let pid = child.id();
        let (name, processes, started_in) = (name.to_owned(), vec![pid], Duration::ZERO);
        let child = Some(child);
        let mut target = Self { child, address, dialect, name, shards, processes, started_in };
        target.await_listening()?;
        target.processes = family(pid);
        Ok(target)
    }

    fn await_listening(&mut self) -> Result<(), String> {
        const PATIENCE: Duration = Duration::from_secs(300);
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            let ended = self.child.as_mut().map(Child::try_wait);
            if let Some(Ok(Some(status))) = ended {
                return Err(format!("{} ended at its start: {status}", self.name));
            }
            if TcpStream::connect(self.address).is_ok() {
                self.started_in = began.elapsed();
                // It listens; one that forks its workers has done so a moment later.
                std::thread::sleep(Duration::from_millis(300));
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(format!("{} did not listen within 300 s", self.name))
    }

    /// Whether it is a Tidegate, with counters to be asked.
    pub(crate) fn is_tidegate(&self) -> bool {
        dialect_is_own(&self.name)
    }

    /// One of the server's own counters, summed over its shards.
    pub(crate) fn counter(&self, name: &str) -> Option<u64> {
        if !self.is_tidegate() {
            return None;
        }
        let text = get(self.address, "/metrics").ok()?;
        let start = format!("{name}{{");
        let lines = text.lines().filter(|line| line.starts_with(&start));
        Some(lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum())
    }

    /// The figures of the server's own hiccup meter, if it has one.
    pub(crate) fn hiccups(&self) -> Option<serde_json::Value> {
        if !self.is_tidegate() {
            return None;
        }
        let text = get(self.address, "/diagnostics/hiccups").ok()?;
        serde_json::from_str(text.split_once("\r\n\r\n")?.1).ok()
    }
}

fn dialect_is_own(name: &str) -> bool {
    name == "tidegate" || name.starts_with("ws://")
}

fn free_address() -> Result<SocketAddr, String> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map_err(|error| cannot("find a free port", &error))
}

fn cannot(what: &str, error: &std::io::Error) -> String {
    format!("cannot {what}: {error}")
}

impl Drop for Target {
    fn drop(&mut self) {
        let Some(child) = &mut self.child else { return };
        // By process id, and only what this run started.
        for pid in family(child.id()).into_iter().skip(1) {
            if let Some(pid) = rustix::process::Pid::from_raw(pid as i32) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            }
        }
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Where a server's messages go: to the file that BENCH_SERVER_LOG names, or nowhere.
fn errors_to() -> Stdio {
    let file = std::env::var_os("BENCH_SERVER_LOG");
    let file =
        file.and_then(|path| std::fs::File::options().append(true).create(true).open(path).ok());
    file.map_or_else(Stdio::null, Stdio::from)
}

pub(crate) fn get(address: SocketAddr, path: &str) -> std::io::Result<String> {
    request(address, path, "")
}

/// The same with a key.
pub(crate) fn get_with(address: SocketAddr, path: &str, key: &str) -> std::io::Result<String> {
    request(address, path, &format!("Authorization: Bearer {key}\r\n"))
}

fn request(address: SocketAddr, path: &str, fields: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: bench\r\n{fields}Connection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
