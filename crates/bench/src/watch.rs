//! Watching a run from outside: a few times a second, what was delivered and what it cost.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};

use crate::sample::{Cpu, Memory};
use crate::shared::Shared;

/// One look.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Look {
    pub at_s: f64,
    pub phase: usize,
    pub live: usize,
    pub delivered: u64,
    pub cpu_us: f64,
    pub resident: u64,
    pub slab: u64,
}

const PERIOD: Duration = Duration::from_millis(250);

/// Looks until the run is over.
pub(crate) fn start(processes: Vec<u32>, shared: &Arc<Shared>) -> JoinHandle<Vec<Look>> {
    let shared = Arc::clone(shared);
    std::thread::spawn(move || {
        let mut looks = Vec::new();
        while !shared.is_over() {
            let memory = Memory::of(&processes);
            looks.push(Look {
                at_s: shared.now_ns() as f64 / 1e9,
                phase: shared.phase(),
                live: shared.live(),
                delivered: shared.delivered(),
                cpu_us: Cpu::of(&processes).total_us(),
                resident: memory.resident,
                slab: memory.slab,
            });
            std::thread::sleep(PERIOD);
        }
        looks
    })
}

/// The looks as series of numbers: each rate is of the time since the look before.
pub(crate) fn series(looks: &[Look]) -> Value {
    let rate = |of: &dyn Fn(&Look) -> f64| -> Vec<f64> {
        let pairs = looks.windows(2);
        pairs.map(|pair| (of(&pair[1]) - of(&pair[0])) / (pair[1].at_s - pair[0].at_s)).collect()
    };
    let later = looks.get(1..).unwrap_or_default();
    let each = |of: &dyn Fn(&Look) -> f64| -> Vec<f64> { later.iter().map(of).collect() };
    json!({
        "seconds": each(&|look| look.at_s),
        "phase": each(&|look| look.phase as f64),
        "connections": each(&|look| look.live as f64),
        "messages_per_second": rate(&|look| look.delivered as f64),
        "server_cores": rate(&|look| look.cpu_us / 1e6),
        "server_resident_bytes": each(&|look| look.resident as f64),
        "kernel_slab_bytes": each(&|look| look.slab as f64),
    })
}

/// Server CPU µs per delivered message in windows of a second, of measured phases: how much it
/// varies within one run tells what a difference between two is worth.
pub(crate) fn cpu_per_message(looks: &[Look]) -> Vec<f64> {
    let measured: Vec<&Look> = looks.iter().filter(|look| look.phase > 0).collect();
    let windows = measured.windows(5).step_by(4);
    windows
        .filter_map(|window| {
            let (first, last) = (window.first()?, window.last()?);
            let count = last.delivered - first.delivered;
            (count > 0).then(|| (last.cpu_us - first.cpu_us) / count as f64)
        })
        .collect()
}
