//! The embedded log on a disk: fjall under it, one thread that writes, one that reads.
//!
//! Records of all shards go through one queue. Whatever waits is written as one batch and made durable by
//! one `fdatasync`: under load batches grow by themselves (group commit).
//!
//! The files: fjall's own in `log`, `LOCK` (held while the store is open, and by which a copy is told from
//! the original), and `MARK`: how many records were ever made durable.

mod care;
mod journal;
mod keys;
mod mail;
mod mark;
mod open;
mod outbox;
mod place;
mod reader;
mod tables;
mod writer;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, SyncSender, TrySendError, channel, sync_channel};

use model::{Epoch, Limits};

pub use self::care::{Findings, adopt, backup, check, repair, restore};
pub use self::mail::{Deliver, SharedFault, StoreMail};
pub use self::open::{HeldInMemory, OpenError, Opened};
use self::reader::{Reader, Reading};
use self::writer::Writer;
use crate::{ReadWanted, Record, RetentionOf, Store, StoredTopic};

/// Opens the store in `path`, made if there is none, and checks every record in it. If somebody may know of
/// records that are gone, or of others under the same numbers, its epoch is `new_epoch` from now on.
///
/// # Errors
/// The directory cannot be used, another process has it open, a newer program wrote it, or it is damaged so
/// that it has to be repaired first.
pub fn open(
    path: &Path,
    new_epoch: &Epoch,
    limits: &Limits,
    held: HeldInMemory<'_>,
    retention: RetentionOf,
) -> Result<Opened, OpenError> {
    open::open(path, Some(new_epoch), limits, held, retention)
}

/// How a thread is started: its name, and what it does.
pub type Spawn<'a> = dyn Fn(&str, Box<dyn FnOnce() + Send>) -> std::io::Result<()> + 'a;

/// The way into the queues of the running log's threads. They end when it and the shards' stores are gone, once
/// everything that was handed over is written.
pub struct Log {
    records: SyncSender<(usize, Record)>,
    reads: Sender<Reading>,
    next_topic: Arc<AtomicU64>,
    /// Somebody asked for a new epoch.
    wants_epoch: Arc<AtomicBool>,
    fault: SharedFault,
}

impl Log {
    /// Starts the threads of an opened store; `deliver` has a way to each shard.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(
        opened: Opened,
        deliver: Vec<Deliver>,
        limits: &Limits,
        spawn: &Spawn<'_>,
    ) -> std::io::Result<(Self, Vec<StoredTopic>)> {
        let Opened { topics, files, .. } = opened;
        let (records, incoming) = sync_channel(limits.store_records_in_flight_max);
        let (reads, wanted) = channel();
        let next_topic = Arc::new(AtomicU64::new(files.next_topic));
        let deliver = Arc::new(deliver);
        let (kept, to_readers) = (files.records.clone(), Arc::clone(&deliver));
        let fault = SharedFault::default();
        let wants_epoch = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&wants_epoch);
        let writer = Writer::new(files, deliver, asked, Arc::clone(&fault), limits);
        spawn("store-writer", Box::new(move || writer.run(&incoming)))?;
        let reader = Reader::new(kept, to_readers);
        spawn("store-reader", Box::new(move || reader.run(&wanted)))?;
        Ok((Self { records, reads, next_topic, wants_epoch, fault }, topics))
    }

    /// One shard's hold on the log.
    pub fn store(&self, shard: usize) -> LogStore {
        LogStore {
            shard,
            records: self.records.clone(),
            reads: self.reads.clone(),
            next_topic: Arc::clone(&self.next_topic),
            wants_epoch: Arc::clone(&self.wants_epoch),
        }
    }

    /// Where it shows that nothing is written any more, and why.
    pub fn fault(&self) -> SharedFault {
        Arc::clone(&self.fault)
    }
}

/// One shard's hold on the log.
pub struct LogStore {
    shard: usize,
    records: SyncSender<(usize, Record)>,
    reads: Sender<Reading>,
    next_topic: Arc<AtomicU64>,
    wants_epoch: Arc<AtomicBool>,
}

impl Store for LogStore {
    fn write(&mut self, record: Record) -> Result<(), Record> {
        match self.records.try_send((self.shard, record)) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full((_, record)) | TrySendError::Disconnected((_, record))) => {
                Err(record)
            }
        }
    }

    fn new_topic_number(&mut self) -> u64 {
        self.next_topic.fetch_add(1, Ordering::Relaxed)
    }

    fn read(&mut self, ticket: u64, topic_number: u64, wanted: ReadWanted) {
        let reading = Reading { shard: self.shard, ticket, topic_number, wanted };
        // If the reader is gone the server is stopping, and nobody waits for the answer.
        let _ = self.reads.send(reading);
    }

    fn begin_epoch(&mut self) {
        self.wants_epoch.store(true, Ordering::Relaxed);
    }
}
