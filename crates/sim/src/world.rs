//! One run: a node, its clients, and what chance does to them.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{
    Command, Draft, Gap, GapReason, Limits, Payload, PayloadKind, Publish, SeededHashing,
    TopicName, TopicPolicy,
};
use server::Config;

use crate::clients::Clients;
use crate::network::Network;
use crate::node::{Node, config_of};
use crate::peer::{Bug, SimPeer, frame};
use crate::random::Random;
use crate::rest::Rest;

const TOPICS: [&str; 6] = ["a", "a/b", "a/c", "b/b", "b/c/d", "e"];
const SELECTORS: [&str; 9] = ["a", "a/b", "b/b", "e", "a/+", "a/#", "+/b", "b/#", "#"];

/// The result of a run.
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
    /// Shows all that happened: the same seed makes the same number.
    pub digest: u64,
}

struct World {
    random: Random,
    node: Node,
    clients: Clients,
    publisher: SimPeer,
    published: BTreeMap<TopicName, u64>,
    outcome: Outcome,
    limits: Limits,
    /// How many publications a topic keeps.
    history_count: u64,
}

/// Runs a node of one to four shards with `steps` random events, then lets it come to rest and
/// checks that every client has everything.
///
/// # Panics
/// With the rule that was broken; the same seed breaks it again.
pub fn run(seed: u64, steps: usize) -> Outcome {
    let _seeded = SeededHashing::begin(seed);
    let mut world = World::new(seed);
    for _ in 0..steps {
        world.step();
    }
    world.come_to_rest();
    world.check();
    world.outcome.digest = world.node.network.borrow().digest();
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
        // Few in every other run, so that gaps are told; all of them in the others, so that none may be.
        let history_count = if random.one_in(2) { 2 + random.below(30) } else { 10_000 };
        let policy = TopicPolicy { history_count, ..TopicPolicy::default() };
        let config = Arc::new(config_of(Config::default(), limits.clone(), policy));
        let network = Network::new(count, seed);
        let clients = Clients::new(8, Bug::None, &network, &mut random);
        let node = Node::start(count, config, network, None);
        let mut world = Self {
            random,
            node,
            clients,
            publisher: SimPeer::default(),
            published: BTreeMap::new(),
            outcome: Outcome::default(),
            limits,
            history_count: history_count as u64,
        };
        let link = world.node.network.borrow_mut().connect(0);
        let hello = world.publisher.handle_connect(link);
        world.node.network.borrow_mut().send(link, &hello);
        world
    }

    fn step(&mut self) {
        match self.random.below(20) {
            0..=6 => self.publish(),
            7..=12 => self.node.turn_any(&mut self.random),
            13..=16 => self.read(),
            17 => self.connect(),
            18 => self.clients.subscribe(&SELECTORS, &mut self.random),
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
        self.node.network.borrow_mut().send(link, &frame(&Command::Publish(Publish { draft })));
    }

    fn read(&mut self) {
        let peer = self.clients.any(&mut self.random);
        let bytes_max = 1 + self.random.below(3_000);
        self.read_of(peer, bytes_max);
        self.read_publisher();
    }

    fn read_of(&mut self, peer: usize, bytes_max: usize) {
        let client = &mut self.clients.peers[peer];
        if let Some(link) = client.link {
            let bytes = self.node.network.borrow_mut().receive(link, bytes_max);
            client.handle_bytes(&bytes);
            client.heard.clear();
            let gaps = std::mem::take(&mut client.told_gaps);
            gaps.iter().for_each(|gap| self.check_gap(peer, gap));
        }
    }

    /// Checks that what a gap covers is gone from the topic's history: its home keeps the newest
    /// `history_count` of what was published, and no more than was sent has been published.
    fn check_gap(&mut self, peer: usize, gap: &Gap) {
        self.outcome.gaps += 1;
        let sent = self.published.get(&gap.topic).copied().unwrap_or(0);
        let gone = sent.saturating_sub(self.history_count);
        assert!(
            gap.reason != GapReason::Epoch && gap.to.get() <= gone,
            "peer {peer} was told that {:?} to {} of {} are gone ({:?}), and {} were kept of {sent}",
            gap.from,
            gap.to,
            gap.topic,
            gap.reason,
            self.history_count
        );
    }

    fn read_publisher(&mut self) {
        let link = self.publisher.link.expect("it stays connected");
        let bytes = self.node.network.borrow_mut().receive(link, usize::MAX);
        self.publisher.handle_bytes(&bytes);
        self.publisher.published.clear();
    }

    fn connect(&mut self) {
        let at = self.clients.any(&mut self.random);
        if self.clients.is_away(at) {
            self.clients.connect(at, self.random.below(self.node.shards.len()));
        }
    }

    fn drop_one(&mut self) {
        let at = self.clients.any(&mut self.random);
        if self.random.one_in(3) && self.clients.drop_link(at) {
            self.outcome.drops += 1;
        }
    }

    /// Connects everybody and lets time pass until nothing moves any more.
    fn come_to_rest(&mut self) {
        for at in 0..self.clients.len() {
            if self.clients.is_away(at) {
                self.clients.connect(at, at % self.node.shards.len());
            }
        }
        let mut rest = Rest::default();
        while !rest.is_over() {
            self.node.clocks.elapsed += rest.pause();
            let wait = self.node.turn_all();
            for peer in 0..self.clients.len() {
                self.read_of(peer, usize::MAX);
            }
            self.read_publisher();
            rest.handle_round(wait, self.node.is_quiet());
        }
    }

    fn check(&mut self) {
        let abandoned = self.node.network.borrow().abandoned();
        assert_eq!(abandoned, [0; 0], "held though their clients are gone");
        for (at, peer) in self.clients.peers.iter().enumerate() {
            let link = peer.link.expect("everybody is connected");
            assert!(self.node.network.borrow().is_open(link), "peer {at} was thrown out");
            for (topic, count) in &self.published {
                if peer.selectors.iter().any(|selector| selector.matches(topic.as_str())) {
                    let last = peer.last_of(topic).map(|sequence| sequence.get());
                    assert_eq!(last, Some(*count), "peer {at} of {topic}");
                }
            }
            self.outcome.taken += peer.taken;
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
        for seed in 0..500 {
            println!("seed {seed}");
            let outcome = run(seed, 1_500);
            sum.published += outcome.published;
            sum.taken += outcome.taken;
            sum.drops += outcome.drops;
            sum.deltas += outcome.deltas;
            sum.in_pieces += outcome.in_pieces;
            sum.gaps += outcome.gaps;
        }
        assert!(sum.gaps > 500, "{sum:?}");
        assert!(sum.deltas > 5_000 && sum.in_pieces > 5_000, "{sum:?}");
        assert!(sum.published > 50_000 && sum.taken > 50_000 && sum.drops > 500, "{sum:?}");
    }

    #[test]
    fn a_seed_replays_exactly() {
        assert_eq!(run(42, 2_000), run(42, 2_000));
    }
}
