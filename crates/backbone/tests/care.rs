//! A store that is damaged, copied, put back, or of another format.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use model::{AckLevel, Draft, Epoch, Limits, Moment, Payload, PayloadKind, Sequence, TopicName};
use tidegate_backbone::{
    Backbone, BackboneEvent, Deliver, DiskBackbone, Log, LogStore, OpenError, Opened, ReadWanted,
    Retention, Spawn, StoreMail, Ticket, care, open,
};

/// A directory that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tidegate-care-{}-{number}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    fn store(&self) -> PathBuf {
        self.0.join("store")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // It may never have been made.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn try_open(path: &Path, epoch: &str) -> Result<Opened, OpenError> {
    let held = |_: &TopicName| (100_000, usize::MAX);
    let everything = Retention { count: u64::MAX, bytes: u64::MAX, age: None };
    let retention = Box::new(move |_: &TopicName| everything);
    open(path, &Epoch::new(epoch), &Limits::default(), &held, retention)
}

fn open_at(path: &Path, epoch: &str) -> Opened {
    try_open(path, epoch).unwrap_or_else(|error| panic!("{error}"))
}

/// A backbone over an open store.
struct Disk {
    backbone: DiskBackbone<LogStore>,
    mail: Receiver<StoreMail>,
    log: Log,
    threads: Vec<JoinHandle<()>>,
}

impl Disk {
    fn of(opened: Opened) -> Self {
        let (tell, mail) = channel();
        let (epoch, limits) = (opened.epoch.clone(), Limits::default());
        let deliver: Deliver = Box::new(move |mail| {
            // Nobody listens any more at the end of a test.
            let _ = tell.send(mail);
            Ok(())
        });
        let threads = RefCell::new(Vec::new());
        let spawn: &Spawn<'_> = &|_, run| {
            threads.borrow_mut().push(std::thread::spawn(run));
            Ok(())
        };
        let (log, topics) = Log::start(opened, vec![deliver], &limits, spawn).expect("threads");
        let backbone = DiskBackbone::new(log.store(0), epoch, &topics, &limits, moment());
        Self { backbone, mail, log, threads: threads.into_inner() }
    }

    fn close(self) {
        let Self { backbone, log, threads, .. } = self;
        drop((backbone, log));
        threads.into_iter().for_each(|thread| thread.join().expect("it ends in order"));
    }

    fn publish(&mut self, name: &str, text: &str, key: Option<&str>) -> u64 {
        let draft = Draft {
            topic: TopicName::parse(name, &Limits::default()).expect("valid"),
            payload: Payload::new(PayloadKind::Text, text.as_bytes()),
            idempotency_key: key.map(Into::into),
            expected: None,
        };
        self.backbone.append(Ticket(1), draft, AckLevel::Disk, moment());
        loop {
            match self.backbone.poll_event() {
                Some(
                    BackboneEvent::Kept { position, .. } | BackboneEvent::Repeated { position, .. },
                ) => return position.sequence.get(),
                Some(other) => panic!("not kept: {other:?}"),
                None => match self.mail.recv_timeout(PATIENCE) {
                    Ok(StoreMail::Written(written)) => self.backbone.handle_written(written),
                    other => panic!("the log does not answer: {other:?}"),
                },
            }
        }
    }
}

fn moment() -> Moment {
    Moment { elapsed: Duration::from_secs(1), unix_ms: 1_000 }
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("room");
    for entry in fs::read_dir(from).expect("readable").flatten() {
        let copy = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy_folder(&entry.path(), &copy),
            false => drop(fs::copy(entry.path(), copy).expect("room")),
        }
    }
}

fn files_in(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).expect("readable").flatten().map(|it| it.path()) {
        if entry.is_dir() {
            files.extend(files_in(&entry));
        } else if fs::metadata(&entry).expect("readable").len() > 0 {
            files.push(entry);
        }
    }
    files.sort();
    files
}

/// What can be read: topic and sequence, and the payload.
fn contents(disk: &mut Disk, topics: &[TopicName]) -> BTreeMap<(String, u64), String> {
    let mut found = BTreeMap::new();
    for topic in topics {
        disk.backbone.read(Ticket(1), topic, ReadWanted::after(Sequence::START, usize::MAX));
        let Ok(StoreMail::Read { publications, .. }) = disk.mail.recv_timeout(PATIENCE) else {
            panic!("no page");
        };
        for it in publications {
            let text = String::from_utf8_lossy(it.payload()).into_owned();
            found.insert((topic.to_string(), it.sequence().get()), text);
        }
    }
    found
}

const PATIENCE: Duration = Duration::from_secs(60);

/// All that can be read of a store that was opened.
fn all_of(opened: Opened) -> BTreeMap<(String, u64), String> {
    let topics: Vec<_> = opened.topics.iter().map(|topic| topic.topic.clone()).collect();
    let mut disk = Disk::of(opened);
    let found = contents(&mut disk, &topics);
    disk.close();
    found
}

/// A store as kill -9 leaves it: some of it in tables, some in the journal only.
fn killed_store(folder: &Folder) -> BTreeMap<(String, u64), String> {
    let (live, mut written) = (folder.0.join("live"), BTreeMap::new());
    for round in 0..3 {
        let mut disk = Disk::of(open_at(&live, "e1"));
        for number in 0..20 {
            let name = ["a", "b/c", "d"][number % 3];
            let text = format!("{} of round {round} ", number).repeat(1 + number * 40);
            let key = format!("key-{round}-{number}");
            let sequence = disk.publish(name, &text, Some(&key));
            written.insert((name.to_owned(), sequence), text);
        }
        if round == 2 {
            copy_folder(&live, &folder.store());
            disk.close();
            // The copy stands for the original.
            care::adopt(&folder.store()).expect("it opens");
            return written;
        }
        disk.close();
    }
    unreachable!("the last round returns");
}

/// Puts all files back but `LOCK`: kill -9 leaves that one, too.
fn put_back(whole: &Path, store: &Path) {
    for entry in fs::read_dir(store).expect("readable").flatten().map(|it| it.path()) {
        if entry.is_dir() {
            fs::remove_dir_all(entry).expect("it is there");
        }
    }
    copy_folder(&whole.join("log"), &store.join("log"));
    fs::copy(whole.join("MARK"), store.join("MARK")).expect("room");
}

#[test]
fn a_flipped_bit_in_any_file_is_told_or_repaired_and_what_is_whole_stays() {
    let folder = Folder::new();
    let written = killed_store(&folder);
    let (whole, store) = (folder.0.join("whole"), folder.store());
    copy_folder(&store, &whole);
    let files = files_in(&whole);
    let names: Vec<_> = files.iter().map(|it| it.display().to_string()).collect();
    assert!(names.iter().any(|it| it.ends_with(".jnl")), "{names:?}");
    assert!(names.iter().any(|it| it.contains("/tables/")), "{names:?}");
    let mut state = 11u64;
    let mut below = |end: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % end
    };
    let (mut flips, mut repairs, mut failures) = (0, 0, Vec::new());
    for file in &files {
        let is_large = fs::metadata(file).expect("readable").len() > 1_000;
        for _ in 0..if is_large { 8 } else { 2 } {
            flips += 1;
            put_back(&whole, &store);
            let damaged = store.join(file.strip_prefix(&whole).expect("inside"));
            let mut bytes = fs::read(&damaged).expect("readable");
            let bit = below(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            fs::write(&damaged, &bytes).expect("writable");
            let what = format!("bit {bit} of {}", damaged.display());
            match start_or_repair(&store) {
                Ok(Started { opened, mut told, is_repaired }) => {
                    repairs += usize::from(is_repaired);
                    told.extend(opened.damage.clone());
                    failures.extend(
                        faults_of(opened, &told, &written).map(|it| format!("{what}: {it}")),
                    );
                }
                Err(error) => failures.push(format!("{what}: {error}")),
            }
        }
    }
    assert!(flips >= 40 && repairs >= 5, "{flips} flips, {repairs} repairs");
    assert!(failures.is_empty(), "{} of {flips}:\n{}", failures.len(), failures.join("\n"));
}

struct Started {
    opened: Opened,
    told: Vec<String>,
    is_repaired: bool,
}

/// Opens a damaged store, as it is or as its error says.
fn start_or_repair(store: &Path) -> Result<Started, OpenError> {
    match try_open(store, "e2") {
        Ok(opened) => Ok(Started { opened, told: Vec::new(), is_repaired: false }),
        Err(error) if error.text.contains("tidegate store repair") => {
            let told = care::repair(store, &Epoch::new("e2"))?.damage;
            Ok(Started { opened: try_open(store, "e3")?, told, is_repaired: true })
        }
        Err(error) => Err(error),
    }
}

/// What is wrong with a store that one flipped bit may have cost one record.
fn faults_of(
    opened: Opened,
    told: &[String],
    written: &BTreeMap<(String, u64), String>,
) -> Option<String> {
    let keeps_epoch = opened.epoch.as_str() == "e1";
    let heads: Vec<_> =
        opened.topics.iter().map(|it| (it.topic.to_string(), it.head.get())).collect();
    let found = all_of(opened);
    let lost = written.len().saturating_sub(found.len());
    if found.iter().any(|(place, text)| written.get(place) != Some(text)) {
        return Some("something is there that was not written".into());
    }
    if lost > 1 || (lost == 1 && told.is_empty()) {
        return Some(format!("{lost} lost, told: {told:?}"));
    }
    let newest = |name: &String| {
        let of_topic = written.keys().filter(|(known, _)| known == name);
        of_topic.map(|(_, sequence)| *sequence).max()
    };
    // Whoever had the newest position of a topic is not told another publication under it.
    let goes_back = |(name, head): &(String, u64)| newest(name) != Some(*head);
    (keeps_epoch && (heads.len() != 3 || heads.iter().any(goes_back)))
        .then(|| format!("the numbering went back: {heads:?}, told: {told:?}"))
}

#[test]
fn a_repair_keeps_the_epoch_of_a_store_that_has_lost_nothing() {
    let folder = Folder::new();
    let written = killed_store(&folder);
    let version = folder.store().join("log/keyspaces/1/current");
    fs::write(&version, b"nonsense").expect("writable");
    let error = try_open(&folder.store(), "e2").err().expect("it cannot be opened");
    assert!(error.text.contains("tidegate store repair"), "{error}");
    let found = care::repair(&folder.store(), &Epoch::new("e2")).expect("it is repaired");
    assert_eq!((found.damage, found.records), (Vec::new(), written.len() as u64));
    let opened = open_at(&folder.store(), "e3");
    assert_eq!(opened.epoch.as_str(), "e1");
    let topics: Vec<_> = opened.topics.iter().map(|topic| topic.topic.clone()).collect();
    let mut disk = Disk::of(opened);
    assert!(contents(&mut disk, &topics) == written);
    let kept = written.keys().filter(|(name, _)| name == "a").count() as u64;
    assert_eq!(disk.publish("a", "x", Some("key-2-18")), kept, "keys are there, too");
    assert_eq!(disk.publish("a", "x", None), kept + 1);
    disk.close();
}

#[test]
fn checking_changes_nothing() {
    let folder = Folder::new();
    let written = killed_store(&folder);
    let found = care::check(&folder.store()).expect("it is whole");
    assert_eq!((found.topics, found.records, found.damage.len()), (3, written.len() as u64, 0));
    assert_eq!(open_at(&folder.store(), "e2").epoch.as_str(), "e1");
    let error = care::check(&folder.0.join("nowhere")).expect_err("there is none");
    assert!(error.text.contains("there is no store"), "{error}");
    assert!(!folder.0.join("nowhere").exists());
}

#[test]
fn a_copy_put_back_begins_a_new_epoch_and_a_moved_store_may_keep_its_own() {
    let folder = Folder::new();
    let written = killed_store(&folder);
    let store = folder.store();
    assert_eq!(open_at(&store, "e2").epoch.as_str(), "e1", "kill -9 keeps it");
    let (copy, again) = (folder.0.join("copy"), folder.0.join("again"));
    care::backup(&store, &copy).expect("room");
    assert!(care::backup(&store, &copy).is_err(), "it is there already");
    // An old copy under the name of the store.
    copy_folder(&copy, &again);
    let opened = open_at(&again, "e3");
    assert_eq!(opened.epoch.as_str(), "e3");
    assert!(opened.moved.as_deref().is_some_and(|text| text.contains("tidegate store adopt")));
    assert_eq!(opened.damage, Vec::<String>::new());
    assert!(all_of(opened) == written);
    let opened = open_at(&again, "e4");
    assert_eq!((opened.epoch.as_str(), opened.moved), ("e3", None), "once only");
    // Put back on purpose.
    let restored = folder.0.join("restored");
    care::restore(&copy, &restored).expect("room");
    assert_eq!(open_at(&restored, "e5").epoch.as_str(), "e5");
    // Moved to another disk on purpose.
    let moved = folder.0.join("moved");
    copy_folder(&copy, &moved);
    care::adopt(&moved).expect("it opens");
    assert_eq!(open_at(&moved, "e6").epoch.as_str(), "e1");
    // Moved within a file system.
    let renamed = folder.0.join("renamed");
    fs::rename(&moved, &renamed).expect("the same file system");
    assert_eq!(open_at(&renamed, "e7").epoch.as_str(), "e1");
}

#[test]
fn a_newer_store_is_refused_and_left_untouched() {
    let folder = Folder::new();
    killed_store(&folder);
    let store = folder.store();
    let mark = store.join("MARK");
    let mut bytes = fs::read(&mark).expect("readable");
    bytes[15] = 9;
    let sum = crc32fast::hash(&bytes[..16]);
    bytes[16..].copy_from_slice(&sum.to_be_bytes());
    fs::write(&mark, bytes).expect("writable");
    let all = |folder: &Path| -> Vec<(PathBuf, Vec<u8>)> {
        let read = |path: PathBuf| (path.clone(), fs::read(path).expect("readable"));
        files_in(folder).into_iter().map(read).collect()
    };
    let before = all(&store);
    let errors = [
        try_open(&store, "e2").err(),
        care::check(&store).err(),
        care::repair(&store, &Epoch::new("e2")).err(),
    ];
    for error in errors {
        let text = error.expect("it is too new").text;
        assert!(text.contains("format 9") && text.contains("up to 2"), "{text}");
        assert!(text.contains(env!("CARGO_PKG_VERSION")) && !text.contains("damage"), "{text}");
    }
    assert!(before == all(&store), "its files are as they were");
}

#[test]
fn a_newer_form_of_a_record_is_refused_and_no_damage() {
    let folder = Folder::new();
    killed_store(&folder);
    let database = fjall::Database::builder(folder.store().join("log")).open().expect("opens");
    let records =
        database.keyspace("records", fjall::KeyspaceCreateOptions::default).expect("is there");
    let (key, value) = records.first_key_value().expect("one").into_inner().expect("whole");
    let mut newer = value[..value.len() - 4].to_vec();
    newer[0] = 7;
    let sum = crc32fast::hash(&[&key[..], &newer].concat());
    newer.extend(sum.to_be_bytes());
    records.insert(&*key, newer).expect("room");
    database.persist(fjall::PersistMode::SyncAll).expect("room");
    drop((records, database));
    let text = try_open(&folder.store(), "e2").err().expect("it is too new").text;
    assert!(
        text.contains("form 7") && text.contains("up to 2") && !text.contains("damage"),
        "{text}"
    );
}
