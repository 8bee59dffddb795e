//! One run: a node, its clients, and what chance does to them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use model::{
    Command, Draft, Gap, GapReason, Limits, Payload, PayloadKind, Publish, SeededHashing, Sequence,
    TopicName, TopicPolicy,
};
use server::Config;

use crate::clients::Clients;
use crate::network::Network;
use crate::node::{Node, config_of};
use crate::peer::{Bug, SimPeer, Step, frame};
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
    /// Where its publications are, as far as they were acknowledged.
    kept: BTreeMap<TopicName, BTreeSet<Sequence>>,
    /// The gaps that were told: which peer, and how many of the topic can have been gone then.
    gaps: Vec<(usize, Gap, u64)>,
    outcome: Outcome,
    limits: Limits,
    /// How many publications a topic keeps.
    history_count: u64,
}

/// Runs a node of one to four shards with `steps` random events, then lets it come to rest and
/// checks that every client has everything. With every other seed sequences have holes.
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
        let sequence_holes = seed % 2 == 1;
        let config = Config { sequence_holes, ..Config::default() };
        let config = Arc::new(config_of(config, limits.clone(), policy));
        let network = Network::new(count, seed);
        let mut clients = Clients::new(8, Bug::None, &network, &mut random);
        if sequence_holes {
            clients.note_steps();
        }
        let node = Node::start(count, config, network, None);
        let mut world = Self {
            random,
            node,
            clients,
            publisher: SimPeer::default(),
            published: BTreeMap::new(),
            kept: BTreeMap::new(),
            gaps: Vec::new(),
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
            gaps.iter().for_each(|gap| self.note_gap(peer, gap));
        }
    }

    /// Notes how many publications of a topic can be gone when a gap is told of it: its home keeps the newest
    /// `history_count` of what was published, and no more than was sent has been published.
    fn note_gap(&mut self, peer: usize, gap: &Gap) {
        self.outcome.gaps += 1;
        assert!(gap.reason != GapReason::Epoch, "{gap:?}, and no epoch began");
        let sent = self.published.get(&gap.topic).copied().unwrap_or(0);
        self.gaps.push((peer, gap.clone(), sent.saturating_sub(self.history_count)));
    }

    /// Checks that what a gap covers was gone from the topic's history, and that something was.
    fn check_gap(&self, peer: usize, gap: &Gap, gone: u64) {
        let kept = &self.kept[&gap.topic];
        let covered = kept.range(..=gap.to).count() as u64;
        let from = gap.from.unwrap_or_default();
        assert!(
            covered <= gone && kept.range(from..=gap.to).next().is_some(),
            "peer {peer} was told that {:?} to {} of {} are gone ({:?}), and only the first {gone} of {kept:?} were",
            gap.from,
            gap.to,
            gap.topic,
            gap.reason,
        );
    }

    fn read_publisher(&mut self) {
        let link = self.publisher.link.expect("it stays connected");
        let bytes = self.node.network.borrow_mut().receive(link, usize::MAX);
        self.publisher.handle_bytes(&bytes);
        for (_, topic, position) in self.publisher.published.drain(..) {
            self.kept.entry(topic).or_default().insert(position.sequence);
        }
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
        let counts = self.kept.iter().map(|(topic, kept)| (topic.clone(), kept.len() as u64));
        assert_eq!(counts.collect::<BTreeMap<_, _>>(), self.published, "all are acknowledged");
        self.gaps.iter().for_each(|(peer, gap, gone)| self.check_gap(*peer, gap, *gone));
        let abandoned = self.node.network.borrow().abandoned();
        assert_eq!(abandoned, [0; 0], "held though their clients are gone");
        for (at, peer) in self.clients.peers.iter().enumerate() {
            let link = peer.link.expect("everybody is connected");
            assert!(self.node.network.borrow().is_open(link), "peer {at} was thrown out");
            for (topic, kept) in &self.kept {
                if peer.selectors.iter().any(|selector| selector.matches(topic.as_str())) {
                    let (last, head) = (peer.last_of(topic), kept.last().copied());
                    assert_eq!(last, head, "peer {at} of {topic}");
                }
            }
            for Step { topic, after, sequence } in peer.steps.iter().flatten() {
                let between = (Bound::Excluded(after), Bound::Excluded(sequence));
                let untold = self.kept[topic].range(between).next();
                assert_eq!(untold, None, "peer {at} of {topic}: {sequence} after {after}");
                assert!(self.kept[topic].contains(sequence), "{sequence} of {topic} is not kept");
            }
            self.outcome.taken += peer.counted.taken;
            self.outcome.deltas += peer.counted.deltas;
            self.outcome.in_pieces += peer.counted.in_pieces;
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
