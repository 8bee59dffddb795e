//! The file `MARK` beside the log: how many records were ever made durable, and the store's format.
//!
//! fjall drops what follows a damaged place in its journal without a word; the mark shows it. The format
//! stands here too, so that an older program leaves the files of a newer one untouched.
//!
//! Records (8 bytes, big-endian), format (8), CRC-32 of both (4). Format 1 had the first 8 bytes only.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::record::checksum;

const LEN: usize = 20;

/// The open file.
pub(super) struct Mark(File);

/// The content of the mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Marked {
    pub written: u64,
    pub format: u64,
}

impl Mark {
    /// Opens it, made if there is none.
    pub fn open(folder: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        options.open(folder.join("MARK")).map(Self)
    }

    /// The content of the mark; `None` if it is damaged.
    pub fn read(&self) -> io::Result<Option<Marked>> {
        let mut bytes = [0; LEN];
        let len = usize::try_from(self.0.metadata()?.len()).map_or(LEN, |len| len.min(LEN));
        self.0.read_exact_at(&mut bytes[..len], 0)?;
        let number = |at: usize| u64::from_be_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        let sum = u32::from_be_bytes(std::array::from_fn(|byte| bytes[16 + byte]));
        Ok(match len {
            0 => Some(Marked { written: 0, format: 0 }),
            8 => Some(Marked { written: number(0), format: 1 }),
            LEN if checksum(&bytes[..8], &bytes[8..16]) == sum => {
                Some(Marked { written: number(0), format: number(8) })
            }
            _ => None,
        })
    }

    /// Writes it. Not made durable by itself: it may be behind after a power loss, never ahead.
    pub fn write(&self, marked: Marked) -> io::Result<()> {
        let mut bytes = [0; LEN];
        bytes[..8].copy_from_slice(&marked.written.to_be_bytes());
        bytes[8..16].copy_from_slice(&marked.format.to_be_bytes());
        let sum = checksum(&bytes[..8], &bytes[8..16]);
        bytes[16..].copy_from_slice(&sum.to_be_bytes());
        self.0.write_all_at(&bytes, 0)
    }
}
