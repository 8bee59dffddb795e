//! One run: a node, its clients, and what chance does to them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use engine::{Waker, mailbox};
use hub::ShardIndex;
use model::{
    Command, Draft, Epoch, Limits, Moment, Payload, PayloadKind, Publish, Selector, TopicName,
};
use server::{Access, Config, Shard, ShardParts};

use crate::network::{Network, SimIo};
use crate::peer::{SimPeer, frame};
use crate::random::Random;

const TOPICS: [&str; 6] = ["a", "a/b", "a/c", "b/b", "b/c/d", "e"];
const SELECTORS: [&str; 9] = ["a", "a/b", "b/b", "e", "a/+", "a/#", "+/b", "b/#", "#"];

/// What a run came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Publications sent.
    pub published: u64,
    /// Publications that clients took.
    pub taken: u64,
    /// Gaps that were announced.
    pub gaps: u64,
    /// Connections dropped.
    pub drops: u64,
    /// Publications that clients were told as deltas.
    pub deltas: u64,
    /// Publications that clients were told in pieces.
    pub in_pieces: u64,
}

struct World {
    random: Random,
    network: Rc<RefCell<Network>>,
    shards: Vec<Shard<SimIo>>,
    peers: Vec<SimPeer>,
    publisher: SimPeer,
    published: BTreeMap<TopicName, u64>,
    elapsed: Duration,
    outcome: Outcome,
    limits: Limits,
}

/// Runs a node of one to four shards with `steps` random events, then lets it come to rest and
/// checks that every client has everything.
///
/// # Panics
/// With the rule that was broken; the same seed breaks it again.
pub fn run(seed: u64, steps: usize) -> Outcome {
    let mut world = World::new(seed);
    for _ in 0..steps {
        world.step();
    }
    world.come_to_rest();
    world.check();
    world.outcome
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let count = 1 + random.below(4);
        let limits = Limits {
            recent_deliveries_max: 16 + random.below(500),
            mailbox_len_max: 64 + random.below(500),
            // About every second payload comes in pieces, where a client takes them so.
            fragment_bytes: 40 + random.below(200),
            ..Limits::default()
        };
        let config = Arc::new(Config { limits: limits.clone(), ..Config::default() });
        let access = Arc::new(Access::new(&config));
        let network = Network::new(count, seed);
        let (peers, boxes): (Vec<_>, Vec<_>) =
            (0..count).map(|_| mailbox(limits.mailbox_len_max, Waker::none())).unzip();
        let shard = |(index, mailbox)| {
            Shard::new(ShardParts {
                io: SimIo::new(Rc::clone(&network), index),
                index: ShardIndex(index as u16),
                shard_count: count as u16,
                sessions_max: usize::MAX,
                config: Arc::clone(&config),
                access: Arc::clone(&access),
                mailbox,
                peers: peers.clone(),
                api: None,
                epoch: Epoch::new("sim"),
                secret: [0; 32],
                disk: None,
                pressure: server::SharedPressure::default(),
                now: Moment { elapsed: Duration::ZERO, unix_ms: 0 },
            })
        };
        let shards = boxes.into_iter().enumerate().map(shard).collect();
        let mut peers_of_it: Vec<SimPeer> = (0..8).map(|_| SimPeer::default()).collect();
        peers_of_it.iter_mut().for_each(|peer| peer.choose_manner(&mut random));
        let mut world = Self {
            random,
            network,
            shards,
            peers: peers_of_it,
            publisher: SimPeer::default(),
            published: BTreeMap::new(),
            elapsed: Duration::ZERO,
            outcome: Outcome::default(),
            limits,
        };
        let link = world.network.borrow_mut().connect(0);
        let hello = world.publisher.handle_connect(link);
        world.network.borrow_mut().send(link, &hello);
        world
    }

    fn step(&mut self) {
        match self.random.below(20) {
            0..=6 => self.publish(),
            7..=12 => self.turn(),
            13..=16 => self.read(),
            17 => self.connect(),
            18 => self.subscribe(),
            _ => self.drop_one(),
        }
    }

    fn publish(&mut self) {
        let name = TOPICS[self.random.below(TOPICS.len())];
        let topic = TopicName::parse(name, &self.limits).expect("valid");
        *self.published.entry(topic.clone()).or_default() += 1;
        self.outcome.published += 1;
        let text = vec![b'x'; self.random.below(300)];
        let payload = Payload::new(PayloadKind::Text, &text);
        let draft = Draft { topic, payload, idempotency_key: None, expected: None };
        let link = self.publisher.link.expect("it stays connected");
        self.network.borrow_mut().send(link, &frame(&Command::Publish(Publish { draft })));
    }

    fn turn(&mut self) {
        let shard = self.random.below(self.shards.len());
        self.elapsed += Duration::from_micros(100);
        self.turn_of(shard);
    }

    fn turn_of(&mut self, shard: usize) {
        let unix_ms = u64::try_from(self.elapsed.as_millis()).unwrap_or(0);
        self.shards[shard].turn(Moment { elapsed: self.elapsed, unix_ms });
    }

    fn read(&mut self) {
        let peer = self.random.below(self.peers.len());
        let bytes_max = 1 + self.random.below(3_000);
        self.read_of(peer, bytes_max);
        self.read_publisher();
    }

    fn read_of(&mut self, peer: usize, bytes_max: usize) {
        if let Some(link) = self.peers[peer].link {
            let bytes = self.network.borrow_mut().receive(link, bytes_max);
            self.peers[peer].handle_bytes(&bytes);
            self.peers[peer].heard.clear();
        }
    }

    fn read_publisher(&mut self) {
        let link = self.publisher.link.expect("it stays connected");
        let bytes = self.network.borrow_mut().receive(link, usize::MAX);
        self.publisher.handle_bytes(&bytes);
        self.publisher.published.clear();
    }

    fn connect(&mut self) {
        let peer = self.random.below(self.peers.len());
        if self.peers[peer].link.is_none() {
            let shard = self.random.below(self.shards.len());
            let link = self.network.borrow_mut().connect(shard);
            let bytes = self.peers[peer].handle_connect(link);
            self.network.borrow_mut().send(link, &bytes);
        }
    }

    fn subscribe(&mut self) {
        let peer = self.random.below(self.peers.len());
        let text = SELECTORS[self.random.below(SELECTORS.len())];
        let selector = Selector::parse(text, &self.limits).expect("valid");
        let peer = &mut self.peers[peer];
        if let Some(link) = peer.link
            && !peer.selectors.iter().any(|known| known.overlaps(&selector))
        {
            let bytes = peer.subscribe(selector);
            self.network.borrow_mut().send(link, &bytes);
        }
    }

    fn drop_one(&mut self) {
        let peer = self.random.below(self.peers.len());
        if self.random.one_in(3)
            && let Some(link) = self.peers[peer].link.take()
        {
            self.network.borrow_mut().drop_link(link);
            self.outcome.drops += 1;
        }
    }

    /// Connects everybody and lets time pass until nothing moves any more.
    fn come_to_rest(&mut self) {
        for peer in 0..self.peers.len() {
            if self.peers[peer].link.is_none() {
                let link = self.network.borrow_mut().connect(peer % self.shards.len());
                let bytes = self.peers[peer].handle_connect(link);
                self.network.borrow_mut().send(link, &bytes);
            }
        }
        for _ in 0..3_000 {
            self.elapsed += Duration::from_micros(100);
            for shard in 0..self.shards.len() {
                self.turn_of(shard);
            }
            for peer in 0..self.peers.len() {
                self.read_of(peer, usize::MAX);
            }
            self.read_publisher();
        }
    }

    fn check(&mut self) {
        for (at, peer) in self.peers.iter().enumerate() {
            let link = peer.link.expect("everybody is connected");
            assert!(self.network.borrow().is_open(link), "peer {at} was thrown out");
            for (topic, count) in &self.published {
                if peer.selectors.iter().any(|selector| selector.matches(topic.as_str())) {
                    let last = peer.last_of(topic).map(|sequence| sequence.get());
                    assert_eq!(last, Some(*count), "peer {at} of {topic}");
                }
            }
            self.outcome.taken += peer.taken;
            self.outcome.gaps += peer.gaps;
            self.outcome.deltas += peer.deltas;
            self.outcome.in_pieces += peer.in_pieces;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_keep_every_promise() {
        let mut sum = Outcome::default();
        for seed in 0..1_000 {
            println!("seed {seed}");
            let outcome = run(seed, 1_500);
            sum.published += outcome.published;
            sum.taken += outcome.taken;
            sum.drops += outcome.drops;
            sum.deltas += outcome.deltas;
            sum.in_pieces += outcome.in_pieces;
        }
        assert!(sum.deltas > 10_000 && sum.in_pieces > 10_000, "{sum:?}");
        assert!(sum.published > 100_000 && sum.taken > 100_000 && sum.drops > 1_000, "{sum:?}");
    }

    #[test]
    fn a_seed_replays_exactly() {
        assert_eq!(run(42, 2_000), run(42, 2_000));
    }
}
