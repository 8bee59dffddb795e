//! The server's log: one event a line on standard error, as text or as JSON.
//!
//! A line is made where its event happens, and written by a thread of its own: a shard never waits for a terminal or a
//! pipe. Lines that find no room are dropped, and the log says how many. Decision 0040.

use std::io::{self, IsTerminal, Write};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{
    Receiver, Sender, SyncSender, TryRecvError, TrySendError, channel, sync_channel,
};
use std::time::{Duration, Instant};

use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Registry, reload};

use crate::args::{LogArgs, LogFormat};
use crate::log_level::LogLevel;
use crate::{Failure, Outcome};

/// Lines that wait to be written.
const LINES_WAITING_MAX: usize = 4_096;
/// Bytes of a line; the rest of a longer one is cut off.
const LINE_BYTES_MAX: usize = 16 << 10;
/// How long the last lines may take to be written when the program ends.
const END_PATIENCE: Duration = Duration::from_secs(1);

/// Changes the level while the program runs.
#[derive(Clone)]
pub(crate) struct LogLevels(reload::Handle<Targets, Registry>);

impl LogLevels {
    /// Logs by `text` from now on, which the configuration has checked.
    pub(crate) fn set(&self, text: &str) {
        let set = LogLevel::from_str(text)
            .and_then(|level| self.0.reload(level.targets).map_err(|error| error.to_string()));
        if let Err(error) = set {
            tracing::error!("cannot change the level of the log: {error}; start the server again");
        }
    }
}

/// The input of the thread that writes.
enum Job {
    Line(Vec<u8>),
    /// Tell when all that came before is written.
    Flush(Sender<()>),
}

/// The running log.
pub(crate) struct Log {
    levels: LogLevels,
    lines: Lines,
    format: LogFormat,
}

impl Log {
    /// Starts to log what the process does.
    pub(crate) fn start(args: &LogArgs, level: &str) -> Result<Self, (Failure, String)> {
        let cannot = |error: &dyn std::fmt::Display| {
            (Failure::Other, format!("cannot start the log: {error}; free some memory"))
        };
        let (lines, jobs) = Lines::new();
        let lost = Arc::clone(&lines.lost);
        std::thread::Builder::new()
            .name("log".into())
            .spawn(move || write_all(&jobs, &lost, io::stderr()))
            .map_err(|error| cannot(&error))?;
        let level = LogLevel::from_str(level).map_err(|error| (Failure::Usage, error))?;
        let (filter, handle) = reload::Layer::new(level.targets);
        let registry = tracing_subscriber::registry().with(filter);
        let layer = tracing_subscriber::fmt::layer().with_target(false).with_writer(lines.clone());
        let set = match args.format {
            LogFormat::Text => {
                let layer = layer.with_ansi(io::stderr().is_terminal());
                tracing::subscriber::set_global_default(registry.with(layer))
            }
            LogFormat::Json => {
                let layer = layer.json().flatten_event(true).with_current_span(false);
                tracing::subscriber::set_global_default(registry.with(layer))
            }
        };
        set.map_err(|error| cannot(&error))?;
        Ok(Self { levels: LogLevels(handle), lines, format: args.format })
    }

    /// The handle that changes its level.
    pub(crate) fn levels(&self) -> LogLevels {
        self.levels.clone()
    }

    /// Writes the last lines. Where the log is JSON, what the program failed of is its last line and told nowhere else.
    pub(crate) fn finish(self, outcome: Outcome) -> Outcome {
        let outcome = match (outcome, self.format) {
            (Err((failure, text)), LogFormat::Json) => {
                tracing::error!("{text}");
                Err((failure, String::new()))
            }
            (outcome, _) => outcome,
        };
        self.lines.flush(END_PATIENCE);
        outcome
    }
}

/// Where lines are handed over.
#[derive(Clone, Debug)]
struct Lines {
    jobs: SyncSender<Job>,
    lost: Arc<AtomicU64>,
}

impl Lines {
    fn new() -> (Self, Receiver<Job>) {
        let (jobs, taken) = sync_channel(LINES_WAITING_MAX);
        (Self { jobs, lost: Arc::default() }, taken)
    }

    /// Waits until all lines are written, but not longer than `patience`.
    fn flush(&self, patience: Duration) {
        let until = Instant::now() + patience;
        let (tell, hear) = channel();
        let mut job = Job::Flush(tell);
        while let Err(TrySendError::Full(back)) = self.jobs.try_send(job) {
            if Instant::now() >= until {
                return;
            }
            job = back;
            std::thread::sleep(Duration::from_millis(10));
        }
        // Who takes longer writes to nobody.
        let _ = hear.recv_timeout(until.saturating_duration_since(Instant::now()));
    }
}

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut kept = line[..line.len().min(LINE_BYTES_MAX)].to_vec();
        if kept.len() < line.len() {
            kept.push(b'\n');
        }
        if self.jobs.try_send(Job::Line(kept)).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// Writes lines until nobody logs any more. Lost lines are reported once there is room again.
fn write_all(jobs: &Receiver<Job>, lost: &AtomicU64, mut out: impl Write) {
    loop {
        let job = match jobs.try_recv() {
            Ok(job) => job,
            Err(TryRecvError::Disconnected) => return,
            Err(TryRecvError::Empty) => {
                let count = lost.swap(0, Ordering::Relaxed);
                if count > 0 {
                    tracing::warn!(
                        count,
                        "lines of this log are missing here: standard error took them too slowly"
                    );
                }
                let Ok(job) = jobs.recv() else { return };
                job
            }
        };
        match job {
            // There is nowhere else to say that it fails.
            Job::Line(line) => drop(out.write_all(&line)),
            // Whoever waited may have given up.
            Job::Flush(tell) => drop(tell.send(())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use super::*;

    /// The output, which a test can hold up by its lock.
    #[derive(Clone, Default)]
    struct Slow(Arc<Mutex<Vec<u8>>>);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn who_logs_never_waits_for_who_writes() {
        let (mut lines, jobs) = Lines::new();
        let (slow, lost) = (Slow::default(), Arc::clone(&lines.lost));
        let held = slow.0.lock().expect("nobody panics with it");
        let out = slow.clone();
        let writer = std::thread::spawn(move || write_all(&jobs, &lost, out));
        let count = LINES_WAITING_MAX + 1_000;
        (0..count).for_each(|_| lines.write_all(b"a line\n").expect("never fails"));
        // One may be in the writer's hands.
        let dropped = lines.lost.load(Ordering::Relaxed);
        assert!((999..=1_000).contains(&dropped), "{dropped}");
        lines.flush(Duration::from_millis(1));
        drop(held);
        drop(lines);
        writer.join().expect("it ends when nobody logs any more");
        let written = slow.0.lock().expect("nobody panics with it");
        assert_eq!(written.len(), (count - dropped as usize) * b"a line\n".len());
    }

    #[test]
    fn a_long_line_is_cut_off_and_stays_one() {
        let (mut lines, jobs) = Lines::new();
        lines.write_all(&[b'x'; LINE_BYTES_MAX + 5]).expect("never fails");
        let Ok(Job::Line(line)) = jobs.try_recv() else { panic!("there is one") };
        assert!(line.len() == LINE_BYTES_MAX + 1 && line.ends_with(b"x\n"));
    }
}
