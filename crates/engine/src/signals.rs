//! SIGTERM and SIGINT.

use std::io;

use signal_hook::consts::{SIGINT, SIGTERM};
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
