//! The system calls that need `unsafe`, each in a small wrapper.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

/// Lets a program that is about to be started be killed when the thread that starts it ends, whatever ends that.
pub fn end_with_starter(command: &mut Command) {
    let starter = getpid();
    let tie = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        match getppid() {
            Some(parent) if parent == starter => Ok(()),
            _ => Err(io::ErrorKind::BrokenPipe.into()),
        }
    };
    // SAFETY: between fork and exec it makes two system calls and allocates nothing.
    unsafe { command.pre_exec(tie) };
}

/// Gives the calling thread a descriptor table of its own, without the descriptors from `first` on.
pub(crate) fn unshare_descriptors_from(first: u32) -> io::Result<()> {
    // SAFETY: the call takes no pointers. Descriptors from `first` on are closed only in the new
    // table, which nobody but this thread uses; their owners keep theirs. The caller makes none of
    // its own descriptors at or above `first` before this call.
    let result =
        unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, libc::CLOSE_RANGE_UNSHARE) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Keeps unsent bytes in the socket's buffer below `bytes`, so that a full socket shows early.
pub(crate) fn set_notsent_lowat(socket: BorrowedFd<'_>, bytes: u32) -> io::Result<()> {
    let value = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    // SAFETY: the pointer is to a live integer of the length given, read during the call only.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_NOTSENT_LOWAT,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// How many descriptors one table may hold now.
pub fn descriptor_limit() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Raises that number as far as the system lets this process; answers what it is then.
pub fn raise_descriptor_limit() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        // Failing leaves the limit as it is, which is what the answer then says.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    }
    descriptor_limit()
}
