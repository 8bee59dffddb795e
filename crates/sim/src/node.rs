//! A simulated node: its shards, its disk and its clocks, started the one way in which every test starts them.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use backbone::LatestTime;
use engine::{MailSender, Waker, mailbox};
use hub::{ShardIndex, home_shard};
use model::{Epoch, Moment, TopicName};
use server::{Access, Config, DiskParts, Memory, Shard, ShardMail, ShardParts};

use crate::disk::{SharedDisk, SimStore, lock};
use crate::network::{Network, SimIo};
use crate::random::Random;

/// The clocks of a machine: one that only goes forward, and one that somebody sets.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clocks {
    /// What the monotonic clock shows.
    pub elapsed: Duration,
    /// What the wall clock shows beyond that.
    pub skew: Duration,
}

impl Clocks {
    /// What they show.
    pub fn now(&self) -> Moment {
        let unix_ms = u64::try_from((self.elapsed + self.skew).as_millis()).unwrap_or(0);
        Moment { elapsed: self.elapsed, unix_ms }
    }

    /// Somebody sets the wall clock, forward or back.
    pub fn set(&mut self, random: &mut Random, skew_max: Duration) {
        self.skew = Duration::from_millis(random.below(skew_max.as_millis() as usize) as u64);
    }
}

/// A disk, and how many publications of each of its topics memory holds.
#[derive(Clone, Debug)]
pub struct NodeDisk {
    /// The disk.
    pub disk: SharedDisk,
    /// What is held in memory of each topic at the start.
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
    /// What it may use of memory.
    pub memory: Memory,
    config: Arc<Config>,
    disk: Option<NodeDisk>,
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
        let (shards, mailboxes, clocks) = (Vec::new(), Vec::new(), Clocks::default());
        let memory = Memory::fixed(config.limits.memory_bytes_max);
        let mut node = Self { network, shards, mailboxes, clocks, memory, config, disk, lives: 0 };
        node.restart(count);
        node
    }

    /// Replaces the process by another one, with as many shards as are said.
    pub fn restart(&mut self, count: usize) {
        self.shards.clear();
        self.lives += 1;
        let mailbox_len_max = self.config.limits.mailbox_len_max;
        let (senders, boxes): (Vec<_>, Vec<_>) =
            (0..count).map(|_| mailbox(mailbox_len_max, Waker::none())).unzip();
        let access = Arc::new(Access::new(&self.config));
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
        Some(DiskParts { store, epoch: Epoch::new("disk"), topics })
    }

    /// One turn of a shard; answers how long it would wait for something to do.
    pub fn turn(&mut self, shard: usize) -> Duration {
        self.shards[shard].turn(self.clocks.now()).expect("nobody stops it")
    }

    /// One turn of each; the shortest time that any of them would wait.
    pub fn turn_all(&mut self) -> Duration {
        let waits = (0..self.shards.len()).map(|shard| self.turn(shard));
        waits.min().unwrap_or_default()
    }
}
