//! Runs with everything in them: readers of every manner over every carriage, repeated keys, requests, devices; on some
//! nodes a disk that fails and processes that die, on the others short memory; and clocks that jump.
//!
//! Cases that are not reached here are named in the crate's documentation.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::catch_unwind;
use std::sync::Arc;
use std::time::Duration;

use model::{
    AckLevel, Code, Command, CommandId, Draft, Event, Gap, GapReason, Limits, Payload, PayloadKind,
    Publish, SeededHashing, TopicName, TopicPolicy,
};
use server::Config;

use crate::asking::{Asks, Caller, DEVICES};
use crate::carriage::{Carriage, Input, SimSession, TOKEN};
use crate::counts::Counts;
use crate::disk::{Lie, SharedDisk, SimDisk, lock};
use crate::network::Network;
use crate::node::{Node, NodeDisk, config_of};
use crate::random::Random;
use crate::reader::{Reader, TOPICS_COUNT};
use crate::rest::Rest;
use crate::truth::{Truth, headers_of, payload_of};

const TOPICS: [&str; TOPICS_COUNT] = ["a", "a/b", "a/c", "b/b", "e"];
const SELECTORS: [&str; 9] = ["a", "a/b", "a/c", "b/b", "e", "a/+", "a/#", "+/b", "b/#"];
const APPLICATIONS: &str = "[[applications]]\nid = \"app\"\n[[applications.keys]]\nid = \"k\"\n\
    key = \"application-key-0123\"\nroles = [\"device\"]\n";
const EVERYTHING: &str = "publish = [\"#\"]\nsubscribe = [\"#\"]\nhandle = [\"#\"]\n";
/// Publications of each topic that memory holds, of those on disk: few, so that resumes need the disk.
const HELD: usize = 4;
const SHARDS_MAX: usize = 4;
/// The disk does fewer things than this in one go.
const WORK_MAX: usize = 8;
const READERS: usize = 6;
const CALLERS: usize = 3;
const MEMORY_BYTES_MAX: usize = 1 << 30;
/// How far the wall clock jumps where keys outlive the process: less than they are remembered.
const SKEW_ON_DISK: Duration = Duration::from_secs(60);
const SKEW_IN_MEMORY: Duration = Duration::from_secs(100_000);
/// A key is repeated within this time; it is remembered for longer.
const REPEATED_WITHIN: Duration = Duration::from_secs(150);
/// The checks at the end of a run need longer than any request may take.
const REQUESTS_END: Duration = Duration::from_secs(4);

/// The seeds that CI runs, and the steps of each.
pub const CI_SEEDS: u64 = 1_200;
/// Random events in a run.
pub const CI_STEPS: usize = 1_500;

/// The result of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MixtureOutcome {
    /// How often each kind of event came about.
    pub counts: Counts,
    /// Shows all that happened: the same seed makes the same number.
    pub digest: u64,
}

struct World {
    random: Random,
    node: Node,
    disk: Option<SharedDisk>,
    readers: Vec<Reader>,
    callers: Vec<Caller>,
    asks: Asks,
    publisher: SimSession,
    truth: Truth,
    next: u64,
    unanswered: BTreeSet<u64>,
    refused: BTreeSet<u64>,
    sent_at: BTreeMap<u64, Duration>,
    history_count: u64,
    /// Recent deliveries and mailboxes have room for all that a run publishes.
    is_roomy: bool,
    was_short: bool,
    is_disk_broken: bool,
    counts: Counts,
}

/// Runs a node with `steps` random events, lets it come to rest, and checks what everybody was told. With every other seed
/// sequences in memory have holes.
///
/// # Panics
/// With the rule that was broken; the same seed breaks it again.
pub fn run_mixture(seed: u64, steps: usize) -> MixtureOutcome {
    let _seeded = SeededHashing::begin(seed);
    let mut world = World::new(seed);
    for _ in 0..steps {
        world.step();
    }
    world.come_to_rest();
    world.check();
    world.check_devices();
    world.count_epochs();
    let digest = world.node.network.borrow().digest();
    MixtureOutcome { counts: world.counts, digest }
}

/// The first seed below `end` in which a promise is broken, and which one.
pub fn first_broken(end: u64, steps: usize) -> Option<(u64, String)> {
    (0..end)
        .find_map(|seed| Some((seed, catch_unwind(|| run_mixture(seed, steps)).err()?)))
        .map(|(seed, broken)| (seed, text_of(&*broken)))
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    text.unwrap_or_default()
}

fn any_topic(random: &mut Random) -> TopicName {
    TopicName::parse(TOPICS[random.below(TOPICS.len())], &Limits::default()).expect("valid")
}

/// More than a run publishes, and not so many that nobody is ever far behind.
const ROOMY_DELIVERIES: usize = 1_000;
const ROOMY_MAILBOX: usize = 4_096;

fn any_config(
    random: &mut Random,
    is_roomy: bool,
    is_durable: bool,
    history_count: usize,
) -> Config {
    let (deliveries, mailbox) = (16 + random.below(300), 64 + random.below(300));
    let limits = Limits {
        recent_deliveries_max: if is_roomy { ROOMY_DELIVERIES } else { deliveries },
        mailbox_len_max: if is_roomy { ROOMY_MAILBOX } else { mailbox },
        memory_bytes_max: MEMORY_BYTES_MAX,
        ..Limits::default()
    };
    let kept = TopicPolicy { history_count, ..TopicPolicy::default() };
    let policy = match is_durable {
        true => TopicPolicy { ack: AckLevel::Disk, memory_count: HELD, ..kept },
        false => kept,
    };
    let store = if is_durable { "[store]\npath = \"simulated\"\n" } else { "" };
    let tokens = format!("[[access.tokens]]\ntoken = \"{TOKEN}\"\nname = \"sim\"\n{EVERYTHING}");
    let text = format!("{APPLICATIONS}{tokens}{store}");
    let config = server::config::parse(&text, "sim.toml").expect("valid");
    config_of(config, limits, policy)
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let is_durable = random.one_in(2);
        let count = 1 + random.below(SHARDS_MAX);
        let history_count = match (is_durable, random.one_in(2)) {
            (false, true) => 2 + random.below(20),
            _ => 1_000_000,
        };
        let is_roomy = random.one_in(3);
        let config = any_config(&mut random, is_roomy, is_durable, history_count);
        let sequence_holes = seed % 2 == 1;
        let config = Arc::new(Config { sequence_holes, ..config });
        let disk = is_durable.then(|| SimDisk::with(Lie::None));
        let on = disk.as_ref().map(|disk| NodeDisk { disk: Arc::clone(disk), held: HELD });
        let mut node = Node::start(count, config, Network::new(count, seed), on);
        node.clocks.skew = SKEW_ON_DISK / 2;
        let readers = (0..READERS).map(|at| Reader::new(&mut random, at, is_durable)).collect();
        let publisher = SimSession::open(&node.network, Carriage::WebSocket, 0, 0);
        Self {
            random,
            node,
            disk,
            readers,
            callers: (0..CALLERS).map(Caller::new).collect(),
            asks: Asks::default(),
            publisher,
            truth: Truth::new(sequence_holes),
            next: 1,
            unanswered: BTreeSet::new(),
            refused: BTreeSet::new(),
            sent_at: BTreeMap::new(),
            history_count: history_count as u64,
            is_roomy,
            was_short: false,
            is_disk_broken: false,
            counts: Counts::default(),
        }
    }

    fn step(&mut self) {
        match self.random.below(40) {
            0..=7 => self.publish(),
            8 => self.repeat(),
            9..=18 => self.node.turn_any(&mut self.random),
            19..=21 => self.work(),
            22..=27 => self.read(),
            28 => self.connect_one(),
            29 | 30 => self.change(),
            31 => self.drop_one(),
            32..=34 => {
                self.act();
                self.act();
            }
            35 => self.acknowledge(),
            36 => self.lose_a_poll(),
            37 if self.random.one_in(6) => self.jump(),
            38 if self.random.one_in(8) => self.trouble(),
            39 if self.random.one_in(4) => self.take_over(),
            _ => self.read_callers(usize::MAX),
        }
    }

    fn publish(&mut self) {
        let number = self.next;
        self.next += 1;
        let topic = any_topic(&mut self.random);
        self.truth.handle_sent(number, &topic);
        self.sent_at.insert(number, self.node.clocks.elapsed);
        self.send(number);
        self.counts.note("publish");
    }

    fn send(&mut self, number: u64) {
        let draft = Draft {
            topic: self.truth.topic_of(number).clone(),
            payload: Payload::with_headers(
                PayloadKind::Json,
                &headers_of(number),
                &payload_of(number),
            ),
            idempotency_key: Some(format!("key-{number}").into()),
            expected: None,
        };
        self.unanswered.insert(number);
        let command = (CommandId(number), Command::Publish(Publish { draft }));
        self.publisher.say(&self.node.network, &[command]);
    }

    /// Says again what was said before, answered or not.
    fn repeat(&mut self) {
        let number = self.next.saturating_sub(1 + self.random.below(40) as u64);
        let Some(sent_at) = self.sent_at.get(&number) else { return };
        if self.node.clocks.elapsed < *sent_at + REPEATED_WITHIN {
            self.send(number);
            self.counts.note("key repeated");
        }
    }

    fn work(&mut self) {
        if self.disk.is_some() {
            self.node.work(self.random.below(WORK_MAX));
        }
    }

    fn read(&mut self) {
        let at = self.random.below(READERS);
        let bytes_max = 1 + self.random.below(3_000);
        self.read_of(at, bytes_max);
        self.read_publisher();
    }

    fn read_of(&mut self, at: usize, bytes_max: usize) {
        let reader = &mut self.readers[at];
        reader.read(&self.node.network, bytes_max, &mut self.truth, &mut self.counts);
        let (gaps, closed) = (std::mem::take(&mut reader.gaps), reader.closed.take());
        gaps.iter().for_each(|gap| self.check_gap(gap));
        let is_roomy = self.is_roomy && !self.was_short;
        assert!(
            !is_roomy || closed != Some(Code::TooSlow),
            "too slow, and everything is there still"
        );
    }

    /// A gap is told of what is gone from the topic's history, and of nothing else.
    fn check_gap(&self, gap: &Gap) {
        if gap.reason == GapReason::Epoch {
            return;
        }
        assert!(self.disk.is_none(), "{gap:?}, and all of it is on disk");
        let is_lagged = gap.reason == GapReason::Lagged;
        assert!(
            !is_lagged || !self.is_roomy || self.was_short,
            "{gap:?}, and all of it is among the recent deliveries"
        );
        let kept = if self.was_short { 1 } else { self.history_count };
        let gone = self.truth.count_of(&gap.topic).saturating_sub(kept);
        let covered = self.truth.count_through(&gap.topic, gap.to);
        assert!(covered <= gone, "{gap:?}, and only the first {gone} are gone");
    }

    fn read_publisher(&mut self) {
        for heard in self.publisher.read(&self.node.network, usize::MAX) {
            match heard {
                Input::Event(Event::Published { id: Some(id), topic, position, .. }) => {
                    self.truth.handle_acknowledged(id.0, &topic, &position);
                    self.unanswered.remove(&id.0);
                    self.refused.remove(&id.0);
                    self.counts.note("published");
                }
                Input::Event(Event::Refused { id: Some(id), refusal }) => {
                    assert!(refusal.code.number() < 4200, "{refusal}");
                    self.refused.insert(id.0);
                    self.counts.note("publication refused");
                }
                _ => {}
            }
        }
        if self.publisher.is_over {
            self.counts.note("publisher came anew");
            self.open_publisher();
        } else if !self.is_disk_broken && self.random.one_in(4) {
            self.send_refused();
        }
    }

    /// Comes anew. Whatever was not answered may have been kept or not: its key tells.
    fn open_publisher(&mut self) {
        let shard = self.random.below(self.node.shards.len());
        let network = &self.node.network;
        self.publisher = SimSession::open(network, Carriage::WebSocket, shard, shard);
        self.refused.clear();
        for number in self.unanswered.clone() {
            self.send(number);
        }
    }

    fn send_refused(&mut self) {
        for number in std::mem::take(&mut self.refused) {
            if self.unanswered.contains(&number) {
                self.send(number);
            }
        }
    }

    fn read_callers(&mut self, bytes_max: usize) {
        for caller in &mut self.callers {
            caller.read(&self.node.network, bytes_max, &mut self.asks, &mut self.counts);
        }
    }

    fn connect_one(&mut self) {
        match self.random.one_in(3) {
            true => {
                let at = self.random.below(CALLERS);
                self.connect_caller(at);
            }
            false => {
                let at = self.random.below(READERS);
                self.connect_reader(at);
            }
        }
    }

    fn open(&mut self, carriage: Carriage) -> SimSession {
        let shards = self.node.shards.len();
        let (shard, other) = (self.random.below(shards), self.random.below(shards));
        self.counts.note(match carriage {
            Carriage::WebSocket => "session over WebSocket",
            Carriage::Stream => "session over a response that goes on",
            Carriage::Poll => "session over polls",
        });
        SimSession::open(&self.node.network, carriage, shard, other)
    }

    fn connect_reader(&mut self, at: usize) {
        if self.readers[at].session.is_none() {
            let session = self.open(self.readers[at].manner.carriage);
            self.readers[at].is_alone = self.node.shards.len() == 1;
            let Self { node, truth, random, counts, .. } = self;
            self.readers[at].connect(session, &node.network, truth, random, counts);
        }
    }

    fn connect_caller(&mut self, at: usize) {
        if self.callers[at].session.is_none() {
            let carriages =
                [Carriage::WebSocket, Carriage::WebSocket, Carriage::Stream, Carriage::Poll];
            let carriage = carriages[self.random.below(4)];
            let session = self.open(carriage);
            self.callers[at].connect(session);
        }
    }

    fn change(&mut self) {
        let at = self.random.below(READERS);
        let selector = SELECTORS[self.random.below(SELECTORS.len())];
        let other = SELECTORS[self.random.below(SELECTORS.len())];
        let Self { node, truth, random, counts, .. } = self;
        self.readers[at].change(&node.network, selector, other, truth, random, counts);
    }

    fn drop_one(&mut self) {
        let session = match self.random.one_in(3) {
            true => &mut self.callers[self.random.below(CALLERS)].session,
            false => &mut self.readers[self.random.below(READERS)].session,
        };
        if let Some(mut session) = session.take() {
            session.drop_links(&self.node.network);
            self.counts.note("connection dropped");
        }
    }

    fn act(&mut self) {
        let at = self.random.below(CALLERS);
        let Self { node, asks, random, counts, .. } = self;
        self.callers[at].act(&node.network, asks, random, counts);
    }

    fn acknowledge(&mut self) {
        for reader in &mut self.readers {
            reader.acknowledge(&self.node.network, &mut self.counts);
        }
    }

    /// Loses the answer to a poll on its way, if there is one; or else a poll.
    fn lose_a_poll(&mut self) {
        let network = &self.node.network;
        let from = self.random.below(READERS);
        let is_answered = |at: &usize| {
            self.readers[*at].session.as_ref().is_some_and(|it| it.is_poll_answered(network))
        };
        let answered = (from..from + READERS).map(|at| at % READERS).find(is_answered);
        let session = &mut self.readers[answered.unwrap_or(from)].session;
        if session.as_mut().is_some_and(|session| session.lose_poll(network)) {
            self.counts.note(match answered {
                Some(_) => "answer to a poll lost",
                None => "poll lost",
            });
        }
    }

    /// A session takes a device over, while the one that has it goes, or lets go of it.
    fn take_over(&mut self) {
        let Self { node, callers, random, counts, .. } = self;
        let device = DEVICES[random.below(DEVICES.len())];
        let Some(from) = callers.iter().position(|it| it.attached.contains(device)) else { return };
        let to = (from + 1 + random.below(CALLERS - 1)) % CALLERS;
        callers[to].attach(&node.network, device, counts);
        match random.one_in(2) {
            true => callers[from].attach(&node.network, device, counts),
            false => {
                if let Some(mut session) = callers[from].session.take() {
                    session.drop_links(&node.network);
                }
            }
        }
        counts.note("device taken from who goes");
    }

    fn jump(&mut self) {
        let skew_max = if self.disk.is_some() { SKEW_ON_DISK } else { SKEW_IN_MEMORY };
        let jumped = self.node.clocks.jump(&mut self.random, skew_max);
        self.counts.note(jumped);
    }

    fn trouble(&mut self) {
        match &self.disk {
            Some(disk) if !self.is_disk_broken && self.random.one_in(3) => {
                lock(disk).fail();
                self.is_disk_broken = true;
                self.counts.note("disk failed");
            }
            Some(_) => self.kill(),
            None => {
                let percent = [0, 50, 85, 95, 100][self.random.below(5)];
                self.node.memory.set_used((MEMORY_BYTES_MAX / 100 * percent + percent) as u64);
                self.was_short |= percent >= 80;
                self.counts.note("memory used otherwise");
                if percent >= 80 {
                    self.counts.note("memory short");
                    self.stay_short();
                }
            }
        }
    }

    /// Memory stays short for a while: what is let go of goes in rounds.
    fn stay_short(&mut self) {
        const ROUND: Duration = Duration::from_millis(100);
        for _ in 0..self.random.below(10) {
            self.node.clocks.elapsed += ROUND;
            self.node.turn_all();
        }
    }

    fn kill(&mut self) {
        self.counts.note("kill");
        self.node.kill(&mut self.random, SHARDS_MAX);
        self.is_disk_broken = false;
        self.readers.iter_mut().for_each(|reader| reader.session = None);
        self.callers.iter_mut().for_each(|caller| caller.session = None);
        self.asks = Asks::default();
        self.open_publisher();
    }

    fn come_to_rest(&mut self) {
        self.node.memory.set_used(0);
        if self.is_disk_broken {
            self.kill();
        }
        self.rest();
        self.callers.iter_mut().for_each(|caller| caller.answer_all(&self.node.network));
        self.node.clocks.elapsed += REQUESTS_END;
        self.rest();
    }

    fn rest(&mut self) {
        let mut rest = Rest::default();
        while !rest.is_over() {
            (0..READERS).for_each(|at| self.connect_reader(at));
            (0..CALLERS).for_each(|at| self.connect_caller(at));
            self.node.clocks.elapsed += rest.pause();
            let wait = self.node.turn_all();
            self.work();
            (0..READERS).for_each(|at| self.read_of(at, usize::MAX));
            self.read_callers(usize::MAX);
            self.read_publisher();
            rest.handle_round(wait, self.node.is_quiet() && self.refused.is_empty());
        }
    }

    fn check(&self) {
        let abandoned = self.node.network.borrow().abandoned();
        assert_eq!(abandoned, [0; 0], "held though their clients are gone");
        assert!(self.unanswered.is_empty(), "never answered: {:?}", self.unanswered);
        let epoch = self.disk.as_ref().map(|disk| lock(disk).epoch());
        self.readers.iter().for_each(|reader| reader.check(&self.truth, epoch.as_ref()));
        self.callers.iter().for_each(Caller::check);
    }

    fn count_epochs(&mut self) {
        let begun = self.disk.as_ref().map_or(0, |disk| lock(disk).epochs_begun());
        (0..begun).for_each(|_| self.counts.note("epoch begun"));
    }

    /// Whoever was told that a device is attached to it is asked when the device is, and nobody else.
    fn check_devices(&mut self) {
        for device in DEVICES {
            let has_it = |caller: &Caller| caller.attached.iter().any(|known| **known == *device);
            let having: Vec<usize> = (0..CALLERS).filter(|at| has_it(&self.callers[*at])).collect();
            assert!(having.len() <= 1, "{device} is attached to {having:?} at a time");
            let Self { node, asks, counts, .. } = self;
            self.callers[0].ask_device(&node.network, asks, device, 2_000, counts);
            for _ in 0..20 {
                self.node.turn_all();
                self.work();
                self.read_callers(usize::MAX);
                self.callers.iter_mut().for_each(|caller| caller.answer_all(&self.node.network));
            }
            let told = self.callers[0].told_by_device;
            let is_right = match (having.first(), &told) {
                (Some(at), Some(Ok(by))) => at == by,
                // It may be attached still to a session that is polled no more, until that is missed.
                (None, None | Some(Err(_))) => true,
                _ => false,
            };
            assert!(is_right, "{device} is attached to {having:?}, and the answer is {told:?}");
            self.counts.note("device asked at rest");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each of them comes about, or it is not tested here.
    const KINDS: [&str; 40] = [
        "acknowledge",
        "acknowledged",
        "answer to a poll lost",
        "answers of all",
        "attach or detach",
        "attached",
        "clock set",
        "connection dropped",
        "device asked at rest",
        "device taken from who goes",
        "device taken over",
        "disk failed",
        "epoch begun",
        "gap: epoch",
        "gap: history",
        "handle or unhandle",
        "headers read",
        "key repeated",
        "kill",
        "machine slept",
        "memory short",
        "numbering goes on in another epoch",
        "position beyond the head",
        "publication read",
        "publication refused",
        "reader refused",
        "request never answered",
        "request refused",
        "request to a device",
        "request",
        "response to a repeated key",
        "response",
        "session ended",
        "session over WebSocket",
        "session over a response that goes on",
        "session over polls",
        "subscribe and unsubscribe in one go",
        "subscribe",
        "subscription merged",
        "unsubscribe",
    ];

    #[test]
    fn seeds_keep_every_promise_and_reach_every_kind_of_event() {
        let (mut sum, mut broken) = (Counts::default(), Vec::new());
        for seed in 0..CI_SEEDS {
            match catch_unwind(|| run_mixture(seed, CI_STEPS)) {
                Ok(outcome) => sum.add(&outcome.counts),
                Err(panic) => broken.push((seed, text_of(&*panic))),
            }
        }
        println!("{sum}");
        assert!(broken.is_empty(), "{broken:#?}");
        let missing: Vec<_> = KINDS.iter().filter(|kind| sum.of(kind) < 20).collect();
        assert!(missing.is_empty(), "not often enough: {missing:?} in\n{sum}");
    }
}
