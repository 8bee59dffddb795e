//! A hiccup meter: how much longer than 1 ms a thread that sleeps 1 ms sleeps. It tells what the
//! machine and its other work add to every latency beside it.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::cores::pin;
use crate::findings::histogram;
use crate::shared::Shared;

const NAP: Duration = Duration::from_millis(1);

/// Sleeps on `cores` until the run is over; answers how many nanoseconds each nap was too long,
/// of those in measured phases.
pub(crate) fn start(cores: &[usize], shared: &Arc<Shared>) -> JoinHandle<Histogram<u64>> {
    let (cores, shared) = (cores.to_vec(), Arc::clone(shared));
    std::thread::spawn(move || {
        pin(&cores);
        let mut over = histogram(3);
        while !shared.is_over() {
            let began = Instant::now();
            std::thread::sleep(NAP);
            if shared.phase() > 0 {
                over.saturating_record((began.elapsed() - NAP).as_nanos() as u64);
            }
        }
        over
    })
}
