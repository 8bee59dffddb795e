//! The embedded log on a disk: fjall under it, one thread that writes, one that reads.
//!
//! Records of all shards go through one queue. Whatever waits is written as one batch and made durable by
//! one `fdatasync`: under load batches grow by themselves (group commit).
//!
//! The files: fjall's own, `LOCK` (held while the store is open), and `MARK`: how many records were ever
//! made durable. fjall drops what follows a damaged place in its journal without a word; the mark shows it.

mod open;
mod reader;
mod writer;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, SyncSender, TrySendError, channel, sync_channel};
use std::thread::JoinHandle;

use model::{Limits, Publication};

pub use self::open::{HeldInMemory, OpenError, Opened, open};
use self::reader::{Reader, Reading};
use self::writer::Writer;
use crate::{ReadWanted, Record, Store, StoredTopic, Written};

/// What a shard hears from the store.
#[derive(Debug)]
pub enum StoreMail {
    /// What became of records, for [`crate::DiskBackbone::handle_written`].
    Written(Written),
    /// Records that were asked for.
    Read {
        /// The number of the question.
        ticket: u64,
        /// Oldest first; none when there are no more.
        publications: Vec<Publication>,
    },
}

/// How a shard is told; it must not lose what it is given.
pub type Deliver = Box<dyn Fn(StoreMail) + Send + Sync>;

/// The running log: its threads, and the way into their queues.
pub struct Log {
    records: SyncSender<(usize, Record)>,
    reads: Sender<Reading>,
    next_topic: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
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
    ) -> std::io::Result<(Self, Vec<StoredTopic>)> {
        let Opened { topics, files, .. } = opened;
        let (records, incoming) = sync_channel(limits.store_records_in_flight_max);
        let (reads, wanted) = channel();
        let next_topic = Arc::new(AtomicU64::new(files.next_topic));
        let (deliver, due) = (Arc::new(deliver), BTreeSet::new());
        let (kept, to_readers) = (files.records.clone(), Arc::clone(&deliver));
        let writer = std::thread::Builder::new()
            .name("store-writer".into())
            .spawn(move || Writer { files, deliver, due }.run(&incoming))?;
        let reader = std::thread::Builder::new()
            .name("store-reader".into())
            .spawn(move || Reader::new(kept, to_readers).run(&wanted))?;
        Ok((Self { records, reads, next_topic, threads: vec![writer, reader] }, topics))
    }

    /// One shard's hold on the log.
    pub fn store(&self, shard: usize) -> LogStore {
        LogStore {
            shard,
            records: self.records.clone(),
            reads: self.reads.clone(),
            next_topic: Arc::clone(&self.next_topic),
        }
    }

    /// Waits until everything handed over is written. The shards' stores must be gone.
    pub fn finish(self) {
        let Self { records, reads, threads, .. } = self;
        drop((records, reads));
        for thread in threads {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}

/// One shard's hold on the log.
pub struct LogStore {
    shard: usize,
    records: SyncSender<(usize, Record)>,
    reads: Sender<Reading>,
    next_topic: Arc<AtomicU64>,
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
}
