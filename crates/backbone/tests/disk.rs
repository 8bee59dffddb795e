//! The durable backbone over the real log, in a directory of the test's own.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use model::{
    AckLevel, Draft, Epoch, HistoryStart, Limits, Moment, Payload, PayloadKind, Position,
    Publication, Sequence, TopicName,
};
use tidegate_backbone::{
    Backbone, BackboneEvent, Deliver, DiskBackbone, Log, LogStore, Opened, ReadWanted, Retention,
    RetentionOf, Spawn, StoreMail, StoredTopic, Ticket, contract, open,
};

/// A directory that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tidegate-store-{}-{number}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // It may never have been made.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn open_at(path: &Path, epoch: &str) -> Opened {
    open_with(path, epoch, all())
}

fn open_with(path: &Path, epoch: &str, retention: RetentionOf) -> Opened {
    open_limited(path, epoch, retention, &Limits::default())
}

fn open_limited(path: &Path, epoch: &str, retention: RetentionOf, limits: &Limits) -> Opened {
    let held = |_: &TopicName| (100, 1 << 20);
    open(path, &Epoch::new(epoch), limits, &held, retention).expect("it opens")
}

/// Everything stays.
fn all() -> RetentionOf {
    keep(Retention { count: u64::MAX, bytes: u64::MAX, age: None })
}

fn keep(retention: Retention) -> RetentionOf {
    Box::new(move |_| retention)
}

/// A log, its topics, and its threads.
fn start(
    opened: Opened,
    deliver: Vec<Deliver>,
    limits: &Limits,
) -> (Log, Vec<StoredTopic>, Vec<JoinHandle<()>>) {
    let threads = RefCell::new(Vec::new());
    let spawn: &Spawn<'_> = &|_, run| {
        threads.borrow_mut().push(std::thread::spawn(run));
        Ok(())
    };
    let (log, topics) = Log::start(opened, deliver, limits, spawn).expect("threads");
    (log, topics, threads.into_inner())
}

fn join(threads: Vec<JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().expect("it ends in order"));
}

/// A backbone on a log, and its mail.
struct Disk {
    backbone: DiskBackbone<LogStore>,
    mail: Receiver<StoreMail>,
    log: Option<Log>,
    threads: Vec<JoinHandle<()>>,
}

impl Disk {
    fn open(path: &Path) -> Self {
        Self::of(open_at(path, "e1"))
    }

    fn of(opened: Opened) -> Self {
        Self::with(opened, &Limits::default())
    }

    fn with(opened: Opened, limits: &Limits) -> Self {
        let (tell, mail) = channel();
        let epoch = opened.epoch.clone();
        let deliver: Vec<Deliver> = vec![Box::new(move |mail| {
            // Nobody listens any more at the end of a test.
            let _ = tell.send(mail);
            Ok(())
        })];
        let (log, topics, threads) = start(opened, deliver, limits);
        let store = log.store(0);
        let backbone = DiskBackbone::new(store, epoch, &topics, limits, moment());
        Self { backbone, mail, log: Some(log), threads }
    }

    fn append(&mut self, ticket: Ticket, draft: Draft, level: AckLevel, now: Moment) {
        self.backbone.append(ticket, draft, level, now);
    }

    /// The next event, for which the log may have to answer.
    fn next(&mut self) -> Option<BackboneEvent> {
        loop {
            let event = self.backbone.poll_event();
            if event.is_some() || !self.drive() {
                return event;
            }
        }
    }

    /// Takes one message of the log, if there is one or one must come.
    fn drive(&mut self) -> bool {
        let mail = match self.mail.try_recv() {
            Ok(mail) => mail,
            Err(_) if !self.backbone.is_waiting() => return false,
            Err(_) => self.mail.recv_timeout(Duration::from_secs(10)).expect("the log answers"),
        };
        self.backbone.handle_store(mail);
        true
    }

    fn publish(&mut self, name: &str, text: &str) -> Position {
        self.append(Ticket(1), draft(name, text), AckLevel::Disk, moment());
        match self.next() {
            Some(BackboneEvent::Kept { position, .. }) => position,
            other => panic!("not kept: {other:?}"),
        }
    }

    /// Publishes under a key; answers the sequence, and whether it is new.
    fn publish_once(&mut self, name: &str, key: &str) -> (u64, bool) {
        let keyed = Draft { idempotency_key: Some(key.into()), ..draft(name, "x") };
        self.append(Ticket(1), keyed, AckLevel::Disk, moment());
        match self.next() {
            Some(BackboneEvent::Kept { position, .. }) => (position.sequence.get(), true),
            Some(BackboneEvent::Repeated { position, .. }) => (position.sequence.get(), false),
            other => panic!("not kept: {other:?}"),
        }
    }

    fn read(&mut self, name: &str, after: u64, count: usize) -> Vec<Publication> {
        let after = Sequence::new(after).expect("small");
        self.read_page(name, ReadWanted::after(after, count)).0
    }

    /// A page, and what it is complete after.
    fn read_page(&mut self, name: &str, wanted: ReadWanted) -> (Vec<Publication>, u64) {
        self.backbone.read(Ticket(9), &topic(name), wanted);
        match self.next() {
            Some(BackboneEvent::Read { ticket: Ticket(9), publications, complete_after }) => {
                (publications, complete_after.get())
            }
            other => panic!("no page: {other:?}"),
        }
    }

    fn close(self) {
        let Self { backbone, log, threads, .. } = self;
        drop((backbone, log));
        join(threads);
    }
}

/// A store that is closed and opened again.
struct Reopened {
    disk: Option<Disk>,
    folder: Folder,
}

impl Reopened {
    fn disk(&mut self) -> &mut Disk {
        self.disk.as_mut().expect("it is open")
    }
}

impl contract::Subject for Reopened {
    fn backbone(&mut self) -> &mut dyn Backbone {
        &mut self.disk().backbone
    }

    fn drive(&mut self) -> bool {
        self.disk().drive()
    }

    fn restart(&mut self) {
        self.disk.take().expect("it is open").close();
        self.disk = Some(Disk::open(&self.folder.0));
    }
}

impl Drop for Reopened {
    fn drop(&mut self) {
        self.disk.take().expect("it is open").close();
    }
}

fn topic(name: &str) -> TopicName {
    TopicName::parse(name, &Limits::default()).expect("valid")
}

fn draft(name: &str, text: &str) -> Draft {
    let payload = Payload::new(PayloadKind::Text, text.as_bytes());
    Draft { topic: topic(name), payload, idempotency_key: None, expected: None }
}

fn moment() -> Moment {
    Moment { elapsed: Duration::from_secs(1), unix_ms: 1_000 }
}

fn sequences(publications: &[Publication]) -> Vec<u64> {
    publications.iter().map(|publication| publication.sequence().get()).collect()
}

#[test]
fn it_keeps_the_contract() {
    contract::check(&mut || {
        let folder = Folder::new();
        let disk = Some(Disk::open(&folder.0));
        Box::new(Reopened { disk, folder })
    });
}

#[test]
fn a_reopened_store_goes_on_where_it_was() {
    let folder = Folder::new();
    let mut disk = Disk::open(&folder.0);
    for number in 1..=5 {
        disk.publish("a/b", &format!("a{number}"));
    }
    let keyed = Draft { idempotency_key: Some("k".into()), ..draft("c", "c1") };
    disk.append(Ticket(1), keyed, AckLevel::Disk, moment());
    assert!(matches!(disk.next(), Some(BackboneEvent::Kept { .. })));
    disk.close();

    let opened = open_at(&folder.0, "e2");
    assert_eq!((opened.epoch.as_str(), opened.records), ("e1", 6), "the epoch stays");
    assert_eq!(opened.damage, Vec::<String>::new());
    let found = opened.topics.iter().find(|found| found.topic == topic("a/b")).expect("is there");
    assert_eq!(sequences(&found.newest), [1, 2, 3, 4, 5]);
    let mut disk = Disk::of(opened);
    assert_eq!(disk.publish("a/b", "a6").sequence.get(), 6);
    let again = Draft { idempotency_key: Some("k".into()), ..draft("c", "c1") };
    disk.append(Ticket(2), again, AckLevel::Disk, moment());
    assert!(matches!(disk.next(), Some(BackboneEvent::Repeated { .. })), "keys stay");
    assert_eq!(sequences(&disk.read("a/b", 2, 3)), [3, 4, 5]);
    assert_eq!(sequences(&disk.read("a/b", 6, 3)), [0u64; 0]);
    disk.close();
}

#[test]
fn only_so_many_stay_as_the_policy_says() {
    let folder = Folder::new();
    let three = Retention { count: 3, bytes: u64::MAX, age: None };
    let mut disk = Disk::of(open_with(&folder.0, "e1", keep(three)));
    for _ in 0..10 {
        disk.publish("a", "x");
    }
    disk.close();
    let opened = open_at(&folder.0, "e2");
    assert_eq!(opened.damage, Vec::<String>::new(), "what was let go is no damage");
    assert_eq!(sequences(&opened.topics[0].newest), [8, 9, 10]);
}

#[test]
fn old_records_go_while_nobody_publishes_and_the_numbering_goes_on() {
    let folder = Folder::new();
    let age = Some(Duration::from_millis(300));
    let brief = Retention { count: u64::MAX, bytes: u64::MAX, age };
    let (opened, started) = (open_with(&folder.0, "e1", keep(brief)), std::time::SystemTime::now());
    let mut disk = Disk::of(opened);
    let unix_ms = started.duration_since(std::time::UNIX_EPOCH).expect("later").as_millis() as u64;
    for _ in 0..100 {
        let now = Moment { elapsed: Duration::ZERO, unix_ms };
        disk.append(Ticket(1), draft("a", "x"), AckLevel::Disk, now);
        assert!(matches!(disk.next(), Some(BackboneEvent::Kept { .. })));
    }
    let is_gone = |disk: &mut Disk| sequences(&disk.read("a", 0, 100)) == [100];
    let until = std::time::Instant::now() + Duration::from_secs(10);
    while !is_gone(&mut disk) {
        assert!(std::time::Instant::now() < until, "old records stay");
        std::thread::yield_now();
    }
    disk.close();
    let mut disk = Disk::of(open_with(&folder.0, "e2", keep(brief)));
    assert_eq!(disk.publish("a", "x").sequence.get(), 101);
    disk.close();
}

#[test]
fn a_tighter_retention_takes_hold_when_the_store_is_opened() {
    let folder = Folder::new();
    let mut disk = Disk::open(&folder.0);
    for number in 0..1_000 {
        disk.publish("a", &format!("{number:010}"));
    }
    disk.close();
    let tight = Retention { count: u64::MAX, bytes: 5_000, age: None };
    Disk::of(open_with(&folder.0, "e2", keep(tight))).close();
    let mut disk = Disk::open(&folder.0);
    let (kept, complete_after) = disk.read_page("a", ReadWanted::after(Sequence::START, 1_000));
    let kept = sequences(&kept);
    assert_eq!((kept.len(), kept.first(), complete_after), (500, Some(&501), 500));
    let removed = ReadWanted {
        before: Sequence::new(100).expect("small"),
        ..ReadWanted::after(Sequence::START, 9)
    };
    assert_eq!(disk.read_page("a", removed), (vec![], 99), "nothing of it is kept");
    disk.close();
}

#[test]
fn a_second_one_is_refused_while_the_first_is_open() {
    let folder = Folder::new();
    let first = open_at(&folder.0, "e1");
    let held = |_: &TopicName| (1, 1);
    let error = open(&folder.0, &Epoch::new("e2"), &Limits::default(), &held, all()).err();
    let text = error.expect("it is locked").text;
    assert!(text.contains("another process has it open") && text.contains("store.path"), "{text}");
    drop(first);
    open_at(&folder.0, "e2");
}

#[test]
fn a_path_that_is_no_directory_is_a_clear_error() {
    let held = |_: &TopicName| (1, 1);
    let error =
        open(Path::new("/proc/nowhere"), &Epoch::new("e"), &Limits::default(), &held, all()).err();
    let text = error.expect("it cannot be made").text;
    assert!(text.contains("/proc/nowhere") && text.contains("check that"), "{text}");
}

/// Flips one bit of a payload that stands somewhere in the store's files.
fn flip_a_bit_of(folder: &Path, needle: &[u8]) -> bool {
    let mut is_found = false;
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).expect("readable").flatten().map(|it| it.path()) {
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let mut bytes = std::fs::read(&path).expect("readable");
            let at = bytes.windows(needle.len()).position(|window| window == needle);
            if let Some(at) = at {
                bytes[at] ^= 1;
                std::fs::write(&path, bytes).expect("writable");
                is_found = true;
            }
        }
    }
    is_found
}

#[test]
fn a_flipped_bit_is_told_and_no_position_is_given_twice() {
    let folder = Folder::new();
    let mut disk = Disk::open(&folder.0);
    for number in 1..=5 {
        disk.publish("a", &format!("payload number {number} of many"));
    }
    disk.close();
    assert!(flip_a_bit_of(&folder.0, b"payload number 3"), "the payload stands in a file");
    let held = |_: &TopicName| (100, 1 << 20);
    match open(&folder.0, &Epoch::new("e2"), &Limits::default(), &held, all()) {
        // The journal's own check found it: whatever followed is gone, and that is said.
        Ok(opened) => {
            assert!(!opened.damage.is_empty(), "damage is never silent");
            let head = opened.topics.first().map_or(0, |found| found.head.get());
            assert!(opened.epoch.as_str() == "e2" || head == 5, "{head} {:?}", opened.damage);
        }
        Err(error) => assert!(error.text.contains("damaged"), "{error}"),
    }
}

#[test]
fn a_shard_that_takes_nothing_stops_no_other() {
    let folder = Folder::new();
    let (tell, mail) = channel();
    let is_open = Arc::new(AtomicBool::new(false));
    let (opens, refusals) = (Arc::clone(&is_open), Arc::new(AtomicU32::new(0)));
    let (refused, tell_first) = (Arc::clone(&refusals), tell.clone());
    let first: Deliver = Box::new(move |mail| {
        if !opens.load(Ordering::SeqCst) {
            refused.fetch_add(1, Ordering::SeqCst);
            return Err(mail);
        }
        // Nobody listens any more at the end of a test.
        let _ = tell_first.send((0, mail));
        Ok(())
    });
    let second: Deliver = Box::new(move |mail| {
        let _ = tell.send((1, mail));
        Ok(())
    });
    let opened = open_at(&folder.0, "e1");
    let epoch = opened.epoch.clone();
    let limits = Limits::default();
    let (log, _, threads) = start(opened, vec![first, second], &limits);
    let mut shards: Vec<_> = (0..2)
        .map(|shard| DiskBackbone::new(log.store(shard), epoch.clone(), &[], &limits, moment()))
        .collect();
    let next = || mail.recv_timeout(Duration::from_secs(10)).expect("the store answers");
    let written = |shard: usize| match next() {
        (from, StoreMail::Written(written)) if from == shard => written,
        other => panic!("{other:?}"),
    };
    for round in 1..=5 {
        shards[0].append(Ticket(round), draft("a", "x"), AckLevel::Disk, moment());
        shards[0].read(Ticket(round), &topic("a"), ReadWanted::after(Sequence::START, 9));
        shards[1].append(Ticket(round), draft("b", "x"), AckLevel::Disk, moment());
        let answer = written(1);
        shards[1].handle_written(answer);
        assert!(matches!(shards[1].poll_event(), Some(BackboneEvent::Kept { .. })), "{round}");
        shards[1].read(Ticket(round), &topic("b"), ReadWanted::after(Sequence::START, 9));
        let (shard, page) = next();
        assert!(matches!((shard, page), (1, StoreMail::Read { ticket, .. }) if ticket == round));
    }
    assert!(refusals.load(Ordering::SeqCst) > 0, "the first shard was offered its mail");
    is_open.store(true, Ordering::SeqCst);
    let (mut kept, mut pages) = (0, 0);
    while kept < 5 || pages < 5 {
        match next() {
            (0, StoreMail::Written(written)) => {
                shards[0].handle_written(written);
                while let Some(BackboneEvent::Kept { .. }) = shards[0].poll_event() {
                    kept += 1;
                }
            }
            (0, StoreMail::Read { .. }) => pages += 1,
            other => panic!("{other:?}"),
        }
    }
    drop((shards, log));
    join(threads);
}

#[test]
fn a_page_backwards_is_none_that_another_reader_had_forwards() {
    let folder = Folder::new();
    let mut disk = Disk::open(&folder.0);
    (0..20).for_each(|number| drop(disk.publish("a", &format!("{number:04}"))));
    // What is kept of them ends where that reader's room did.
    assert_eq!(sequences(&disk.read("a", 0, 5)), [1, 2, 3, 4, 5]);
    assert_eq!(sequences(&disk.read("a", 5, 3)), [6, 7, 8]);
    let head = Sequence::new(20).expect("small");
    let mut read = |start, bytes_max| {
        let wanted = ReadWanted { bytes_max, ..ReadWanted::of_history(start, 500, head) };
        sequences(&disk.read_page("a", wanted).0)
    };
    assert_eq!(read(HistoryStart::Last(500), 1 << 20), Vec::from_iter(1..=20));
    // Eight bytes of each as it is told: three fill the page.
    let newest = read(HistoryStart::Last(500), 17);
    assert_eq!(newest.last(), Some(&20), "{newest:?}");
    let before = HistoryStart::Before(Sequence::new(newest[0]).expect("small"));
    let next = read(before, 17);
    assert_eq!(next.last(), Some(&(newest[0] - 1)), "nothing between them is left out: {next:?}");
}

#[test]
fn keys_outlive_the_records_that_retention_removes() {
    let folder = Folder::new();
    let newest = || keep(Retention { count: 1, bytes: u64::MAX, age: None });
    let mut disk = Disk::of(open_with(&folder.0, "e1", newest()));
    assert_eq!(disk.publish_once("a", "k1"), (1, true));
    assert_eq!(disk.publish_once("a", "k2"), (2, true));
    disk.close();
    for _ in 0..2 {
        let mut disk = Disk::of(open_with(&folder.0, "e2", newest()));
        assert_eq!(disk.publish_once("a", "k1"), (1, false), "its record is gone, the key is not");
        assert_eq!(disk.publish_once("a", "k2"), (2, false));
        disk.close();
    }
}

#[test]
fn a_restart_keeps_the_newest_keys() {
    let folder = Folder::new();
    let ten = Limits { idempotency_keys_max: 10, ..Limits::default() };
    let mut disk = Disk::with(open_limited(&folder.0, "e1", all(), &ten), &ten);
    for number in 1..=20 {
        assert_eq!(disk.publish_once("a", &format!("k{number}")), (number, true));
    }
    disk.close();
    let mut disk = Disk::with(open_limited(&folder.0, "e2", all(), &ten), &ten);
    for number in 11..=20 {
        assert_eq!(disk.publish_once("a", &format!("k{number}")), (number, false));
    }
    disk.close();
}

#[test]
fn keys_leave_the_disk_when_their_window_is_over() {
    let folder = Folder::new();
    let brief = Limits { idempotency_window_ms: Duration::from_millis(1), ..Limits::default() };
    let mut disk = Disk::with(open_limited(&folder.0, "e1", all(), &brief), &brief);
    for number in 1..=20 {
        disk.publish_once("a", &format!("k{number}"));
    }
    disk.close();
    let keys_of =
        |opened: &Opened| opened.topics.iter().map(|topic| topic.keys.len()).sum::<usize>();
    Disk::with(open_limited(&folder.0, "e1", all(), &brief), &brief).close();
    let opened = open_at(&folder.0, "e1");
    assert_eq!((opened.records, keys_of(&opened)), (20, 0), "records stay, keys go");
}

#[test]
fn times_never_go_back_across_restarts() {
    let folder = Folder::new();
    let publish_at = |disk: &mut Disk, unix_ms| {
        disk.append(Ticket(1), draft("a", "x"), AckLevel::Disk, Moment { unix_ms, ..moment() });
        match disk.next() {
            Some(BackboneEvent::Kept { publication, .. }) => publication.unix_ms(),
            other => panic!("not kept: {other:?}"),
        }
    };
    let mut disk = Disk::open(&folder.0);
    assert_eq!(publish_at(&mut disk, 9_000), 9_000);
    disk.close();
    let mut disk = Disk::open(&folder.0);
    assert_eq!([3_000, 9_500, 1].map(|now| publish_at(&mut disk, now)), [9_000, 9_500, 9_500]);
    disk.close();
}
