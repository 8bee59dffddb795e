//! Where a store lives: the identity of its `LOCK`, kept inside the store, shows a copy put in its place.
//!
//! kill -9 and the loss of power leave the file as it is; copying a directory, or putting back a backup,
//! makes another one. Moving a directory within a file system keeps it.

use std::fs::{File, OpenOptions};
use std::path::Path;

use rustix::fs::{AtFlags, FlockOperation, StatxFlags, flock, statx};

use super::open::{OpenError, cannot};

/// The lock on a store's directory, held for as long as the store is open.
pub(super) struct Lock(File);

/// Inode (8 bytes), time of birth in seconds (8) and nanoseconds (4), big-endian; times are 0 where the
/// file system knows none.
pub(super) type Identity = [u8; 20];

impl Lock {
    /// Takes the lock.
    ///
    /// # Errors
    /// Another process holds it, or the directory may not be written.
    pub fn take(path: &Path) -> Result<Self, OpenError> {
        let how = "check that the directory may be written";
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        let file = options.open(path.join("LOCK")).map_err(|error| cannot(path, error, how))?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
            let how = "stop that one, or use another store.path";
            cannot(path, "another process has it open", how)
        })?;
        Ok(Self(file))
    }

    /// Which file it is; `None` where the system cannot tell.
    pub fn identity(&self) -> Option<Identity> {
        let wanted = StatxFlags::INO | StatxFlags::BTIME;
        let known = statx(&self.0, c"", AtFlags::EMPTY_PATH, wanted).ok()?;
        let has_birth = known.stx_mask & StatxFlags::BTIME.bits() != 0;
        let birth =
            if has_birth { known.stx_btime } else { return Some(inode_only(known.stx_ino)) };
        let mut identity = inode_only(known.stx_ino);
        identity[8..16].copy_from_slice(&birth.tv_sec.to_be_bytes());
        identity[16..].copy_from_slice(&birth.tv_nsec.to_be_bytes());
        Some(identity)
    }
}

fn inode_only(inode: u64) -> Identity {
    let mut identity = Identity::default();
    identity[..8].copy_from_slice(&inode.to_be_bytes());
    identity
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Other descriptor tables of this process may have a copy of the descriptor, which would hold the lock.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}
