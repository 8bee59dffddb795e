//! Opening the log: every record is read once and checked.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use foldhash::fast::RandomState;
use model::{Epoch, Limits, Publication, Sequence, TopicName};

use crate::StoredTopic;
use crate::record::{self, Stored, parse_key};
use crate::retention::{Kept, RetentionOf};

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
    pub(super) files: Files,
}

/// How much of each topic memory is to hold: publications, payload bytes.
pub type HeldInMemory<'a> = &'a dyn Fn(&TopicName) -> (usize, usize);

/// The store's files, open.
pub(super) struct Files {
    pub database: Database,
    pub records: Keyspace,
    pub topics: Keyspace,
    pub meta: Keyspace,
    pub mark: File,
    /// Records ever written.
    pub written: u64,
    pub next_topic: u64,
    /// What is there of each topic, by its number.
    pub kept: HashMap<u64, Kept, RandomState>,
    pub retention: RetentionOf,
    /// Held for as long as the store is open.
    _lock: Lock,
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
    retention: RetentionOf,
) -> Result<Opened, OpenError> {
    let how = "check that the directory exists, may be written, and has room";
    std::fs::create_dir_all(path).map_err(|error| cannot(path, error, how))?;
    let lock = lock(path)?;
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    let mark = options.open(path.join("MARK")).map_err(|error| cannot(path, error, how))?;
    let damaged = "its files are damaged beyond reading; put back a copy, or move the directory away \
                   to start empty";
    let failed = |error: fjall::Error| match error {
        fjall::Error::Io(io) | fjall::Error::Storage(fjall::LsmError::Io(io)) => {
            cannot(path, io, how)
        }
        other => cannot(path, other, damaged),
    };
    let database = Database::builder(path.join("log")).open().map_err(failed)?;
    let keyspace = |name: &str| database.keyspace(name, KeyspaceCreateOptions::default);
    let (records, topics, meta) = (
        keyspace("records").map_err(failed)?,
        keyspace("topics").map_err(failed)?,
        keyspace("meta").map_err(failed)?,
    );
    let written = number_in(&meta, "written").map_err(failed)?;
    let (kept, next_topic) = (HashMap::default(), 1);
    let mut files = Files {
        database,
        records,
        topics,
        meta,
        mark,
        written,
        next_topic,
        kept,
        retention,
        _lock: lock,
    };
    let mut scan = Scan::new(limits, held);
    scan.names(&mut files, limits).map_err(failed)?;
    scan.records(&files).map_err(failed)?;
    let epoch = files.epoch(new_epoch, &mut scan.damage).map_err(failed)?;
    let Scan { topics, damage, records, kept, .. } = scan;
    files.kept = kept;
    let topics = topics.into_values().filter(|topic| topic.head > Sequence::START).collect();
    Ok(Opened { epoch, topics, records, damage, files })
}

/// The lock on a store's directory.
pub(super) struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // Other descriptor tables of this process may have a copy of the descriptor, which would hold the lock.
        let _ = rustix::fs::flock(&self.0, rustix::fs::FlockOperation::Unlock);
    }
}

fn lock(path: &Path) -> Result<Lock, OpenError> {
    use rustix::fs::{FlockOperation, flock};
    let how = "check that the directory may be written";
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path.join("LOCK"));
    let file = file.map_err(|error| cannot(path, error, how))?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
        cannot(path, "another process has it open", "stop that one, or use another store.path")
    })?;
    Ok(Lock(file))
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
    kept: HashMap<u64, Kept, RandomState>,
    held: HeldInMemory<'a>,
    keys_max: usize,
}

/// Lines of damage that are told one by one.
const DAMAGE_LINES_MAX: usize = 100;

impl<'a> Scan<'a> {
    fn new(limits: &Limits, held: HeldInMemory<'a>) -> Self {
        let keys_max = limits.idempotency_keys_max;
        let (topics, kept, damage) = (HashMap::new(), HashMap::default(), Vec::new());
        Self { topics, records: 0, damage, kept, held, keys_max }
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
                Ok(stored) => {
                    self.take(number, stored, &files.retention, &mut newest, &mut bytes);
                }
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
        retention: &RetentionOf,
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
        let kept = self.kept.entry(number).or_insert_with(|| Kept::new(retention(&name)));
        kept.push(&stored.publication);
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
