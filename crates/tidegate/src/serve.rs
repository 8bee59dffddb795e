//! `tidegate serve` and `tidegate demo`.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bridges::Plan;
use engine::{Signal, on_signals};
use model::Limits;
use sd_notify::NotifyState;
use server::Server;
use server::config::{Reloaded, Sources};

use crate::args::{Remote, ServeArgs, SettingsArgs};
use crate::config::{bad, sources};
use crate::log::{Log, LogLevels};
use crate::{Failure, Outcome, feed};

pub(crate) fn serve(args: &ServeArgs) -> Outcome {
    let signals = Signals::watch()?;
    let log = Log::start(&args.log, &level_of(&args.settings))?;
    let started = start(&args.settings, &args.settings.origins, &signals, log.levels());
    log.finish(started.and_then(wait))
}

/// The level of the log from the first line on: the flag's, or the usual one, where the configuration is wrong.
fn level_of(args: &SettingsArgs) -> String {
    let config = sources(args, &[]).and_then(|it| it.config());
    let flag = || args.log_level.as_ref().map_or("info".into(), |level| level.text.clone());
    config.map_or_else(|_| flag(), |config| config.log_level)
}

fn wait(server: Server) -> Outcome {
    server.wait().map_err(|error| (Failure::Other, error.to_string()))?;
    tracing::info!("stopped");
    Ok(())
}

/// A server, and the feed in a thread beside it that publishes like any other client.
pub(crate) fn demo(args: &ServeArgs) -> Outcome {
    let signals = Signals::watch()?;
    let log = Log::start(&args.log, &level_of(&args.settings))?;
    // Who tries it out does so from a page of a development server.
    let origins: Vec<String> =
        args.settings.origins.iter().cloned().chain(["loopback".into()]).collect();
    let started = start(&args.settings, &origins, &signals, log.levels());
    log.finish(started.and_then(show))
}

fn show(server: Server) -> Outcome {
    let address = server.address();
    println!(
        "Open http://{address}/demo in a browser: this machine's readings and a synthetic market."
    );
    println!("Or: tidegate sub 'markets/ftse/+' --server ws://{address}");
    let remote = Remote { server: format!("ws://{address}"), token: None, ca: None };
    std::thread::Builder::new()
        .name("feed".into())
        .spawn(move || {
            if let Err((_, text)) = feed::feed(&remote) {
                eprintln!("tidegate: the feed ended: {text}");
            }
        })
        .map_err(|error| (Failure::Other, format!("cannot start the feed: {error}")))?;
    wait(server)
}

fn start(
    args: &SettingsArgs,
    origins: &[String],
    signals: &Signals,
    levels: LogLevels,
) -> Result<Server, (Failure, String)> {
    let (version, commit) = (env!("CARGO_PKG_VERSION"), env!("TIDEGATE_COMMIT"));
    let file =
        args.config.as_deref().map_or("none: defaults".into(), std::path::Path::to_string_lossy);
    tracing::info!(version, commit, config = &*file, process = std::process::id(), "starting");
    let started = sources(args, origins).map_err(bad)?;
    let config = started.config().map_err(bad)?;
    let plan = Plan::new(&config).map_err(|error| (Failure::BadConfig, error.to_string()))?;
    let reading = Reading { args: args.clone(), origins: origins.to_vec(), levels };
    let server = Server::start(config).map_err(|error| (Failure::Other, error.to_string()))?;
    let bridges = plan.start(&server).map_err(|error| (Failure::Other, error.to_string()))?;
    let stopper = server.stopper();
    let stop = move || {
        tracing::info!("stopping: a signal asked for it; clients are told to come back");
        tell_service_manager(NotifyState::Stopping);
        stopper.begin();
        bridges.stop();
        stopper.stop();
    };
    // Before a stop can be asked for: a manager is never told "stopping" and then "ready".
    tell_service_manager(NotifyState::Ready);
    signals.hand_over(Box::new(stop), reload_of(&server, reading, started));
    Ok(server)
}

/// Tells systemd, or whoever else started the server and set `NOTIFY_SOCKET`: sd_notify(3).
fn tell_service_manager(state: NotifyState) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(
            "cannot tell the service manager, which may stop the server: {error}; NOTIFY_SOCKET \
             must name a socket that this process can reach, or be unset"
        );
    }
}

/// The settings of a server, read again.
struct Reading {
    args: SettingsArgs,
    origins: Vec<String>,
    levels: LogLevels,
}

/// Handles SIGHUP.
fn reload_of(server: &Server, reading: Reading, started: Sources) -> Box<dyn Fn() + Send> {
    let reloader = server.reloader();
    let before = Mutex::new(started.clone());
    Box::new(move || {
        let mut before = before.lock().unwrap_or_else(PoisonError::into_inner);
        let read = sources(&reading.args, &reading.origins);
        if read.as_ref().is_ok_and(|it| !it.has_files()) {
            return tracing::info!("nothing to read anew: the server has no --config");
        }
        let reloaded = read.and_then(|it| Ok((it.reloaded(&started, &before)?, it)));
        let (Reloaded { config, taken, waiting }, now) = match reloaded {
            Ok(reloaded) => reloaded,
            Err(error) => return tracing::error!("not taken over: {error}"),
        };
        for setting in waiting {
            tracing::warn!(
                "not taken over: `{setting}` was changed, and goes only after a restart"
            );
        }
        reading.levels.set(&config.log_level);
        reloader.take_over(config);
        tracing::info!(changed = %taken.join(" "), "configuration taken over");
        *before = now;
    })
}

/// The signals of a server: caught from the first line on, carried out once it has started.
struct Signals(Arc<Mutex<Wishes>>);

#[derive(Default)]
struct Wishes {
    stop: Option<Box<dyn FnOnce() + Send>>,
    reload: Option<Box<dyn Fn() + Send>>,
    /// They came before the server could carry them out.
    early: Vec<Signal>,
}

impl Signals {
    /// Catches signals from now on.
    fn watch() -> Result<Self, (Failure, String)> {
        let wishes = Arc::new(Mutex::new(Wishes::default()));
        let own = Self(Arc::clone(&wishes));
        on_signals(move |signal| own.handle(signal))
            .map_err(|error| (Failure::Other, format!("cannot watch for signals: {error}")))?;
        Ok(Self(wishes))
    }

    /// Says what they do from now on, and carries out what came before.
    fn hand_over(&self, stop: Box<dyn FnOnce() + Send>, reload: Box<dyn Fn() + Send>) {
        let early = {
            let mut wishes = self.wishes();
            (wishes.stop, wishes.reload) = (Some(stop), Some(reload));
            std::mem::take(&mut wishes.early)
        };
        early.into_iter().for_each(|signal| self.carry_out(signal));
    }

    fn handle(&self, signal: Signal) {
        let is_early = {
            let mut wishes = self.wishes();
            let is_early = wishes.reload.is_none();
            if is_early && !wishes.early.contains(&signal) {
                wishes.early.push(signal);
            }
            is_early
        };
        if !is_early {
            self.carry_out(signal);
        } else if signal == Signal::Stop {
            end_a_start_that_hangs();
        }
    }

    fn carry_out(&self, signal: Signal) {
        let mut wishes = self.wishes();
        match signal {
            Signal::Reload => {
                if let Some(reload) = &wishes.reload {
                    reload();
                }
            }
            Signal::Stop => {
                let stop = wishes.stop.take();
                drop(wishes);
                if let Some(stop) = stop {
                    stop();
                }
            }
        }
    }

    fn wishes(&self) -> std::sync::MutexGuard<'_, Wishes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends the process if its start takes too long to be stopped after it; otherwise it is gone before.
fn end_a_start_that_hangs() {
    let patience: Duration = Limits::default().stop_ms;
    std::thread::sleep(2 * patience);
    eprintln!("tidegate: the server did not stop: its start is not over");
    std::process::exit(Failure::Other as i32);
}
