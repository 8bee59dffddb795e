//! Random histories of deliveries against plain numbers. The property test draws the steps, the fuzzer finds them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use model::{
    Epoch, GapReason, Limits, Moment, Payload, PayloadKind, Position, Publication, Selector,
    Sequence, TopicName,
};

use super::dead_letter::{DeadLetter, Missed};
use super::deliveries::{Deliveries, Heard, Outcome, Page, Rules};
use super::delivery::Delivery;
use super::schedule::Schedule;

pub(crate) const PAUSE: Duration = Duration::from_secs(1);
pub(crate) const AHEAD_MAX: usize = 3;

pub(crate) fn topic(name: &str) -> TopicName {
    TopicName::parse(name, &Limits::default()).expect("valid")
}

pub(crate) fn deliveries(topics: &[&str]) -> Deliveries {
    let limits = Limits::default();
    let selector = |text: &&str| Selector::parse(text, &limits).expect("valid");
    Deliveries::new(Rules {
        dead_letters: topic("webhooks/own/dead"),
        topics: topics.iter().map(selector).collect(),
        schedule: Schedule { pause_min: PAUSE, pause_max: PAUSE * 4 },
        attempts_max: 3,
        concurrency: 2,
        ahead_max: AHEAD_MAX,
        topics_max: 100,
    })
}

pub(crate) fn delivery(topic: &str, sequence: u64) -> Delivery {
    let sequence = Sequence::new(sequence).expect("small");
    let now = Moment { elapsed: Duration::ZERO, unix_ms: 0 };
    Delivery {
        topic: self::topic(topic),
        position: Position { epoch: Epoch::new("e1"), sequence },
        publication: Publication::new(Payload::new(PayloadKind::Text, b"four"), sequence, now),
        read_ms: 1_700_000_000_123,
    }
}

pub(crate) fn missed(topic: &str, from: u64, to: u64) -> Missed {
    let Delivery { topic, position, read_ms, .. } = delivery(topic, to);
    Missed { topic, position, from: Sequence::new(from), reason: GapReason::History, read_ms }
}

pub(crate) fn heard(at: Instant) -> Heard {
    Heard { at, unix_ms: 1_700_000_000_000, random: 1.0 }
}

pub(crate) fn failed(asked: Option<Duration>) -> Outcome {
    Outcome::Failed { status: Some(500), error: "500".into(), asked }
}

/// The next step of a random history.
enum Step {
    Publish(usize),
    Repeat(usize),
    Gap(usize, u64),
    Answer(usize, bool),
    Record,
    Fetch,
    Wait(u64),
    Acknowledge,
    /// An outcome and a record that nobody awaits.
    Stray(usize),
}

impl Step {
    /// The step that three bytes stand for.
    fn of([kind, which, much]: [u8; 3]) -> Self {
        let of_topic = usize::from(which) % NAMES.len();
        match kind % 21 {
            0..=3 => Self::Publish(of_topic),
            4 => Self::Repeat(of_topic),
            5 => Self::Stray(of_topic),
            6 => Self::Gap(of_topic, 1 + u64::from(much) % 3),
            7..=12 => Self::Answer(usize::from(which), much < 128),
            13 | 14 => Self::Record,
            15 | 16 => Self::Fetch,
            17..=19 => Self::Wait(u64::from(much) % 40),
            _ => Self::Acknowledge,
        }
    }
}

/// One topic as plain numbers.
#[derive(Default)]
struct Told {
    newest: u64,
    /// Up to here history has nothing any more.
    forgotten: u64,
    /// Up to here all is delivered or recorded.
    settled: u64,
}

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

struct Model {
    it: Deliveries,
    now: Instant,
    told: Vec<Told>,
    in_flight: Vec<Arc<Delivery>>,
    dead_letters: VecDeque<DeadLetter>,
}

impl Model {
    fn told(&mut self, topic: &TopicName) -> &mut Told {
        let at = NAMES.iter().position(|name| *name == topic.as_str()).expect("known");
        &mut self.told[at]
    }

    fn settle(&mut self, topic: &TopicName, from: u64, to: u64) {
        let told = self.told(topic);
        assert_eq!(told.settled + 1, from, "in order, none left out, none twice");
        told.settled = to;
    }

    fn answer(&mut self, at: usize, is_good: bool) {
        if self.in_flight.is_empty() {
            return;
        }
        let delivery = self.in_flight.remove(at % self.in_flight.len());
        let outcome = if is_good { Outcome::Delivered } else { failed(None) };
        self.it.handle_outcome(&delivery.topic, outcome, heard(self.now));
        if is_good {
            let sequence = delivery.position.sequence.get();
            self.settle(&delivery.topic, sequence, sequence);
        }
    }

    fn record(&mut self) {
        let Some(dead_letter) = self.dead_letters.pop_front() else { return };
        let (from, to) = match &dead_letter {
            DeadLetter::Undelivered(delivery, _) => {
                (delivery.position.sequence, delivery.position.sequence)
            }
            DeadLetter::Missed(it) => (it.from.expect("no epoch ends"), it.position.sequence),
        };
        self.it.handle_recorded(&dead_letter);
        self.settle(dead_letter.topic(), from.get(), to.get());
    }

    fn acknowledge(&mut self) {
        for (topic, position) in self.it.take_settled() {
            assert_eq!(self.told(&topic).settled, position.sequence.get());
        }
    }

    /// Answers as a history of pages of two does.
    fn fetch(&mut self) -> bool {
        let Some((topic, after)) = self.it.poll_fetch() else { return false };
        let told = self.told(&topic);
        let start = told.forgotten.max(after.sequence.get());
        let end = told.newest.min(start + 2);
        let publications = (start + 1..=end).map(|at| delivery(topic.as_str(), at)).collect();
        let after = delivery(topic.as_str(), start).position;
        self.it.handle_page(Page { topic, after, publications, read_ms: 7 });
        true
    }

    fn stray(&mut self, topic: &TopicName) {
        if self.in_flight.iter().all(|it| it.topic != *topic) {
            self.it.handle_outcome(topic, Outcome::Delivered, heard(self.now));
        }
        if self.dead_letters.iter().all(|it| it.topic() != topic) {
            self.it.handle_recorded(&DeadLetter::Missed(missed(topic.as_str(), 1, 1)));
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Publish(at) => {
                self.told[at].newest += 1;
                self.it.handle_publication(delivery(NAMES[at], self.told[at].newest));
            }
            Step::Repeat(at) if self.told[at].newest > 0 => {
                self.it.handle_publication(delivery(NAMES[at], self.told[at].newest));
            }
            Step::Repeat(_) => {}
            Step::Gap(at, count) => {
                let from = self.told[at].newest + 1;
                self.told[at].newest += count;
                let newest = self.told[at].newest;
                self.told[at].forgotten = newest;
                self.it.handle_missed(missed(NAMES[at], from, newest));
            }
            Step::Answer(at, is_good) => self.answer(at, is_good),
            Step::Record => self.record(),
            Step::Fetch => drop(self.fetch()),
            Step::Wait(tenths) => self.now += Duration::from_millis(tenths * 100),
            Step::Acknowledge => self.acknowledge(),
            Step::Stray(at) => self.stray(&topic(NAMES[at])),
        }
    }

    /// Takes what there is to do, and compares.
    fn check(&mut self) {
        while let Some(delivery) = self.it.poll_attempt(self.now) {
            let is_other = |other: &Arc<Delivery>| other.topic != delivery.topic;
            assert!(self.in_flight.iter().all(is_other), "one of a topic at a time");
            self.in_flight.push(delivery);
        }
        assert!(self.in_flight.len() <= 2 && self.in_flight.len() == self.it.in_flight());
        self.dead_letters.extend(std::iter::from_fn(|| self.it.poll_dead_letter()));
        while self.it.poll_news().is_some() {}
        let (count, bytes) = self.it.pending();
        let unsettled: u64 = self.told.iter().map(|told| told.newest - told.settled).sum();
        assert!(count as u64 <= unsettled && count <= NAMES.len() * (AHEAD_MAX + 1));
        assert!(bytes <= count * 4 && (count > 0) == self.it.oldest_ms().is_some());
    }
}

/// Whatever fails, each topic is settled in order and completely, and nothing else is acknowledged.
///
/// # Panics
/// With what does not hold.
pub fn check_deliveries(steps: &[[u8; 3]]) {
    let mut model = Model {
        it: deliveries(&["#"]),
        now: Instant::now(),
        told: NAMES.iter().map(|_| Told::default()).collect(),
        in_flight: Vec::new(),
        dead_letters: VecDeque::new(),
    };
    for step in steps {
        model.take(Step::of(*step));
        model.check();
    }
    // In the end everything works: all of it is settled, and it is known when to look again.
    for _ in 0..10_000 {
        model.answer(0, true);
        model.record();
        let has_fetched = model.fetch();
        model.check();
        let is_busy = !model.in_flight.is_empty() || !model.dead_letters.is_empty();
        if is_busy || has_fetched || model.it.pending().0 == 0 {
            continue;
        }
        let wake_at = model.it.wake_at(model.now).expect("something is due some time");
        assert!(wake_at > model.now, "nothing was begun though it was due");
        model.now = wake_at;
        model.check();
    }
    model.acknowledge();
    assert_eq!(model.it.pending(), (0, 0));
    assert!(model.told.iter().all(|told| told.settled == told.newest));
}
