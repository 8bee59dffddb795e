//! A disk in memory: what was not synced is lost in a crash, all of it or from some record on.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use backbone::{ReadWanted, Record, Store, StoreFault, StoreMail, StoredTopic, Written};
use model::{Epoch, Publication, Sequence, TopicName};

use crate::random::Random;

/// Faults that a disk may be given, to see that the checker finds them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lie {
    /// It is honest.
    #[default]
    None,
    /// It says that records are durable before they are.
    AnswersEarly,
    /// In a crash it may lose a record and keep a later one.
    LosesFromTheMiddle,
    /// After a crash it has forgotten the idempotency keys.
    ForgetsKeys,
    /// After a crash it has forgotten the newest durable record of a topic.
    ForgetsTheNewest,
}

/// The content of the disk, and the writes on their way there.
#[derive(Debug, Default)]
pub struct SimDisk {
    /// Records that survive a crash.
    pub durable: BTreeMap<(u64, Sequence), Record>,
    names: BTreeMap<TopicName, u64>,
    waiting: VecDeque<(usize, Record)>,
    answered_early: usize,
    /// Answers to writes that are on the disk: the writer tells of them a moment later, and what is read
    /// may show them first.
    unmailed: Vec<(usize, StoreMail)>,
    reads: VecDeque<(usize, u64, u64, ReadWanted)>,
    topics: u64,
    lie: Lie,
    /// It takes no more records until the next start.
    is_broken: bool,
    /// Which epoch the numbering is in.
    epoch: u64,
    /// How many shards hear from it.
    shards: usize,
    /// A shard asked for a new epoch.
    wants_epoch: bool,
    /// This process began one: there is no second.
    has_begun: bool,
}

/// A disk that shards share.
pub type SharedDisk = Arc<Mutex<SimDisk>>;

/// One shard's hold on a simulated disk.
#[derive(Debug)]
pub struct SimStore {
    disk: SharedDisk,
    shard: usize,
}

impl SimStore {
    /// The hold of one shard.
    pub fn new(disk: &SharedDisk, shard: usize) -> Self {
        let mut known = lock(disk);
        known.shards = known.shards.max(shard + 1);
        Self { disk: Arc::clone(disk), shard }
    }
}

/// The disk behind its lock: everything runs on one thread.
pub fn lock(disk: &SharedDisk) -> MutexGuard<'_, SimDisk> {
    disk.lock().expect("a panic ends the run")
}

impl Store for SimStore {
    fn write(&mut self, record: Record) -> Result<(), Record> {
        const WAITING_MAX: usize = 200;
        let mut disk = lock(&self.disk);
        if disk.waiting.len() >= WAITING_MAX {
            return Err(record);
        }
        disk.waiting.push_back((self.shard, record));
        if disk.is_broken {
            disk.refuse(self.shard, 1);
        }
        Ok(())
    }

    fn new_topic_number(&mut self) -> u64 {
        let mut disk = lock(&self.disk);
        disk.topics += 1;
        disk.topics
    }

    fn read(&mut self, ticket: u64, topic_number: u64, wanted: ReadWanted) {
        lock(&self.disk).reads.push_back((self.shard, ticket, topic_number, wanted));
    }

    fn begin_epoch(&mut self) {
        lock(&self.disk).wants_epoch = true;
    }
}

impl SimDisk {
    /// An empty disk with a fault.
    pub fn with(lie: Lie) -> SharedDisk {
        Arc::new(Mutex::new(Self { lie, ..Self::default() }))
    }

    /// Makes the oldest records durable and answers what waits to be read: mail for shards.
    pub fn work(&mut self, count: usize) -> Vec<(usize, StoreMail)> {
        let mut mail = std::mem::take(&mut self.unmailed);
        if self.lie == Lie::AnswersEarly {
            for (shard, _) in self.waiting.iter().skip(self.answered_early) {
                mail.push((*shard, StoreMail::Written(Written { count: 1, result: Ok(()) })));
            }
            self.answered_early = self.waiting.len();
        }
        let count = if self.is_broken { 0 } else { count.min(self.waiting.len()) };
        for _ in 0..count {
            let Some((shard, record)) = self.waiting.pop_front() else { break };
            self.persist(record);
            if self.answered_early > 0 {
                self.answered_early -= 1;
            } else {
                let written = StoreMail::Written(Written { count: 1, result: Ok(()) });
                self.unmailed.push((shard, written));
            }
        }
        self.begin_epoch();
        for (shard, ticket, topic_number, wanted) in std::mem::take(&mut self.reads) {
            let publications = self.read(topic_number, wanted);
            mail.push((shard, StoreMail::Read { ticket, publications }));
        }
        mail
    }

    /// Begins another epoch if one is wanted: what was written before is of the one that ends, for each shard.
    fn begin_epoch(&mut self) {
        if self.wants_epoch && !self.has_begun && !self.is_broken {
            (self.epoch, self.has_begun) = (self.epoch + 1, true);
            let epoch = self.epoch();
            let mail = (0..self.shards).map(|shard| (shard, StoreMail::Epoch(epoch.clone())));
            self.unmailed.extend(mail);
        }
    }

    /// Which epoch the numbering is in.
    pub fn epoch(&self) -> Epoch {
        Epoch::new(&format!("disk-{}", self.epoch))
    }

    /// How many epochs began while servers ran.
    pub fn epochs_begun(&self) -> u64 {
        self.epoch
    }

    /// A write fails: each shard is told so once, and nothing is written until the next start. A write that was on its way may
    /// arrive all the same ([`SimDisk::crash`]).
    pub fn fail(&mut self) {
        self.is_broken = true;
        let shards: BTreeSet<usize> = self.waiting.iter().map(|(shard, _)| *shard).collect();
        for shard in shards {
            let count = self.waiting.iter().filter(|(of, _)| *of == shard).count();
            self.refuse(shard, count);
        }
    }

    fn refuse(&mut self, shard: usize, count: usize) {
        let fault = StoreFault { text: "the simulated disk failed".into() };
        let written = StoreMail::Written(Written { count, result: Err(fault) });
        self.unmailed.push((shard, written));
    }

    /// Whether nothing waits to be written, told or read.
    pub fn is_idle(&self) -> bool {
        let is_renewing = self.wants_epoch && !self.has_begun;
        self.waiting.is_empty() && self.unmailed.is_empty() && self.reads.is_empty() && !is_renewing
    }

    fn read(&self, topic_number: u64, wanted: ReadWanted) -> Vec<Publication> {
        let range =
            self.durable.range((topic_number, Sequence::START)..=(topic_number, Sequence::MAX));
        wanted.take(range.map(|(_, record)| record.publication.clone()))
    }

    fn persist(&mut self, record: Record) {
        self.names.insert(record.topic.clone(), record.topic_number);
        let key = (record.topic_number, record.publication.sequence());
        self.durable.insert(key, record);
    }

    /// The process dies: of what was on its way a part arrives, torn somewhere.
    pub fn crash(&mut self, random: &mut Random) {
        let survivors = random.below(self.waiting.len() + 1);
        for (at, (_, record)) in std::mem::take(&mut self.waiting).into_iter().enumerate() {
            let is_lost = self.lie == Lie::LosesFromTheMiddle && random.one_in(4);
            if at < survivors && !is_lost {
                self.persist(record);
            }
        }
        self.reads.clear();
        self.unmailed.clear();
        self.answered_early = 0;
        (self.is_broken, self.wants_epoch, self.has_begun) = (false, false, false);
        self.shards = 0;
        if self.lie == Lie::ForgetsTheNewest
            && let Some((&newest, _)) = self.durable.iter().next_back()
        {
            self.durable.remove(&newest);
        }
    }

    /// The records that a server finds when it starts on this disk; memory holds at most `held` of each topic.
    pub fn found(&self, held: usize) -> Vec<StoredTopic> {
        let topics = self.names.iter();
        topics
            .map(|(topic, &number)| {
                let records: Vec<&Record> = self
                    .durable
                    .range((number, Sequence::START)..=(number, Sequence::MAX))
                    .map(|(_, record)| record)
                    .collect();
                let head = records.last().map_or(Sequence::START, |it| it.publication.sequence());
                let newest = records.iter().rev().take(held).rev();
                let keys = records.iter().filter(|_| self.lie != Lie::ForgetsKeys);
                StoredTopic {
                    topic: topic.clone(),
                    number,
                    head,
                    unix_ms: records.last().map_or(0, |it| it.publication.unix_ms()),
                    newest: newest.map(|record| record.publication.clone()).collect(),
                    keys: keys
                        .filter_map(|record| {
                            let key = record.idempotency_key.clone()?;
                            let publication = &record.publication;
                            Some((key, publication.sequence(), publication.unix_ms()))
                        })
                        .collect(),
                }
            })
            .filter(|topic| topic.head > Sequence::START)
            .collect()
    }

    /// The newest durable sequence of a topic.
    pub fn head(&self, topic: &TopicName) -> Sequence {
        let Some(&number) = self.names.get(topic) else { return Sequence::START };
        let range = self.durable.range((number, Sequence::START)..=(number, Sequence::MAX));
        range.map(|((_, sequence), _)| *sequence).next_back().unwrap_or(Sequence::START)
    }

    /// The payload of a durable publication.
    pub fn payload(&self, topic: &TopicName, sequence: Sequence) -> Option<&[u8]> {
        let number = *self.names.get(topic)?;
        Some(self.durable.get(&(number, sequence))?.publication.payload())
    }
}
