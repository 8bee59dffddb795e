//! The requests of a shard's thread to the machine: a core if wished, a descriptor table of its own if wished.

use std::io;

use crate::sys;

/// Gives the calling thread a descriptor table of its own that keeps only descriptors below
/// `first_closed`: descriptor limits count per table, and nobody else's descriptors are in it.
///
/// # Errors
/// The kernel (before 5.9) or a container does not allow it; the table then stays shared.
pub fn private_descriptor_table(first_closed: u32) -> io::Result<()> {
    sys::unshare_descriptors_from(first_closed)
}

/// Keeps the calling thread on processor `core`. One that is not there or not ours leaves the thread where the
/// system puts it.
pub fn pin_to_core(core: usize) {
    let mut cores = rustix::thread::CpuSet::new();
    cores.set(core);
    let _ = rustix::thread::sched_setaffinity(None, &cores);
}
