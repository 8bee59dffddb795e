//! The publisher: writes at the intended times, whatever the server does, and measures how late it
//! was itself.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::stamp::{self, Stamp};
use crate::swarm::Shared;
use crate::target::pin;
use crate::wire;

/// What is to be published.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub topics: Vec<String>,
    pub payload_bytes: usize,
    /// Publications per topic and second.
    pub rate: f64,
    /// All topics back to back in each round, rather than spread evenly over it.
    pub is_burst: bool,
}

/// What became of it.
#[derive(Debug)]
pub(crate) struct Published {
    pub count: u64,
    pub late_ns: Histogram<u64>,
}

/// Starts publishing until `is_over`.
pub(crate) fn start(
    plan: Plan,
    address: SocketAddr,
    shared: &Arc<Shared>,
) -> JoinHandle<Result<Published, String>> {
    let shared = Arc::clone(shared);
    std::thread::spawn(move || {
        pin(1);
        publish(&plan, address, &shared).map_err(|error| format!("cannot publish: {error}"))
    })
}

fn publish(plan: &Plan, address: SocketAddr, shared: &Shared) -> std::io::Result<Published> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.write_all(wire::HANDSHAKE)?;
    let mut answer = [0; 512];
    let _ = stream.read(&mut answer)?;
    let late_ns = Histogram::new_with_bounds(1_000, 600_000_000_000, 3).expect("valid bounds");
    let mut published = Published { count: 0, late_ns };
    let mut payload = vec![0; plan.payload_bytes];
    let mut numbers = vec![0u64; plan.topics.len()];
    // Topics of one group are due at the same instant.
    let groups = if plan.is_burst { 1 } else { plan.topics.len().min(1_000) };
    let interval = Duration::from_secs_f64(1.0 / (plan.rate * groups as f64));
    let (began, mut frames) = (shared.now_ns(), Vec::new());
    for tick in 0u64.. {
        let due_ns = began + (interval.as_nanos() as u64) * tick;
        while shared.now_ns() < due_ns {
            if shared.is_over.load(Ordering::Relaxed) {
                return Ok(published);
            }
            let left = Duration::from_nanos(due_ns.saturating_sub(shared.now_ns()));
            std::thread::sleep(left.min(Duration::from_millis(50)));
        }
        if shared.is_over.load(Ordering::Relaxed) {
            return Ok(published);
        }
        let group = (tick % groups as u64) as usize;
        let mut records = Vec::new();
        for topic in (group..plan.topics.len()).step_by(groups) {
            numbers[topic] += 1;
            let stamp = Stamp { intended_ns: due_ns, number: numbers[topic] };
            stamp::write(stamp, &mut payload);
            wire::append_publish(&plan.topics[topic], &payload, &mut records);
            published.count += 1;
            if records.len() > 512 << 10 {
                wire::append_frame(&records, &mut frames);
                records.clear();
            }
        }
        wire::append_frame(&records, &mut frames);
        stream.write_all(&frames)?;
        frames.clear();
        if shared.is_measuring.load(Ordering::Relaxed) {
            published.late_ns.saturating_record(shared.now_ns().saturating_sub(due_ns));
        }
    }
    Ok(published)
}

/// Waits until `is_true`, at most `patience`; tells how it goes on `what`.
pub(crate) fn await_true(
    what: &str,
    patience: Duration,
    mut is_true: impl FnMut() -> bool,
) -> Result<(), String> {
    let until = Instant::now() + patience;
    while !is_true() {
        if Instant::now() >= until {
            return Err(format!("{what} did not happen within {} s", patience.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
