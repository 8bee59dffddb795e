//! Runs with a disk, in which the whole server dies again and again.
//!
//! The checker knows what every acknowledged publication must do: it is on the disk at its position with its
//! payload, once; and nobody ever reads at a position anything else than what the disk has there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use model::{
    AckLevel, Command, CommandId, Draft, Limits, Payload, PayloadKind, Publish, SeededHashing,
    Sequence, TopicName, TopicPolicy,
};
use server::Config;

use crate::clients::Clients;
use crate::disk::{Lie, SharedDisk, SimDisk, lock};
use crate::network::Network;
use crate::node::{Node, NodeDisk, config_of};
use crate::peer::{Bug, SimPeer, frame_as};
use crate::random::Random;
use crate::rest::Rest;

const TOPICS: [&str; 4] = ["a", "a/b", "b/b", "c"];
const SELECTORS: [&str; 6] = ["a", "a/b", "c", "a/+", "+/b", "#"];
/// Publications of each topic that memory holds: few, so that resumes need the disk.
const HELD: usize = 4;
const SHARDS_MAX: usize = 3;
/// The disk does fewer things than this in one go.
const WORK_MAX: usize = 8;

/// How far the wall clock jumps: less than idempotency keys are remembered.
const SKEW_MAX: Duration = Duration::from_secs(60);

/// The result of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KillOutcome {
    /// Publications acknowledged.
    pub acknowledged: u64,
    /// Publications that clients took.
    pub taken: u64,
    /// Times that the server was killed.
    pub kills: u64,
    /// Shows all that happened: the same seed makes the same number.
    pub digest: u64,
}

struct World {
    random: Random,
    node: Node,
    disk: SharedDisk,
    clients: Clients,
    publisher: SimPeer,
    /// Numbers of publications that were sent and not acknowledged.
    unanswered: BTreeSet<u64>,
    acknowledged: BTreeMap<u64, Sequence>,
    next: u64,
    outcome: KillOutcome,
}

/// Runs a node with a disk through `steps` random events, kills among them, lets it come to rest, and
/// checks what was acknowledged.
///
/// # Panics
/// With the promise that was broken; the same seed breaks it again.
pub fn run_with_kills(seed: u64, steps: usize, lie: Lie, bug: Bug) -> KillOutcome {
    let _seeded = SeededHashing::begin(seed);
    let mut world = World::new(seed, lie, bug);
    for _ in 0..steps {
        world.step();
    }
    world.come_to_rest();
    world.check();
    world.outcome.digest = world.node.network.borrow().digest();
    world.outcome
}

/// Publication `number` goes to this topic.
fn topic_of(number: u64) -> TopicName {
    let name = TOPICS[number as usize % TOPICS.len()];
    TopicName::parse(name, &Limits::default()).expect("valid")
}

/// Commands with ids from here on are publications.
const FIRST: u64 = 1_000;

impl World {
    fn new(seed: u64, lie: Lie, bug: Bug) -> Self {
        let mut random = Random::new(seed);
        let count = 1 + random.below(SHARDS_MAX);
        let limits = Limits {
            recent_deliveries_max: 16 + random.below(100),
            mailbox_len_max: 64 + random.below(200),
            // About every second payload comes in pieces, where a client takes them so.
            fragment_bytes: 40 + random.below(200),
            ..Limits::default()
        };
        let policy = TopicPolicy {
            ack: AckLevel::Disk,
            history_count: 1_000_000,
            memory_count: HELD,
            ..TopicPolicy::default()
        };
        let config = Arc::new(config_of(Config::default(), limits, policy));
        let network = Network::new(count, seed);
        let clients = Clients::new(5, bug, &network, &mut random);
        let disk = SimDisk::with(lie);
        let on = NodeDisk { disk: Arc::clone(&disk), held: HELD };
        let node = Node::start(count, config, network, Some(on));
        let mut world = Self {
            random,
            node,
            disk,
            clients,
            publisher: SimPeer::default(),
            unanswered: BTreeSet::new(),
            acknowledged: BTreeMap::new(),
            next: FIRST,
            outcome: KillOutcome::default(),
        };
        world.node.clocks.skew = SKEW_MAX / 2;
        world.open();
        world
    }

    /// The publisher comes, with all that was not answered.
    fn open(&mut self) {
        let link = self.node.network.borrow_mut().connect(0);
        let mut bytes = self.publisher.handle_connect(link);
        // Whatever was not answered may have been kept or not: its key tells.
        for number in &self.unanswered {
            bytes.extend(publish_bytes(*number));
        }
        self.node.network.borrow_mut().send(link, &bytes);
    }

    fn step(&mut self) {
        match self.random.below(24) {
            0..=5 => self.publish(),
            6..=11 => self.node.turn_any(&mut self.random),
            12..=14 => self.node.work(self.random.below(WORK_MAX)),
            15..=18 => self.read(),
            19 | 20 => {
                let at = self.clients.any(&mut self.random);
                self.connect_one(at);
            }
            21 => self.clients.subscribe(&SELECTORS, &mut self.random),
            22 if self.random.one_in(8) => {
                self.node.clocks.jump(&mut self.random, SKEW_MAX);
            }
            22 => {
                self.clients.drop_link(self.clients.any(&mut self.random));
            }
            _ if self.random.one_in(4) => self.kill(),
            _ => {}
        }
    }

    fn publish(&mut self) {
        let number = self.next;
        self.next += 1;
        self.unanswered.insert(number);
        let link = self.publisher.link.expect("it stays connected");
        self.node.network.borrow_mut().send(link, &publish_bytes(number));
    }

    fn read(&mut self) {
        let peer = self.clients.any(&mut self.random);
        let bytes_max = 1 + self.random.below(3_000);
        self.read_of(peer, bytes_max);
        self.read_publisher();
    }

    fn read_of(&mut self, at: usize, bytes_max: usize) {
        let peer = &mut self.clients.peers[at];
        let Some(link) = peer.link else { return };
        let mut network = self.node.network.borrow_mut();
        peer.handle_bytes(&network.receive(link, bytes_max));
        network.send(link, &std::mem::take(&mut peer.unsent));
        let disk = lock(&self.disk);
        for (topic, sequence, payload) in peer.heard.drain(..) {
            let kept = disk.payload(&topic, sequence);
            assert_eq!(kept, Some(&payload[..]), "{topic} {sequence} was read and is not kept");
            self.outcome.taken += 1;
        }
        // It was too slow, or the server closed for another reason: it comes back and resumes.
        if !network.has_bytes_for(link) && !network.is_open(link) {
            peer.link = None;
        }
    }

    fn read_publisher(&mut self) {
        let link = self.publisher.link.expect("it stays connected");
        let bytes = self.node.network.borrow_mut().receive(link, usize::MAX);
        self.publisher.handle_bytes(&bytes);
        let pongs = std::mem::take(&mut self.publisher.unsent);
        self.node.network.borrow_mut().send(link, &pongs);
        for (id, _, position) in self.publisher.published.drain(..) {
            self.unanswered.remove(&id.0);
            let before = self.acknowledged.insert(id.0, position.sequence);
            assert!(before.is_none_or(|before| before == position.sequence), "{id:?} moved");
        }
        // Refused for now: the disk or a mailbox was full.
        let refused: Vec<CommandId> = self.publisher.refused.drain(..).collect();
        for id in refused {
            self.node.network.borrow_mut().send(link, &publish_bytes(id.0));
        }
    }

    fn connect_one(&mut self, at: usize) {
        if self.clients.is_away(at) {
            self.clients.connect(at, self.random.below(self.node.shards.len()));
        }
    }

    fn kill(&mut self) {
        self.outcome.kills += 1;
        self.node.kill(&mut self.random, SHARDS_MAX);
        self.clients.peers.iter_mut().for_each(|peer| peer.link = None);
        self.open();
    }

    fn come_to_rest(&mut self) {
        let mut rest = Rest::default();
        while !rest.is_over() {
            (0..self.clients.len()).for_each(|at| self.connect_one(at));
            self.node.clocks.elapsed += rest.pause();
            let wait = self.node.turn_all();
            self.node.work(self.random.below(WORK_MAX));
            (0..self.clients.len()).for_each(|at| self.read_of(at, usize::MAX));
            self.read_publisher();
            rest.handle_round(wait, self.node.is_quiet());
        }
    }

    fn check(&mut self) {
        let disk = lock(&self.disk);
        assert!(self.unanswered.is_empty(), "never answered: {:?}", self.unanswered);
        for (number, sequence) in &self.acknowledged {
            let kept = disk.payload(&topic_of(*number), *sequence);
            assert_eq!(kept, Some(&payload_of(*number)[..]), "{number} at {sequence}");
        }
        assert_eq!(disk.durable.len(), self.acknowledged.len(), "something was kept twice");
        for (at, peer) in self.clients.peers.iter().enumerate() {
            for topic in (0..TOPICS.len() as u64).map(topic_of) {
                let is_read = peer.selectors.iter().any(|s| s.matches(topic.as_str()));
                let head = disk.head(&topic);
                if is_read && head > Sequence::START {
                    assert_eq!(peer.last_of(&topic), Some(head), "peer {at} of {topic}");
                }
            }
            assert_eq!(peer.counted.gaps, 0, "peer {at} was told a gap");
        }
        self.outcome.acknowledged = self.acknowledged.len() as u64;
    }
}

fn payload_of(number: u64) -> Vec<u8> {
    let mut payload = number.to_string().into_bytes();
    payload.resize(payload.len() + number as usize % 200, b' ');
    payload
}

fn publish_bytes(number: u64) -> Vec<u8> {
    let draft = Draft {
        topic: topic_of(number),
        payload: Payload::new(PayloadKind::Text, &payload_of(number)),
        idempotency_key: Some(format!("key-{number}").into()),
        expected: None,
    };
    frame_as(CommandId(number), &Command::Publish(Publish { draft }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_acknowledged_is_lost_or_doubled_by_kills() {
        let mut sum = KillOutcome::default();
        for seed in 0..800 {
            println!("seed {seed}");
            let outcome = run_with_kills(seed, 1_500, Lie::None, Bug::None);
            sum.acknowledged += outcome.acknowledged;
            sum.taken += outcome.taken;
            sum.kills += outcome.kills;
        }
        assert!(sum.acknowledged > 107_000 && sum.kills > 2_140 && sum.taken > 43_000, "{sum:?}");
    }

    #[test]
    fn a_seed_replays_exactly() {
        assert_eq!(
            run_with_kills(7, 2_000, Lie::None, Bug::None),
            run_with_kills(7, 2_000, Lie::None, Bug::None)
        );
    }

    #[test]
    fn the_checker_finds_every_lie_of_a_disk() {
        for lie in
            [Lie::AnswersEarly, Lie::LosesFromTheMiddle, Lie::ForgetsKeys, Lie::ForgetsTheNewest]
        {
            let finds = |seed| {
                let run = || run_with_kills(seed, 1_500, lie, Bug::None);
                std::panic::catch_unwind(run).is_err()
            };
            assert!((0..40).any(finds), "{lie:?} was not found");
        }
    }

    #[test]
    fn the_checker_finds_every_bug_of_a_client() {
        for bug in [Bug::ForgetsWhereItWas, Bug::ClaimsOneTooMany] {
            let finds = |seed| {
                let run = || run_with_kills(seed, 1_500, Lie::None, bug);
                std::panic::catch_unwind(run).is_err()
            };
            assert!((0..40).any(finds), "{bug:?} was not found");
        }
    }
}
