//! Which cores the server gets, and which the load: never the same, if the machine has two.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The cores of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cores {
    pub server: Vec<usize>,
    pub load: Vec<usize>,
}

impl Cores {
    /// The first half for the server, the rest for the load.
    pub(crate) fn split() -> Self {
        let allowed: Vec<usize> = match sched_getaffinity(None) {
            Ok(set) => (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect(),
            Err(_) => vec![0],
        };
        if allowed.len() < 2 {
            return Self { server: allowed.clone(), load: allowed };
        }
        let (server, load) = allowed.split_at(allowed.len() / 2);
        Self { server: server.to_vec(), load: load.to_vec() }
    }
}

/// Keeps the calling thread, and what it starts, on some cores.
pub(crate) fn pin(cores: &[usize]) {
    let mut set = CpuSet::new();
    cores.iter().for_each(|core| set.set(*core));
    // A machine that forbids it still measures, only with more noise.
    let _ = sched_setaffinity(None, &set);
}
