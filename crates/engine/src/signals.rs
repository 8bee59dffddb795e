//! SIGTERM and SIGINT, which end; SIGHUP, which reads anew.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

/// The request that a signal stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM or SIGINT: to end.
    Stop,
    /// SIGHUP: to read the configuration anew.
    Reload,
}

/// Calls `handle` for each signal, in a thread of its own, from now on. A second SIGTERM or SIGINT ends the
/// process at once (status 128 + its number), whatever any thread is at.
///
/// # Errors
/// The handlers cannot be installed.
pub fn on_signals(handle: impl FnMut(Signal) + Send + 'static) -> io::Result<()> {
    watch(Signals::new([SIGHUP])?, handle)
}

/// The same for programs that SIGHUP ends like any other.
///
/// # Errors
/// The handlers cannot be installed.
pub fn on_shutdown_signal(mut stop: impl FnMut() + Send + 'static) -> io::Result<()> {
    watch(Signals::new([0; 0])?, move |_| stop())
}

fn watch(mut signals: Signals, mut handle: impl FnMut(Signal) + Send + 'static) -> io::Result<()> {
    let is_stopping = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        signals.add_signal(signal)?;
        // In this order: the first signal finds the flag down, and puts it up.
        flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&is_stopping))?;
        flag::register(signal, Arc::clone(&is_stopping))?;
    }
    let begin = move || {
        for signal in signals.forever() {
            handle(if signal == SIGHUP { Signal::Reload } else { Signal::Stop });
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(begin)?;
    Ok(())
}
