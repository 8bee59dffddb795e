//! The certificates of all listeners: read at the start, and again when their files change or a reload is asked for.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use engine::{Supervision, Supervisor};
use listener::TlsSource;

use crate::config::ListenerConfig;
use crate::start_error::StartError;

/// How often the files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How soon a stop is heard of.
const PAUSE: Duration = Duration::from_millis(100);

/// The TLS of each listener, in the order of the configuration.
#[derive(Clone, Debug)]
pub(crate) struct Certificates(Arc<[Option<AtAddress>]>);

/// A listener that speaks TLS.
type AtAddress = (SocketAddr, Arc<TlsSource>);

/// What a file was when it was last looked at.
type Stamp = Option<(SystemTime, u64)>;

impl Certificates {
    /// Reads what the listeners name.
    ///
    /// # Errors
    /// Something of it does not hold.
    pub fn load(listeners: Vec<ListenerConfig>) -> Result<Self, StartError> {
        let load = |it: ListenerConfig| {
            let Some(files) = it.tls else { return Ok(None) };
            let source = TlsSource::load(files).map_err(|why| {
                StartError::new(format!("cannot listen on {} with TLS: {why}", it.address))
            })?;
            Ok(Some((it.address, Arc::new(source))))
        };
        listeners.into_iter().map(load).collect::<Result<_, _>>().map(Self)
    }

    /// The TLS of the listener at a place.
    pub fn of(&self, listener: usize) -> Option<Arc<TlsSource>> {
        self.0.get(listener)?.as_ref().map(|(_, source)| Arc::clone(source))
    }

    /// Reads all files anew, for the connections from then on. What does not hold is told, and what went before goes on.
    pub fn reload(&self) {
        for (address, source) in self.0.iter().flatten() {
            match source.reload() {
                Ok(()) => tracing::info!(%address, "certificates taken over"),
                Err(why) => {
                    tracing::error!(%address, "certificates not taken over: {why}; the old ones go on")
                }
            }
        }
    }

    fn stamps(&self) -> Vec<Stamp> {
        let of = |path: &Path| {
            let known = std::fs::metadata(path).ok()?;
            Some((known.modified().ok()?, known.len()))
        };
        let sources = self.0.iter().flatten().map(|(_, source)| source.files());
        sources.flat_map(|files| files.paths()).map(of).collect()
    }

    /// Starts looking at the files, if there are any.
    pub fn watch(&self, supervisor: &Supervisor) -> std::io::Result<Option<Watch>> {
        if self.0.iter().all(Option::is_none) {
            return Ok(None);
        }
        let is_stopping = Arc::new(AtomicBool::new(false));
        let (stop, own) = (Arc::clone(&is_stopping), self.clone());
        let mut known = own.stamps();
        supervisor.spawn(WATCH, Supervision::Awaited, move || {
            let mut looked_at = Instant::now();
            while !stop.load(Ordering::Relaxed) {
                std::thread::sleep(PAUSE);
                if looked_at.elapsed() < LOOK_EVERY {
                    continue;
                }
                looked_at = Instant::now();
                let stamps = own.stamps();
                if stamps != known {
                    known = stamps;
                    own.reload();
                }
            }
        })?;
        Ok(Some(Watch { is_stopping }))
    }
}

/// The name of the thread.
pub(crate) const WATCH: &str = "certificates";

/// The thread that looks at the files.
#[derive(Debug)]
pub(crate) struct Watch {
    is_stopping: Arc<AtomicBool>,
}

impl Watch {
    /// Lets it end.
    pub fn stop(self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }
}
