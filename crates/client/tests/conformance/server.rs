//! Starts the real server on a free port; kills it, and starts it again on the same one.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Pid, Signal, kill_process};

/// Numbers the directories of one run.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// A server with files of its own.
pub(crate) struct Server {
    /// What starts it, up to where it is to listen.
    command: Vec<PathBuf>,
    directory: PathBuf,
    address: String,
    child: Option<Child>,
}

/// The repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The server that TIDEGATE names, or one that was built here.
pub(crate) fn program() -> PathBuf {
    if let Some(named) = std::env::var_os("TIDEGATE") {
        return named.into();
    }
    let built =
        ["ci", "release"].map(|profile| root().join("target").join(profile).join("tidegate"));
    let found = built.into_iter().find(|path| path.exists());
    found.expect("a server to test against: build it, or set TIDEGATE to its path")
}

impl Server {
    /// A server that is not started yet; `{store}` in `config` is a directory for its store.
    pub(crate) fn new(config: &str) -> Self {
        let directory = fresh_directory();
        let store = directory.join("store").display().to_string();
        let text = format!("[engine]\nshards = 2\n{}", config.replace("{store}", &store));
        let file = directory.join("tidegate.toml");
        std::fs::write(&file, text).expect("its configuration");
        let command = vec![program(), "serve".into(), "--config".into(), file];
        Self { command, directory, address: "127.0.0.1:0".into(), child: None }
    }

    /// The server of the conformance kit that plays the script of a scenario.
    pub(crate) fn play(scenario: &str) -> Self {
        let directory = fresh_directory();
        let file = directory.join("scenario.json");
        std::fs::write(&file, scenario).expect("its script");
        let command = vec!["python3".into(), root().join("sdk/conformance/scripted.py"), file];
        Self { command, directory, address: "127.0.0.1:0".into(), child: None }
    }

    pub(crate) fn port(&self) -> u16 {
        let port = self.address.rsplit(':').next().and_then(|port| port.parse().ok());
        port.expect("an address has a port")
    }

    /// Starts it, the second time where it was before; returns when it listens.
    pub(crate) fn start(&mut self) -> Result<(), String> {
        let mut child = Command::new(&self.command[0])
            .args(&self.command[1..])
            .args(["--listen", &self.address])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start the server: {error}"))?;
        let mut log = BufReader::new(child.stderr.take().expect("it is piped"));
        self.child = Some(child);
        let mut said = String::new();
        loop {
            let before = said.len();
            match log.read_line(&mut said) {
                Ok(1..) => {}
                _ => return Err(format!("the server ended: {said}")),
            }
            if let Some((_, rest)) = said[before..].split_once("listening address=") {
                self.address = rest.split_whitespace().next().unwrap_or(rest).into();
                // What it says from now on has to be taken, or it would wait.
                std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
                return Ok(());
            }
        }
    }

    /// Ends it without a word.
    pub(crate) fn kill(&mut self) {
        self.end(Signal::KILL);
    }

    /// Ends it in order.
    pub(crate) fn stop(&mut self) {
        self.end(Signal::TERM);
    }

    fn end(&mut self, signal: Signal) {
        let Some(mut child) = self.child.take() else { return };
        let pid = Pid::from_raw(child.id().cast_signed()).expect("a process has a number");
        // It may have ended by itself; then there is nothing to wait for.
        let _ = kill_process(pid, signal);
        let _ = child.wait();
    }

    /// Publishes over HTTP, as somebody else would.
    pub(crate) fn publish(&self, body: &str) -> Result<(), String> {
        let text_of = |error: std::io::Error| error.to_string();
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port())).map_err(text_of)?;
        let request = format!(
            "POST /v1/publish HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).map_err(text_of)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).map_err(text_of)?;
        match answer.starts_with("HTTP/1.1 200 ") {
            true => Ok(()),
            false => Err(format!("the server answered {answer}")),
        }
    }
}

fn fresh_directory() -> PathBuf {
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("tidegate-conformance-{}-{number}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&directory).expect("a directory for the server's files");
    directory
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        // What stays behind is in the directory for what may go.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
