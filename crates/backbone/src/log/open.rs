//! Opening the log: every record is read once and checked.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io::ErrorKind;
use std::panic::catch_unwind;
use std::path::Path;

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use model::{Epoch, Limits, Publication, RandomState, Sequence, TopicName};

use super::mark::{Mark, Marked};
use super::place::{Identity, Lock};
use super::{journal, keys};
use crate::StoredTopic;
use crate::record::{self, Stored, Unreadable, parse_key};
use crate::retention::{Kept, RetentionOf};

/// Why a store cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenError {
    /// The failure, its reason, and the remedy.
    pub text: String,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for OpenError {}

pub(super) fn cannot(path: &Path, why: impl fmt::Display, how: &str) -> OpenError {
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
    /// The damage that was found and how it was handled: a line each.
    pub damage: Vec<String>,
    /// Why the epoch is a new one although nothing is damaged.
    pub moved: Option<String>,
    pub(super) files: Files,
}

/// The form of the store that this program writes. 1 had no number, and keys in records only.
pub(super) const FORMAT: u64 = 2;
/// The first one whose keys have a keyspace of their own.
const FORMAT_OF_KEYS: u64 = 2;

/// The parts of the log, in the order in which they were made.
pub(super) const KEYSPACES: [&str; 4] = ["records", "topics", "meta", "keys"];

/// How much of each topic memory is to hold: publications, payload bytes.
pub type HeldInMemory<'a> = &'a dyn Fn(&TopicName) -> (usize, usize);

/// The store's files, open.
pub(super) struct Files {
    pub database: Database,
    pub records: Keyspace,
    pub topics: Keyspace,
    pub meta: Keyspace,
    pub keys: Keyspace,
    pub mark: Mark,
    /// Records ever written.
    pub written: u64,
    pub next_topic: u64,
    /// The records that each topic has, by the topic's number.
    pub kept: HashMap<u64, Kept, RandomState>,
    pub retention: RetentionOf,
    /// The epoch that begins if it turns out while the server runs that an older copy was put back.
    pub next_epoch: Option<Epoch>,
    /// Held for as long as the store is open.
    pub lock: Lock,
}

/// Opens the store in `path`. Without an epoch that may be begun nothing of what it means changes.
pub(super) fn open(
    path: &Path,
    new_epoch: Option<&Epoch>,
    limits: &Limits,
    held: HeldInMemory<'_>,
    retention: RetentionOf,
) -> Result<Opened, OpenError> {
    std::fs::create_dir_all(path).map_err(|error| cannot(path, error, HOW))?;
    let mut files = Files::open(path, share_of(limits.memory_bytes_max), retention)?;
    let format = number_in(&files.meta, "format").map_err(|error| failed(path, error))?;
    let mut scan = Scan::new(limits, held, format < FORMAT_OF_KEYS);
    scan.all(&mut files, limits).map_err(|error| failed(path, error))?;
    if let Some(form) = scan.newer {
        return Err(too_new(path, "records of form", u64::from(form), u64::from(record::FORM)));
    }
    let settled = files.settle(new_epoch, &mut scan).map_err(|error| failed(path, error))?;
    let Settled { epoch, moved } = settled;
    let Scan { topics, damage, records, kept, .. } = scan;
    files.kept = kept;
    files.next_epoch = new_epoch.map(|new| Epoch::new(&format!("{new}-2")));
    let topics = topics.into_values().filter(|topic| topic.head > Sequence::START).collect();
    Ok(Opened { epoch, topics, records, damage, moved, files })
}

/// The memory that the store itself uses.
#[derive(Clone, Copy)]
pub(super) struct Share {
    /// For blocks that were read.
    cache_bytes: u64,
    /// For what was written and is not in a table yet. It is set for good when the store is made.
    memtable_bytes: u64,
}

/// The store's share of a budget of `bytes`; 0 is without bound.
pub(super) fn share_of(bytes: usize) -> Share {
    /// The sizes that suit a machine with plenty of memory.
    const MEMTABLE_BYTES: u64 = 64 << 20;
    const CACHE_BYTES: u64 = 32 << 20;
    const LEAST_BYTES: u64 = 1 << 20;
    /// The part of a budget that each of the two may take.
    const PART: u64 = 16;
    let part = match bytes as u64 {
        0 => u64::MAX,
        bytes => (bytes / PART).max(LEAST_BYTES),
    };
    Share { cache_bytes: CACHE_BYTES.min(part), memtable_bytes: MEMTABLE_BYTES.min(part) }
}

const HOW: &str = "check that the directory exists, may be written, and has room";

/// The fault in the files under the log.
pub(super) fn failed(path: &Path, error: fjall::Error) -> OpenError {
    match error {
        fjall::Error::Io(io) | fjall::Error::Storage(fjall::LsmError::Io(io))
            if !matches!(
                io.kind(),
                ErrorKind::UnexpectedEof | ErrorKind::InvalidData | ErrorKind::NotFound
            ) =>
        {
            cannot(path, io, HOW)
        }
        other => damaged(path, other),
    }
}

/// A store that can be opened again once what is damaged was left out.
pub(super) fn damaged(path: &Path, why: impl fmt::Display) -> OpenError {
    let how = format!(
        "run `tidegate store repair {}`, which goes on with all that is whole, or put back a backup",
        path.display()
    );
    cannot(path, format!("its files are damaged ({why})"), &how)
}

/// The content of the mark; `None` if it is damaged.
///
/// # Errors
/// It cannot be read, or is of a newer program's store.
pub(super) fn read_mark(path: &Path, mark: &Mark) -> Result<Option<Marked>, OpenError> {
    let marked = mark.read().map_err(|error| cannot(path, error, HOW))?;
    match marked {
        Some(Marked { format, .. }) if format > FORMAT => {
            Err(too_new(path, "format", format, FORMAT))
        }
        _ => Ok(marked),
    }
}

fn too_new(path: &Path, what: &str, found: u64, known: u64) -> OpenError {
    let why = format!(
        "it has {what} {found}, and this program (tidegate {}) reads up to {known}",
        env!("CARGO_PKG_VERSION")
    );
    cannot(path, why, "start the newer program that wrote it, or use another store.path")
}

fn number_in(meta: &Keyspace, name: &str) -> fjall::Result<u64> {
    let value = meta.get(name)?;
    Ok(value
        .and_then(|value| Some(u64::from_be_bytes(value.get(..8)?.try_into().ok()?)))
        .unwrap_or(0))
}

impl Files {
    /// Opens the files of a store whose directory exists; nothing of it is read yet.
    pub fn open(path: &Path, share: Share, retention: RetentionOf) -> Result<Self, OpenError> {
        let lock = Lock::take(path)?;
        let mark = Mark::open(path).map_err(|error| cannot(path, error, HOW))?;
        read_mark(path, &mark)?;
        let folder = path.join("log");
        journal::check(&folder).map_err(|why| damaged(path, why))?;
        // It reads lengths and offsets before it checks them.
        let opened =
            catch_unwind(|| Database::builder(&folder).cache_size(share.cache_bytes).open());
        let database = match opened {
            Ok(opened) => opened.map_err(|error| failed(path, error))?,
            Err(_) => return Err(damaged(path, "they cannot be read at all")),
        };
        Self::of(path, database, lock, mark, share, retention).map_err(|error| match error {
            Ok(too_new) => too_new,
            Err(error) => failed(path, error),
        })
    }

    fn of(
        path: &Path,
        database: Database,
        lock: Lock,
        mark: Mark,
        share: Share,
        retention: RetentionOf,
    ) -> Result<Self, Result<OpenError, fjall::Error>> {
        let options = || KeyspaceCreateOptions::default().max_memtable_size(share.memtable_bytes);
        let keyspace = |name| database.keyspace(name, options).map_err(Err);
        if database.keyspace_exists("meta") {
            let format = number_in(&keyspace("meta")?, "format").map_err(Err)?;
            if format > FORMAT {
                return Err(Ok(too_new(path, "format", format, FORMAT)));
            }
        }
        // In this order: that is how their folders are numbered, which `repair` goes by.
        let [records, topics, meta, keys] = KEYSPACES.map(keyspace);
        let (records, topics, meta, keys) = (records?, topics?, meta?, keys?);
        let written = number_in(&meta, "written").map_err(Err)?;
        let (kept, next_topic) = (HashMap::default(), 1);
        Ok(Self {
            database,
            records,
            topics,
            meta,
            keys,
            mark,
            written,
            next_topic,
            kept,
            retention,
            next_epoch: None,
            lock,
        })
    }

    /// Makes the store this program's: its format, its place, and an epoch. That is a new one if somebody may
    /// know of records that are gone, or of others under the same numbers.
    fn settle(&mut self, new: Option<&Epoch>, scan: &mut Scan<'_>) -> fjall::Result<Settled> {
        let marked = self.mark.read()?;
        if marked.is_none() {
            scan.tell("MARK is damaged: whether the newest records are gone cannot be told".into());
        }
        let lost = marked.map_or(0, |marked| marked.written.saturating_sub(self.written));
        if lost > 0 {
            scan.tell(format!(
                "{lost} records that were durable are gone (the journal is damaged); positions of before mean \
                 nothing any more: {}",
                begins(new)
            ));
            self.written += lost;
        }
        let (here, known_place) = (self.lock.identity(), self.meta.get("place")?);
        let is_moved = match (&here, &known_place) {
            (Some(here), Some(known)) => here[..] != known[..],
            _ => false,
        };
        let known = self.meta.get("epoch")?;
        let known = known.and_then(|value| Some(Epoch::new(std::str::from_utf8(&value).ok()?)));
        let moved = (is_moved && known.is_some() && lost == 0).then(|| {
            format!(
                "it was copied or put back: its LOCK is another file than before; positions of before may \
                 have been given to other publications since: {}; to move a store and keep its epoch, run \
                 `tidegate store adopt` before the first start",
                begins(new)
            )
        });
        let stays = lost == 0 && !is_moved;
        let Some(new) = new else {
            return Ok(Settled { epoch: known.unwrap_or_else(|| Epoch::new("")), moved });
        };
        let epoch = known.filter(|_| stays).unwrap_or_else(|| new.clone());
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncAll));
        batch.insert(&self.meta, "epoch", epoch.as_str());
        batch.insert(&self.meta, "written", self.written.to_be_bytes());
        batch.insert(&self.meta, "format", FORMAT.to_be_bytes());
        if let Some(here) = here {
            batch.insert(&self.meta, "place", here);
        }
        batch.commit()?;
        self.write_mark()?;
        Ok(Settled { epoch, moved })
    }

    /// Says that the store lives where it is.
    pub fn adopt(&self) -> fjall::Result<()> {
        self.set_place(self.lock.identity().unwrap_or_default())
    }

    /// Has the next start begin a new epoch.
    pub fn disown(&self) -> fjall::Result<()> {
        self.set_place(Identity::default())
    }

    fn set_place(&self, place: Identity) -> fjall::Result<()> {
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncAll));
        batch.insert(&self.meta, "place", place);
        batch.commit()
    }

    /// Marks how many records were ever made durable.
    pub fn write_mark(&self) -> std::io::Result<()> {
        self.mark.write(Marked { written: self.written, format: FORMAT })
    }
}

fn begins(new: Option<&Epoch>) -> String {
    match new {
        Some(new) => format!("the epoch is {new} from now on"),
        None => "the next start begins a new epoch".into(),
    }
}

/// The result of opening a store.
struct Settled {
    epoch: Epoch,
    moved: Option<String>,
}

/// The prefix of a topic's number where its name is kept a second time, in another keyspace: a damaged
/// place costs one record, not a topic.
pub(super) const SPARE: &[u8] = b"topic";

/// The spare place of a topic's name.
pub(super) fn spare_of(number: u64) -> Vec<u8> {
    [SPARE, &number.to_be_bytes()].concat()
}

/// The name on disk of a topic: its bytes, one that no name has, and a CRC-32 of number and name.
pub(super) fn named(number: u64, name: &str) -> Vec<u8> {
    let sum = record::checksum(&number.to_be_bytes(), name.as_bytes());
    [name.as_bytes(), &[NAME_END], &sum.to_be_bytes()].concat()
}

/// The name that stands under a number; `None` if it is damaged. Format 1 had the bare name.
pub(super) fn name_in(number: &[u8], value: &[u8]) -> Option<String> {
    let name = match value.iter().position(|byte| *byte == NAME_END) {
        None => value,
        Some(end) => {
            let sum = u32::from_be_bytes(value[end + 1..].try_into().ok()?);
            Some(&value[..end]).filter(|name| record::checksum(number, name) == sum)?
        }
    };
    std::str::from_utf8(name).ok().map(str::to_owned)
}

const NAME_END: u8 = 0xFF;

/// Reading everything once.
struct Scan<'a> {
    topics: HashMap<u64, StoredTopic>,
    records: u64,
    damage: Vec<String>,
    kept: HashMap<u64, Kept, RandomState>,
    held: HeldInMemory<'a>,
    keys_max: usize,
    /// Whether keys are in the records only.
    keys_in_records: bool,
    /// The form of a record that this program does not know.
    newer: Option<u8>,
}

/// Lines of damage that are told one by one.
const DAMAGE_LINES_MAX: usize = 100;

impl<'a> Scan<'a> {
    fn new(limits: &Limits, held: HeldInMemory<'a>, keys_in_records: bool) -> Self {
        let keys_max = limits.idempotency_keys_max;
        let (topics, kept, damage) = (HashMap::new(), HashMap::default(), Vec::new());
        Self { topics, records: 0, damage, kept, held, keys_max, keys_in_records, newer: None }
    }

    fn all(&mut self, files: &mut Files, limits: &Limits) -> fjall::Result<()> {
        self.names(files, limits)?;
        self.records(files)?;
        match self.newer {
            Some(_) => Ok(()),
            None => self.keys(files),
        }
    }

    fn names(&mut self, files: &mut Files, limits: &Limits) -> fjall::Result<()> {
        let spare = files.meta.prefix(SPARE).map(|entry| {
            let (place, value) = entry.into_inner()?;
            fjall::Result::Ok((place[SPARE.len()..].to_vec(), value))
        });
        let first = files.topics.iter().map(|entry| {
            let (place, value) = entry.into_inner()?;
            fjall::Result::Ok((place.to_vec(), value))
        });
        let mut unread = 0;
        for entry in first.chain(spare) {
            let (place, value) = entry?;
            let number = place[..].try_into().ok().map(u64::from_be_bytes);
            let name = name_in(&place, &value).map(|name| TopicName::parse(&name, limits));
            let (Some(number), Some(Ok(topic))) = (number, name) else {
                unread += 1;
                continue;
            };
            files.next_topic = files.next_topic.max(number + 1);
            self.topics.entry(number).or_insert_with(|| {
                let (head, newest, keys) = (Sequence::START, Vec::new(), Vec::new());
                StoredTopic { topic, number, head, unix_ms: 0, newest, keys }
            });
        }
        if unread > 0 {
            self.tell(format!(
                "{unread} names of topics cannot be read; where the other copy cannot either, records stay \
                 on disk, unread"
            ));
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
                Err(Unreadable::Damaged) => self.take_damaged(number, sequence, &mut newest),
                Err(Unreadable::Newer(form)) => self.newer = Some(form),
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
        let (name, before) = (topic.topic.clone(), topic.head);
        let is_known = self.kept.contains_key(&number);
        // What is before the oldest that can be read was removed on purpose, or is told as damaged: retention begins there.
        let is_hole = is_known && !stored.publication.follows(before);
        topic.head = sequence;
        topic.unix_ms = topic.unix_ms.max(stored.publication.unix_ms());
        let kept = self.kept.entry(number).or_insert_with(|| Kept::new(retention(&name)));
        kept.push(&stored.publication);
        if let Some(key) = stored.idempotency_key
            && self.keys_in_records
        {
            topic.keys.push((key, sequence, stored.publication.unix_ms()));
            if topic.keys.len() > 2 * self.keys_max {
                topic.keys.drain(..self.keys_max);
            }
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
        *bytes += stored.publication.kept_bytes();
        newest.push_back(stored.publication);
        while newest.len() > count_max.max(1) || (*bytes > bytes_max && newest.len() > 1) {
            let dropped = newest.pop_front();
            *bytes -= dropped.map_or(0, |dropped: Publication| dropped.kept_bytes());
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

    /// The newest keys of each topic. Those of a store from before they had a keyspace get their place there.
    fn keys(&mut self, files: &Files) -> fjall::Result<()> {
        if self.keys_in_records {
            return self.upgrade(files);
        }
        for entry in files.keys.iter().rev() {
            let (place, value) = entry.into_inner()?;
            let Some(stored) = keys::read(&place, &value) else {
                self.tell("an idempotency key is damaged: its publication may be repeated".into());
                continue;
            };
            let keys::StoredKey { unix_ms, topic_number, sequence, key } = stored;
            if let Some(topic) = self.topics.get_mut(&topic_number)
                && topic.keys.len() < self.keys_max
            {
                topic.keys.push((key, sequence, unix_ms));
            }
        }
        for topic in self.topics.values_mut() {
            topic.keys.reverse();
        }
        Ok(())
    }

    /// Brings a store of format 1 to this one: names with checksums, twice, and keys in their keyspace.
    fn upgrade(&mut self, files: &Files) -> fjall::Result<()> {
        let mut batch = files.database.batch().durability(Some(PersistMode::SyncAll));
        for topic in self.topics.values_mut() {
            let name = named(topic.number, topic.topic.as_str());
            batch.insert(&files.topics, topic.number.to_be_bytes(), name.clone());
            batch.insert(&files.meta, spare_of(topic.number), name);
            let too_many = topic.keys.len().saturating_sub(self.keys_max);
            topic.keys.drain(..too_many);
            for (key, sequence, unix_ms) in &topic.keys {
                let place = keys::place_of(*unix_ms, topic.number, *sequence);
                batch.insert(&files.keys, place, keys::value_of(&place, key));
            }
        }
        batch.commit()
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
