//! SIGTERM and SIGINT, which end; SIGHUP, which reads anew.

use std::io;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Calls `stop` in a thread of its own at the first SIGTERM or SIGINT. A second one ends the
/// process at once.
///
/// # Errors
/// The handlers cannot be installed.
pub fn on_shutdown_signal(stop: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        let mut stop = Some(stop);
        for _ in signals.forever() {
            match stop.take() {
                Some(stop) => stop(),
                None => std::process::exit(130),
            }
        }
    })?;
    Ok(())
}

/// Calls `reload` in a thread of its own at each SIGHUP.
///
/// # Errors
/// The handler cannot be installed.
pub fn on_reload_signal(reload: impl Fn() + Send + 'static) -> io::Result<()> {
    let mut signals = Signals::new([SIGHUP])?;
    let begin = move || signals.forever().for_each(|_| reload());
    std::thread::Builder::new().name("reload".into()).spawn(begin)?;
    Ok(())
}
