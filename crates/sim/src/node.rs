//! A simulated node: its shards, its disk and its clocks, started the one way in which every test starts them.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use backbone::{BackboneMail, LatestTime, StoreMail};
use engine::{MailSender, Waker, mailbox};
use hub::{ShardIndex, home_shard};
use model::{BackboneIndex, Epoch, Limits, Moment, PolicyRule, Selector, TopicName, TopicPolicy};
use server::{Config, DiskParts, Memory, Shard, ShardMail, ShardParts, access_of};

use crate::disk::{SharedDisk, SimStore, lock};
use crate::network::{Network, SimIo};
use crate::random::Random;

/// Time that passes with a turn.
const MOMENT: Duration = Duration::from_micros(100);

/// A configuration with one policy for all topics, before those that it has.
pub(crate) fn config_of(config: Config, limits: Limits, policy: TopicPolicy) -> Config {
    // No device proves anything here: what remembers proofs would take longer to make than a short run.
    let limits = Limits { proofs_per_minute_max: 64, ..limits };
    let selector = Selector::parse("#", &limits).expect("valid");
    let policies = [PolicyRule { selector, policy }].into_iter().chain(config.policies).collect();
    Config { limits, policies, ..config }
}

/// The clocks of a machine: one that only goes forward, and one that somebody sets.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clocks {
    /// The time on the monotonic clock.
    pub elapsed: Duration,
    /// The lead of the wall clock over the monotonic one.
    pub skew: Duration,
}

impl Clocks {
    /// The times that they show.
    pub fn now(&self) -> Moment {
        let unix_ms = u64::try_from((self.elapsed + self.skew).as_millis()).unwrap_or(0);
        Moment { elapsed: self.elapsed, unix_ms }
    }

    /// Somebody sets the wall clock, forward or back; or the machine slept, and everything is late at once. Answers
    /// which.
    pub fn jump(&mut self, random: &mut Random, skew_max: Duration) -> &'static str {
        const SLEEP_MS_MAX: usize = 5_000;
        if random.one_in(2) {
            self.skew = Duration::from_millis(random.below(skew_max.as_millis() as usize) as u64);
            return "clock set";
        }
        self.elapsed += Duration::from_millis(random.below(SLEEP_MS_MAX) as u64);
        "machine slept"
    }
}

/// A disk, and how many publications of each of its topics memory holds.
#[derive(Clone, Debug)]
pub struct NodeDisk {
    /// The disk.
    pub disk: SharedDisk,
    /// The number of publications of each topic in memory at the start.
    pub held: usize,
}

/// A running node.
pub struct Node {
    /// Its connections.
    pub network: Rc<RefCell<Network>>,
    /// Its shards.
    pub shards: Vec<Shard<SimIo>>,
    /// Their mailboxes.
    pub mailboxes: Vec<MailSender<ShardMail>>,
    /// Its clocks.
    pub clocks: Clocks,
    /// The memory that it may use.
    pub memory: Memory,
    config: Arc<Config>,
    disk: Option<NodeDisk>,
    /// Mail of the disk that found a full mailbox.
    undelivered: Vec<(usize, StoreMail)>,
    /// How many processes there have been.
    lives: u32,
}

impl Node {
    /// Starts a node of `count` shards; on a disk with what it holds.
    pub fn start(
        count: usize,
        config: Arc<Config>,
        network: Rc<RefCell<Network>>,
        disk: Option<NodeDisk>,
    ) -> Self {
        let memory = Memory::fixed(config.limits.memory_bytes_max);
        let mut node = Self {
            network,
            shards: Vec::new(),
            mailboxes: Vec::new(),
            clocks: Clocks::default(),
            memory,
            config,
            disk,
            undelivered: Vec::new(),
            lives: 0,
        };
        node.restart(count);
        node
    }

    /// The process is gone, with everything that was only in memory; another one starts, perhaps with another number of
    /// shards, `count_max` at most.
    pub fn kill(&mut self, random: &mut Random, count_max: usize) {
        const DOWN: Duration = Duration::from_millis(10);
        if let Some(on) = &self.disk {
            lock(&on.disk).crash(random);
        }
        self.undelivered.clear();
        self.network.borrow_mut().cut_all();
        self.clocks.elapsed += DOWN;
        self.restart(1 + random.below(count_max));
    }

    /// Replaces the process by another one, with as many shards as are said.
    pub fn restart(&mut self, count: usize) {
        self.shards.clear();
        self.lives += 1;
        let mailbox_len_max = self.config.limits.mailbox_len_max;
        let (senders, boxes): (Vec<_>, Vec<_>) =
            (0..count).map(|_| mailbox(mailbox_len_max, Waker::none())).unzip();
        let access = Arc::new(access_of(&self.config));
        let times = LatestTime::default();
        for (index, mailbox) in boxes.into_iter().enumerate() {
            self.shards.push(Shard::new(ShardParts {
                io: SimIo::new(Rc::clone(&self.network), index),
                index: ShardIndex(index as u16),
                shard_count: count as u16,
                sessions_max: usize::MAX,
                config: Arc::clone(&self.config),
                access: Arc::clone(&access),
                mailbox,
                peers: senders.clone(),
                api: None,
                epoch: Epoch::new(&format!("memory-{}", self.lives)),
                secret: [0; 32],
                disk: self.disk_of(index, count),
                memory: self.memory.clone(),
                times: times.clone(),
                now: self.clocks.now(),
            }));
        }
        self.mailboxes = senders;
    }

    fn disk_of(&self, index: usize, count: usize) -> Option<DiskParts> {
        let NodeDisk { disk, held } = self.disk.as_ref()?;
        let at_home = |topic: &TopicName| home_shard(topic, count as u16).0 == index as u16;
        let mut topics = lock(disk).found(*held);
        topics.retain(|found| at_home(&found.topic));
        let store = Box::new(SimStore::new(disk, index));
        let epoch = lock(disk).epoch();
        Some(DiskParts { store, epoch, topics })
    }

    /// One turn of a shard; answers how long it would wait for something to do.
    pub fn turn(&mut self, shard: usize) -> Duration {
        self.shards[shard].turn(self.clocks.now()).expect("nobody stops it")
    }

    /// One turn of any shard, a moment later.
    pub fn turn_any(&mut self, random: &mut Random) {
        self.clocks.elapsed += MOMENT;
        self.turn(random.below(self.shards.len()));
    }

    /// The disk does some of what it was asked, and tells the shards.
    pub fn work(&mut self, count: usize) {
        let Some(on) = &self.disk else { return };
        self.undelivered.extend(lock(&on.disk).work(count));
        let mut is_full = false;
        for (shard, mail) in std::mem::take(&mut self.undelivered) {
            // Once one waits, all wait behind it: mail keeps its order.
            if is_full {
                self.undelivered.push((shard, mail));
                continue;
            }
            let (backbone, mail) = (BackboneIndex::DISK, BackboneMail::Store(mail));
            let sent = self.mailboxes[shard].send(ShardMail::Backbone { backbone, mail });
            if let Err(ShardMail::Backbone { mail: BackboneMail::Store(mail), .. }) = sent {
                is_full = true;
                self.undelivered.push((shard, mail));
            }
        }
    }

    /// Whether nothing is on its way, to or from clients or the disk.
    pub fn is_quiet(&self) -> bool {
        let is_idle = |on: &NodeDisk| lock(&on.disk).is_idle();
        self.network.borrow().is_quiet()
            && self.undelivered.is_empty()
            && self.disk.as_ref().is_none_or(is_idle)
    }

    /// One turn of each; the shortest time that any of them would wait.
    pub fn turn_all(&mut self) -> Duration {
        let waits = (0..self.shards.len()).map(|shard| self.turn(shard));
        waits.min().unwrap_or_default()
    }
}
