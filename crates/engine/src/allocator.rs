//! An allocator that counts what it hands out, so that nothing can be forgotten in a sum.
//!
//! It is not the place where anything is refused: whoever is about to allocate much asks first.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::sync::atomic::{AtomicIsize, Ordering};

/// Bytes that all threads together have allocated and not freed, as far as they told.
static ALLOCATED: AtomicIsize = AtomicIsize::new(0);

/// The bytes that a thread allocates or frees before it tells the others.
const UNTOLD_BYTES_MAX: isize = 16 << 10;

thread_local! {
    /// The bytes that this thread allocated less those that it freed, since it told last. Needs no destructor and no set-up,
    /// so that counting never allocates itself; of a thread that ends, at most this much is missed.
    static UNTOLD: Cell<isize> = const { Cell::new(0) };
}

/// Counts what another allocator hands out. For `#[global_allocator]`.
#[derive(Debug)]
pub struct CountingAllocator<A>(pub A);

/// Bytes that are allocated, all threads together, give or take 16 KiB for each thread. Always 0 in a program
/// without a [`CountingAllocator`].
pub fn allocated_bytes() -> u64 {
    ALLOCATED.load(Ordering::Relaxed).max(0) as u64
}

fn count(bytes: isize) {
    UNTOLD.with(|untold| {
        let sum = untold.get() + bytes;
        if sum.abs() < UNTOLD_BYTES_MAX {
            untold.set(sum);
        } else {
            untold.set(0);
            ALLOCATED.fetch_add(sum, Ordering::Relaxed);
        }
    });
}

// SAFETY: every call goes to `A` as it came, and its answer back as it is; `A` keeps the contract.
// Counting beside it touches a cell of this thread and an atomic: it neither allocates nor unwinds.
unsafe impl<A: GlobalAlloc> GlobalAlloc for CountingAllocator<A> {
    // SAFETY: the caller keeps `GlobalAlloc::alloc`'s contract.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        let pointer = unsafe { self.0.alloc(layout) };
        if !pointer.is_null() {
            count(layout.size() as isize);
        }
        pointer
    }

    // SAFETY: the caller keeps `GlobalAlloc::alloc_zeroed`'s contract.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        let pointer = unsafe { self.0.alloc_zeroed(layout) };
        if !pointer.is_null() {
            count(layout.size() as isize);
        }
        pointer
    }

    // SAFETY: the caller keeps `GlobalAlloc::dealloc`'s contract.
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { self.0.dealloc(pointer, layout) }
    }

    // SAFETY: the caller keeps `GlobalAlloc::realloc`'s contract.
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        let moved = unsafe { self.0.realloc(pointer, layout, size) };
        if !moved.is_null() {
            count(size as isize - layout.size() as isize);
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use std::alloc::System;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use super::*;

    #[global_allocator]
    static COUNTED: CountingAllocator<System> = CountingAllocator(System);

    /// The tests of the engine that hold no [`alone`] allocate less than this meanwhile.
    const OTHERS_BYTES_MAX: u64 = 8 << 20;

    /// The sum is one for the whole process: a test that allocates much waits until no other does.
    fn alone() -> MutexGuard<'static, ()> {
        static ALONE: Mutex<()> = Mutex::new(());
        ALONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[track_caller]
    fn check_grown(since: u64, by: u64) {
        let grown = allocated_bytes().saturating_sub(since);
        assert!(grown.abs_diff(by) < OTHERS_BYTES_MAX, "{grown} instead of about {by}");
    }

    #[test]
    fn what_is_allocated_grown_moved_to_other_threads_and_freed_is_counted() {
        const LARGE: u64 = 64 << 20;
        let _alone = alone();
        let before = allocated_bytes();
        let mut large: Vec<u8> = Vec::with_capacity(LARGE as usize);
        check_grown(before, LARGE);
        large.reserve_exact(2 * LARGE as usize);
        check_grown(before, 2 * LARGE);
        let zeroed = vec![0_u8; LARGE as usize];
        check_grown(before, 3 * LARGE);
        std::thread::spawn(move || drop(large)).join().expect("it frees");
        check_grown(before, LARGE);
        drop(zeroed);
        check_grown(before, 0);
    }

    #[test]
    fn many_small_allocations_add_up() {
        let _alone = alone();
        let before = allocated_bytes();
        let small: Vec<Box<[u8; 100]>> = (0..320_000).map(|_| Box::new([0; 100])).collect();
        check_grown(before, 320_000 * 108);
        drop(small);
        check_grown(before, 0);
    }
}
