//! The embedded log on a disk: fjall under it, one thread that writes, one that reads.
//!
//! Records of all shards go through one queue. Whatever waits is written as one batch and made durable by
//! one `fdatasync`: under load batches grow by themselves (group commit).
//!
//! The files: fjall's own, `LOCK` (held while the store is open), and `MARK`: how many records were ever
//! made durable. fjall drops what follows a damaged place in its journal without a word; the mark shows it.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::thread::JoinHandle;

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use model::{Epoch, Limits, Publication, Sequence, TopicName};

use crate::record::{self, Stored, key_of, parse_key};
use crate::{ReadWanted, Record, Store, StoreFault, StoredTopic, Written};

/// Why a store cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenError {
    /// What failed, why, and how to put it right.
    pub text: String,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for OpenError {}

fn cannot(path: &Path, why: impl fmt::Display, how: &str) -> OpenError {
    OpenError { text: format!("cannot open the store in {}: {why}; {how}", path.display()) }
}

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

/// A store as it was found.
pub struct Opened {
    /// The life of its numbering.
    pub epoch: Epoch,
    /// Every topic in it.
    pub topics: Vec<StoredTopic>,
    /// Records that are whole.
    pub records: u64,
    /// What is damaged, and what was done about it: a line each.
    pub damage: Vec<String>,
    files: Files,
}

/// How much of each topic memory is to hold: publications, payload bytes.
pub type HeldInMemory<'a> = &'a dyn Fn(&TopicName) -> (usize, usize);

struct Files {
    database: Database,
    records: Keyspace,
    topics: Keyspace,
    meta: Keyspace,
    mark: File,
    /// Records ever written.
    written: u64,
    next_topic: u64,
    /// Held for as long as the store is open.
    _lock: File,
}

/// Opens the store in `path`, made if there is none, and checks every record in it.
///
/// # Errors
/// The directory cannot be used, another process has it open, or its files cannot be read at all.
pub fn open(
    path: &Path,
    new_epoch: &Epoch,
    limits: &Limits,
    held: HeldInMemory<'_>,
) -> Result<Opened, OpenError> {
    let how = "check that the directory exists, may be written, and has room";
    std::fs::create_dir_all(path).map_err(|error| cannot(path, error, how))?;
    let lock = lock(path)?;
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    let mark = options.open(path.join("MARK")).map_err(|error| cannot(path, error, how))?;
    let damaged = "its files are damaged beyond reading; put back a copy, or move the directory away \
                   to start empty";
    let failed = |error: fjall::Error| cannot(path, error, damaged);
    let database = Database::builder(path.join("log")).open().map_err(failed)?;
    let keyspace = |name: &str| database.keyspace(name, KeyspaceCreateOptions::default);
    let (records, topics, meta) = (
        keyspace("records").map_err(failed)?,
        keyspace("topics").map_err(failed)?,
        keyspace("meta").map_err(failed)?,
    );
    let written = number_in(&meta, "written").map_err(failed)?;
    let mut files =
        Files { database, records, topics, meta, mark, written, next_topic: 1, _lock: lock };
    let mut scan = Scan::new(limits, held);
    scan.names(&mut files, limits).map_err(failed)?;
    scan.records(&files).map_err(failed)?;
    let epoch = files.epoch(new_epoch, &mut scan.damage).map_err(failed)?;
    let Scan { topics, damage, records, .. } = scan;
    let topics = topics.into_values().filter(|topic| topic.head > Sequence::START).collect();
    Ok(Opened { epoch, topics, records, damage, files })
}

fn lock(path: &Path) -> Result<File, OpenError> {
    use rustix::fs::{FlockOperation, flock};
    let how = "check that the directory may be written";
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path.join("LOCK"));
    let file = file.map_err(|error| cannot(path, error, how))?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
        cannot(path, "another process has it open", "stop that one, or use another store.path")
    })?;
    Ok(file)
}

fn number_in(meta: &Keyspace, name: &str) -> fjall::Result<u64> {
    let value = meta.get(name)?;
    Ok(value
        .and_then(|value| Some(u64::from_be_bytes(value.get(..8)?.try_into().ok()?)))
        .unwrap_or(0))
}

impl Files {
    /// The epoch of the store. A new one if records were lost of which somebody may know.
    fn epoch(&mut self, new: &Epoch, damage: &mut Vec<String>) -> fjall::Result<Epoch> {
        let mut bytes = [0; 8];
        let marked = match self.mark.read_exact_at(&mut bytes, 0) {
            Ok(()) => u64::from_be_bytes(bytes),
            Err(_) => 0,
        };
        let known = self.meta.get("epoch")?;
        let known = known.and_then(|value| Some(Epoch::new(std::str::from_utf8(&value).ok()?)));
        if self.written < marked {
            damage.push(format!(
                "{} records that were durable are gone (the journal is damaged); positions of before mean \
                 nothing any more: the epoch is {new} from now on",
                marked - self.written
            ));
            self.written = marked;
        } else if let Some(known) = known {
            return Ok(known);
        }
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncAll));
        batch.insert(&self.meta, "epoch", new.as_str());
        batch.insert(&self.meta, "written", self.written.to_be_bytes());
        batch.commit()?;
        Ok(new.clone())
    }
}

/// Reading everything once.
struct Scan<'a> {
    topics: HashMap<u64, StoredTopic>,
    records: u64,
    damage: Vec<String>,
    held: HeldInMemory<'a>,
    keys_max: usize,
}

/// Lines of damage that are told one by one.
const DAMAGE_LINES_MAX: usize = 100;

impl<'a> Scan<'a> {
    fn new(limits: &Limits, held: HeldInMemory<'a>) -> Self {
        let keys_max = limits.idempotency_keys_max;
        Self { topics: HashMap::new(), records: 0, damage: Vec::new(), held, keys_max }
    }

    fn names(&mut self, files: &mut Files, limits: &Limits) -> fjall::Result<()> {
        for entry in files.topics.iter() {
            let (key, value) = entry.into_inner()?;
            let number =
                key.get(..8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_be_bytes);
            let name = std::str::from_utf8(&value).ok().map(|name| TopicName::parse(name, limits));
            let (Some(number), Some(Ok(topic))) = (number, name) else {
                self.tell("a topic's name cannot be read; its records stay on disk, unread".into());
                continue;
            };
            files.next_topic = files.next_topic.max(number + 1);
            let (head, newest, keys) = (Sequence::START, Vec::new(), Vec::new());
            self.topics.insert(number, StoredTopic { topic, number, head, newest, keys });
        }
        Ok(())
    }

    fn records(&mut self, files: &Files) -> fjall::Result<()> {
        let (mut current, mut newest) = (0, VecDeque::new());
        let mut bytes = 0;
        for entry in files.records.iter() {
            let (key, value) = entry.into_inner()?;
            let Some((number, sequence)) = parse_key(&key) else {
                self.tell("a record stands at no place; it stays on disk, unread".into());
                continue;
            };
            if number != current {
                self.end_topic(current, &mut newest);
                (current, bytes) = (number, 0);
            }
            match record::read(&key, &value) {
                Ok(stored) => self.take(number, stored, &mut newest, &mut bytes),
                Err(_) => self.take_damaged(number, sequence, &mut newest),
            }
        }
        self.end_topic(current, &mut newest);
        Ok(())
    }

    fn take(
        &mut self,
        number: u64,
        stored: Stored,
        newest: &mut VecDeque<Publication>,
        bytes: &mut usize,
    ) {
        let Some(topic) = self.topics.get_mut(&number) else {
            self.tell(format!(
                "a record of topic number {number}, whose name is lost, stays unread"
            ));
            return;
        };
        self.records += 1;
        let sequence = stored.publication.sequence();
        let is_hole = topic.head > Sequence::START && stored.previous != topic.head;
        let (name, before) = (topic.topic.clone(), topic.head);
        topic.head = sequence;
        if let Some(key) = stored.idempotency_key
            && topic.keys.len() < self.keys_max
        {
            topic.keys.push((key, sequence, stored.publication.unix_ms()));
        }
        if is_hole {
            newest.clear();
            *bytes = 0;
            let first = before.next();
            self.tell(format!(
                "`{name}`: {first} to {} are gone; readers are told a gap",
                sequence.back(1)
            ));
        }
        let (count_max, bytes_max) = (self.held)(&name);
        *bytes += stored.publication.payload().len();
        newest.push_back(stored.publication);
        while newest.len() > count_max.max(1) || (*bytes > bytes_max && newest.len() > 1) {
            let dropped = newest.pop_front();
            *bytes -= dropped.map_or(0, |dropped: Publication| dropped.payload().len());
        }
    }

    /// A number that was given is never given again, even if its record cannot be read.
    fn take_damaged(
        &mut self,
        number: u64,
        sequence: Sequence,
        newest: &mut VecDeque<Publication>,
    ) {
        newest.clear();
        let name = match self.topics.get_mut(&number) {
            Some(topic) => {
                topic.head = sequence;
                topic.topic.to_string()
            }
            None => format!("topic number {number}"),
        };
        self.tell(format!("`{name}`: record {sequence} is damaged; readers are told a gap"));
    }

    fn end_topic(&mut self, number: u64, newest: &mut VecDeque<Publication>) {
        if let Some(topic) = self.topics.get_mut(&number) {
            topic.newest = newest.drain(..).collect();
        }
    }

    fn tell(&mut self, text: String) {
        match self.damage.len() {
            DAMAGE_LINES_MAX => self.damage.push("and more of the kind".into()),
            0..DAMAGE_LINES_MAX => self.damage.push(text),
            _ => {}
        }
    }
}

/// The running log: its threads, and the way into their queues.
pub struct Log {
    records: SyncSender<(usize, Record)>,
    reads: Sender<Reading>,
    next_topic: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

struct Reading {
    shard: usize,
    ticket: u64,
    topic_number: u64,
    wanted: ReadWanted,
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
        let deliver = Arc::new(deliver);
        let (kept, to_readers) = (files.records.clone(), Arc::clone(&deliver));
        let writer = std::thread::Builder::new()
            .name("store-writer".into())
            .spawn(move || Writer { files, deliver }.run(&incoming))?;
        let reader = std::thread::Builder::new()
            .name("store-reader".into())
            .spawn(move || run_reader(&kept, &wanted, &to_readers))?;
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

/// The thread that writes.
struct Writer {
    files: Files,
    deliver: Arc<Vec<Deliver>>,
}

/// Records and bytes in one batch.
const BATCH_LEN: usize = 8_192;
const BATCH_BYTES: usize = 16 << 20;

impl Writer {
    fn run(mut self, incoming: &Receiver<(usize, Record)>) {
        let mut batch = Vec::new();
        while let Ok(first) = incoming.recv() {
            let mut bytes = first.1.publication.payload().len();
            batch.push(first);
            while batch.len() < BATCH_LEN
                && bytes < BATCH_BYTES
                && let Ok(next) = incoming.try_recv()
            {
                bytes += next.1.publication.payload().len();
                batch.push(next);
            }
            let result = self.write(&batch).map_err(|error| StoreFault {
                text: format!(
                    "the store cannot write ({error}); free some space or mend the disk, \
                               then restart the server"
                ),
            });
            self.answer(&batch, &result);
            batch.clear();
            if let Err(fault) = result {
                tracing::error!(%fault, "the store has stopped: durable topics take nothing more");
                // Whoever still hands something over hears the same.
                while let Ok(late) = incoming.recv() {
                    self.answer(&[late], &Err(fault.clone()));
                }
            }
        }
    }

    fn write(&mut self, batch: &[(usize, Record)]) -> fjall::Result<()> {
        let files = &mut self.files;
        let written = files.written + batch.len() as u64;
        let mut writes = files.database.batch().durability(Some(PersistMode::SyncData));
        for (_, record) in batch {
            if record.publication.sequence() == Sequence::START.next() {
                let number = record.topic_number.to_be_bytes();
                writes.insert(&files.topics, number, record.topic.as_str());
            }
            writes.insert(&files.records, record.key(), record.value());
            if record.forget_through > Sequence::START {
                writes.remove(&files.records, key_of(record.topic_number, record.forget_through));
            }
        }
        writes.insert(&files.meta, "written", written.to_be_bytes());
        writes.commit()?;
        files.written = written;
        // Not made durable by itself: it may be behind after a power loss, never ahead.
        files.mark.write_all_at(&written.to_be_bytes(), 0)?;
        Ok(())
    }

    /// Tells each shard what became of its records, in their order.
    fn answer(&self, batch: &[(usize, Record)], result: &Result<(), StoreFault>) {
        for (shard, deliver) in self.deliver.iter().enumerate() {
            let count = batch.iter().filter(|(of, _)| *of == shard).count();
            if count > 0 {
                deliver(StoreMail::Written(Written { count, result: result.clone() }));
            }
        }
    }
}

fn run_reader(records: &Keyspace, readings: &Receiver<Reading>, deliver: &[Deliver]) {
    while let Ok(Reading { shard, ticket, topic_number, wanted }) = readings.recv() {
        let last = key_of(topic_number, Sequence::MAX);
        let range = records.range(key_of(topic_number, wanted.after.next())..=last);
        let publications = range
            .map_while(|entry| {
                let (key, value) = entry.into_inner().ok()?;
                // What is damaged was told when the store was opened: reading ends before it.
                record::read(&key, &value).ok().map(|stored| stored.publication)
            })
            .skip_while(|publication| publication.unix_ms() < wanted.since_ms)
            .take(wanted.count)
            .collect();
        deliver[shard](StoreMail::Read { ticket, publications });
    }
}
