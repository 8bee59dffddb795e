//! Threads for shards: named, pinned if wished, with a descriptor table of their own if wished.

use std::io;
use std::thread::JoinHandle;

use crate::sys;

/// Gives the calling thread a descriptor table of its own that keeps only descriptors below
/// `first_closed`: descriptor limits count per table, and nobody else's descriptors are in it.
///
/// # Errors
/// The kernel (before 5.9) or a container does not allow it; the table then stays shared.
pub fn private_descriptor_table(first_closed: u32) -> io::Result<()> {
    sys::unshare_descriptors_from(first_closed)
}

/// Starts a shard's thread, on processor `core` only if one is given.
///
/// # Errors
/// The system has no room for another thread.
pub fn spawn_shard<T: Send + 'static>(
    name: &str,
    core: Option<usize>,
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    std::thread::Builder::new().name(name.into()).spawn(move || {
        if let Some(core) = core {
            let mut cores = rustix::thread::CpuSet::new();
            cores.set(core);
            // A core that is not there or not ours leaves the thread where the system puts it.
            let _ = rustix::thread::sched_setaffinity(None, &cores);
        }
        run()
    })
}
