//! Care of a store that no server has open: checking, repairing, copying, putting back.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use fjall::{Database, KeyspaceCreateOptions, PersistMode};
use model::{Epoch, Limits, TopicName};

use super::mark::{Mark, Marked};
use super::open::{
    FORMAT, Files, KEYSPACES, OpenError, SPARE, cannot, failed, name_in, open, read_mark, share_of,
};
use super::place::Lock;
use super::{journal, keys, tables};
use crate::Retention;
use crate::record;

/// The intact part of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Topics.
    pub topics: usize,
    /// Records that are whole.
    pub records: u64,
    /// The damage that was found: a line each.
    pub damage: Vec<String>,
}

/// Reads everything, as a start of the server does, and changes nothing of what it means.
///
/// # Errors
/// It cannot be opened; the text says why, and what helps.
pub fn check(path: &Path) -> Result<Findings, OpenError> {
    must_exist(path)?;
    let everything = Retention { count: u64::MAX, bytes: u64::MAX, age: None };
    let held = |_: &TopicName| (1, 0);
    let retention = Box::new(move |_: &TopicName| everything);
    let opened = open(path, None, &Limits::default(), &held, retention)?;
    Ok(Findings { topics: opened.topics.len(), records: opened.records, damage: opened.damage })
}

/// Makes a new log of all that is whole, and moves the old one to `log.damaged`. If something is lost, the
/// next epoch is `new`.
///
/// # Errors
/// The store is open elsewhere, there is no room, or it cannot be read or written.
pub fn repair(path: &Path, new: &Epoch) -> Result<Findings, OpenError> {
    must_exist(path)?;
    let _lock = Lock::take(path)?;
    let io = |error: io::Error| cannot(path, error, "check that it may be written, and has room");
    let mark = Mark::open(path).map_err(io)?;
    let marked = read_mark(path, &mark)?;
    let (old, made) = (path.join("log"), path.join("log.repaired"));
    if made.exists() {
        fs::remove_dir_all(&made).map_err(io)?;
    }
    let scratch = path.join("log.block");
    let mut salvage = Salvage::new(&old, &scratch);
    salvage.survey().map_err(io)?;
    let database = Database::builder(&made).open().map_err(|error| failed(path, error))?;
    let settled = salvage.rebuild(&database, new, marked).map_err(|error| match error {
        fjall::Error::Io(error) => io(error),
        other => failed(path, other),
    })?;
    drop(database);
    let aside = free_name(&path.join("log.damaged"));
    fs::rename(&old, &aside).and_then(|()| fs::rename(&made, &old)).map_err(io)?;
    mark.write(Marked { written: settled, format: FORMAT }).map_err(io)?;
    // It may never have been needed.
    let _ = fs::remove_file(&scratch);
    let Salvage { topics, records, damage, .. } = salvage;
    Ok(Findings { topics, records, damage })
}

/// Copies a store to a directory that is not there yet.
///
/// # Errors
/// It is open elsewhere, the other directory exists, or it cannot be read or written.
pub fn backup(path: &Path, copy: &Path) -> Result<(), OpenError> {
    must_exist(path)?;
    let _lock = Lock::take(path)?;
    copy_to_new(path, copy)
}

/// Puts a backup back into a directory that is not there yet. Its next start begins a new epoch.
///
/// # Errors
/// The directory exists, or it cannot be read or written.
pub fn restore(copy: &Path, path: &Path) -> Result<(), OpenError> {
    must_exist(copy)?;
    copy_to_new(copy, path)?;
    let files = open_files(path)?;
    files.disown().map_err(|error| failed(path, error))
}

/// Says that a store which was moved lives where it is now: its epoch goes on.
///
/// # Errors
/// It is open elsewhere, or cannot be read or written.
pub fn adopt(path: &Path) -> Result<(), OpenError> {
    must_exist(path)?;
    open_files(path)?.adopt().map_err(|error| failed(path, error))
}

fn open_files(path: &Path) -> Result<Files, OpenError> {
    let everything = Retention { count: u64::MAX, bytes: u64::MAX, age: None };
    Files::open(path, share_of(0), Box::new(move |_: &TopicName| everything))
}

fn must_exist(path: &Path) -> Result<(), OpenError> {
    if path.join("MARK").is_file() || path.join("log").is_dir() {
        return Ok(());
    }
    Err(cannot(path, "there is no store", "name the directory that store.path names"))
}

fn copy_to_new(from: &Path, to: &Path) -> Result<(), OpenError> {
    if to.exists() {
        return Err(cannot(to, "it is there already", "name a directory that is not there yet"));
    }
    let how = "check that it may be read, and that there is room for the copy";
    copy_folder(from, to).map_err(|error| cannot(from, error, how))
}

/// Copies what a store consists of; what a repair put aside stays behind.
fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        let copy = to.join(&name);
        if entry.file_type()?.is_dir() {
            if !name.to_string_lossy().starts_with("log.") {
                copy_folder(&entry.path(), &copy)?;
            }
            continue;
        }
        fs::copy(entry.path(), &copy)?;
        fs::File::open(&copy)?.sync_all()?;
    }
    fs::File::open(to)?.sync_all()
}

fn free_name(path: &Path) -> PathBuf {
    let numbered = (2..).map(|number| path.with_extension(format!("damaged-{number}")));
    let mut names = std::iter::once(path.to_owned()).chain(numbered);
    names.find(|name| !name.exists()).expect("numbers do not end")
}

/// Everything whole of a log, wherever it stands.
struct Salvage<'a> {
    log: &'a Path,
    scratch: &'a Path,
    removed: HashSet<(usize, Vec<u8>)>,
    /// The newest of each entry about the store itself, and the number of its batch.
    meta: HashMap<Vec<u8>, (u64, Vec<u8>)>,
    topics: usize,
    records: u64,
    damage: Vec<String>,
}

/// An entry of a keyspace.
struct Entry {
    keyspace: usize,
    number: u64,
    is_removal: bool,
    key: Vec<u8>,
    value: Vec<u8>,
}

const RECORDS: usize = 1;
const TOPICS: usize = 2;
const META: usize = 3;
const KEYS: usize = 4;

/// Entries in one commit.
const COMMIT_LEN: usize = 1_000;

impl<'a> Salvage<'a> {
    fn new(log: &'a Path, scratch: &'a Path) -> Self {
        Self {
            log,
            scratch,
            removed: HashSet::new(),
            meta: HashMap::new(),
            topics: 0,
            records: 0,
            damage: Vec::new(),
        }
    }

    /// Finds what was removed, what stands about the store itself, and what is damaged.
    fn survey(&mut self) -> io::Result<()> {
        let mut damage = Vec::new();
        let (mut removed, mut meta) = (HashSet::new(), HashMap::new());
        self.visit(&mut damage, |entry| {
            let Entry { keyspace, number, is_removal, key, value } = entry;
            if is_removal {
                removed.insert((keyspace, key));
            } else if is_about_the_store(keyspace, &key)
                && meta.get(&key).is_none_or(|(known, _): &(u64, Vec<u8>)| *known <= number)
            {
                meta.insert(key, (number, value));
            }
            Ok(())
        })?;
        (self.removed, self.meta, self.damage) = (removed, meta, damage);
        Ok(())
    }

    /// Writes a new log; answers how many records were ever written.
    fn rebuild(
        &mut self,
        database: &Database,
        new: &Epoch,
        marked: Option<Marked>,
    ) -> fjall::Result<u64> {
        let mut spaces = Vec::new();
        for name in KEYSPACES {
            spaces.push(database.keyspace(name, KeyspaceCreateOptions::default)?);
        }
        let (mut batch, mut len) = (database.batch(), 0);
        let mut result = Ok(());
        let visited = self.visit(&mut Vec::new(), |entry| {
            let Entry { keyspace, is_removal, key, value, .. } = entry;
            if is_removal
                || is_about_the_store(keyspace, &key)
                || self.removed.contains(&(keyspace, key.clone()))
            {
                return Ok(());
            }
            batch.insert(&spaces[keyspace - 1], key, value);
            len += 1;
            if len % COMMIT_LEN == 0 {
                result = std::mem::replace(&mut batch, database.batch()).commit();
            }
            if result.is_err() { Err(io::Error::other("cannot write")) } else { Ok(()) }
        });
        result?;
        visited?;
        batch.commit()?;
        self.topics = spaces[TOPICS - 1].len()?;
        self.records = spaces[RECORDS - 1].len()? as u64;
        let mut batch = database.batch();
        let number = |name: &str| -> u64 {
            let value =
                self.meta.get(name.as_bytes()).and_then(|(_, value)| value[..].try_into().ok());
            value.map_or(0, u64::from_be_bytes)
        };
        let known = number("written");
        let written = known.max(marked.map_or(0, |marked| marked.written)).max(self.records);
        if written > known && self.damage.is_empty() {
            self.damage.push(format!("{} records that were durable are gone", written - known));
        }
        if !self.damage.is_empty() || !self.meta.contains_key(&b"epoch"[..]) {
            self.meta.insert(b"epoch".to_vec(), (0, new.as_str().into()));
            self.damage.push(format!(
                "positions of before mean nothing any more: the epoch is {new} from now on"
            ));
        }
        self.meta.insert(b"written".to_vec(), (0, written.to_be_bytes().to_vec()));
        for (name, (_, value)) in &self.meta {
            batch.insert(&spaces[META - 1], name.clone(), value.clone());
        }
        batch.durability(Some(PersistMode::SyncAll)).commit()?;
        Ok(written)
    }

    /// Gives every whole entry to `take`, in no order, and says what is damaged.
    fn visit(
        &self,
        damage: &mut Vec<String>,
        mut take: impl FnMut(Entry) -> io::Result<()>,
    ) -> io::Result<()> {
        for keyspace in 1..=KEYSPACES.len() {
            for path in tables::files(self.log, keyspace)? {
                let broken = tables::salvage(&path, self.scratch, |found| {
                    let lsm_tree::InternalValue { key, value } = found;
                    take(Entry {
                        keyspace,
                        number: key.seqno,
                        is_removal: key.value_type.is_tombstone(),
                        key: key.user_key.to_vec(),
                        value: value.to_vec(),
                    })
                })?;
                if broken > 0 {
                    damage.push(format!("{broken} bytes of {} are lost", path.display()));
                }
            }
        }
        for path in journal::files(self.log)? {
            let bytes = fs::read(&path)?;
            for stretch in journal::Stretches::new(&bytes) {
                let (number, items) = match stretch {
                    journal::Stretch::Batch { number, items } => (number, items),
                    journal::Stretch::Broken(range) => {
                        let items = journal::items_in(&bytes[range.clone()], vouches_for_itself);
                        damage.push(format!(
                            "bytes {} to {} of {} are torn or damaged; {} entries in them are whole",
                            range.start,
                            range.end,
                            path.display(),
                            items.len()
                        ));
                        (0, items)
                    }
                };
                for item in items {
                    let keyspace = usize::try_from(item.keyspace).unwrap_or(0);
                    let Some(value) =
                        item.value().filter(|_| (1..=KEYSPACES.len()).contains(&keyspace))
                    else {
                        continue;
                    };
                    let (is_removal, key) = (item.is_removal, item.key.to_vec());
                    take(Entry { keyspace, number, is_removal, key, value })?;
                }
            }
        }
        Ok(())
    }
}

/// Whether an entry is one of the few of which the newest counts. The other ones never change.
fn is_about_the_store(keyspace: usize, key: &[u8]) -> bool {
    keyspace == META && !key.starts_with(SPARE)
}

/// Whether an item of a damaged batch has a checksum of its own, and it is right.
fn vouches_for_itself(item: &journal::Item<'_>) -> bool {
    let Some(value) = item.value().filter(|_| !item.is_removal) else { return false };
    match usize::try_from(item.keyspace) {
        Ok(RECORDS) => record::read(item.key, &value).is_ok(),
        // The bare names of format 1 vouch for nothing.
        Ok(TOPICS) => {
            item.key.len() == 8 && value.contains(&0xFF) && name_in(item.key, &value).is_some()
        }
        Ok(META) => {
            item.key.strip_prefix(SPARE).is_some_and(|number| name_in(number, &value).is_some())
        }
        Ok(KEYS) => keys::read(item.key, &value).is_some(),
        _ => false,
    }
}
