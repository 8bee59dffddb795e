//! The next step for each topic: deliver, try again, record or acknowledge. Pure.
//!
//! A topic is delivered one publication after another; topics side by side. The outcome of its oldest
//! publication determines the state of the topic:
//!
//! ```text
//! Idle ─► Ready ─► Attempted ─┬─ delivered ─────────────────────────► the next, or Idle
//!           ▲                 ├─ failed too often ───► Recorded ────► the next, or Idle
//!           │                 └─ failed ─────────────► Resting ─┐
//!           └───────────────────────────────────────────────────┘
//! ```
//!
//! A topic that falls behind keeps only its oldest few here; when these are settled, the next are `Fetched` from its
//! history, so that it takes no room from others.
//!
//! Only what was delivered or recorded is acknowledged, so that nothing is lost whenever the process ends.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque, btree_map};
use std::sync::Arc;
use std::time::{Duration, Instant};

use model::{GapReason, Position, Selector, Sequence, TopicName};

use super::dead_letter::{DeadLetter, Failures, Missed};
use super::delivery::Delivery;
use super::endpoint::Endpoint;
use super::schedule::Schedule;

/// The settings of one webhook.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    /// The topic of its own dead letters.
    pub dead_letters: TopicName,
    pub topics: Vec<Selector>,
    pub schedule: Schedule,
    pub attempts_max: u32,
    pub concurrency: usize,
    /// Publications of one topic that are held.
    pub ahead_max: usize,
    /// Topics of which something is remembered while nothing of them waits.
    pub topics_max: usize,
}

/// A page of a topic's history.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Page {
    pub topic: TopicName,
    /// The sequence before the page: nothing between the place that was asked for and this is kept any more.
    pub after: Position,
    pub publications: Vec<Delivery>,
    pub read_ms: u64,
}

/// The outcome of an attempt.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    Delivered,
    /// The endpoint wants nothing any more (410).
    Gone,
    Failed {
        status: Option<u16>,
        error: String,
        /// How long it asked to wait.
        asked: Option<Duration>,
    },
}

/// When an outcome was heard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heard {
    pub at: Instant,
    pub unix_ms: u64,
    /// From 0 to 1: spreads what comes next.
    pub random: f64,
}

/// An event for the operator.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum News {
    Failing {
        error: String,
    },
    Recovered,
    Gone,
    /// Something is recorded, or, being a dead letter itself, only said.
    Dead(DeadLetter),
}

/// The counts so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub delivered: u64,
    pub attempts_failed: u64,
    pub dead_letters: u64,
    pub missed: u64,
    pub conflated: u64,
    pub last_success_ms: u64,
}

#[derive(Debug)]
enum Entry {
    Delivery(Arc<Delivery>),
    Missed(Missed),
}

impl Entry {
    fn position(&self) -> &Position {
        match self {
            Self::Delivery(delivery) => &delivery.position,
            Self::Missed(missed) => &missed.position,
        }
    }

    fn read_ms(&self) -> u64 {
        match self {
            Self::Delivery(delivery) => delivery.read_ms,
            Self::Missed(missed) => missed.read_ms,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Delivery(delivery) => delivery.publication.kept_bytes(),
            Self::Missed(_) => 0,
        }
    }
}

/// The place of a topic, and its oldest publication that is not settled.
#[derive(Debug, Default)]
enum Stage {
    #[default]
    Idle,
    Ready(Arc<Delivery>),
    Attempted(Arc<Delivery>),
    Resting(Arc<Delivery>),
    Recorded(Entry),
    Fetched,
}

impl Stage {
    /// The position of what it holds.
    fn position(&self) -> Option<&Position> {
        match self {
            Self::Idle | Self::Fetched => None,
            Self::Ready(delivery) | Self::Attempted(delivery) | Self::Resting(delivery) => {
                Some(&delivery.position)
            }
            Self::Recorded(entry) => Some(entry.position()),
        }
    }
}

/// One topic.
#[derive(Debug, Default)]
struct TopicQueue {
    /// The newest that was read: what comes again is known by it.
    read: Option<Position>,
    stage: Stage,
    /// The publications after that, oldest first.
    waiting: VecDeque<Entry>,
    /// Publications follow that were read and not held: they come after this position, the newest of what was held.
    more_after: Option<Position>,
    failures: Failures,
    /// Its last attempt failed: other topics go first.
    is_failing: bool,
    /// When it became idle last, as a number that grows.
    idle_since: u64,
}

impl TopicQueue {
    /// Whether nothing of it waits.
    fn is_idle(&self) -> bool {
        matches!(self.stage, Stage::Idle) && self.waiting.is_empty() && self.more_after.is_none()
    }

    /// Whether what was read now is left to be fetched later, because so much is held already.
    fn leaves(&mut self, ahead_max: usize) -> bool {
        let at_hand = self.stage.position();
        if self.more_after.is_none()
            && self.waiting.len() + usize::from(at_hand.is_some()) >= ahead_max
        {
            self.more_after = self.waiting.back().map(Entry::position).or(at_hand).cloned();
        }
        self.more_after.is_some()
    }
}

/// All topics of one webhook.
#[derive(Debug)]
pub(crate) struct Deliveries {
    rules: Rules,
    queues: HashMap<TopicName, TopicQueue>,
    /// Idle topics, the first that became so first; some did something since. Of too many the first are forgotten.
    idle: VecDeque<(TopicName, u64)>,
    idles: u64,
    ready: VecDeque<TopicName>,
    /// Those of them whose last attempt failed.
    ready_again: VecDeque<TopicName>,
    resting: BTreeSet<(Instant, TopicName)>,
    in_flight: usize,
    /// Those of them that are of topics whose last attempt failed.
    failing_in_flight: usize,
    dead_letters: VecDeque<DeadLetter>,
    fetches: VecDeque<(TopicName, Position)>,
    settled: BTreeMap<TopicName, Position>,
    news: VecDeque<News>,
    endpoint: Endpoint,
    is_gone: bool,
    counts: Counts,
    pending: usize,
    pending_bytes: usize,
    /// When what waits was read, and how much of it.
    ages: BTreeMap<u64, usize>,
}

impl Deliveries {
    pub(crate) fn new(rules: Rules) -> Self {
        Self {
            rules,
            queues: HashMap::new(),
            idle: VecDeque::new(),
            idles: 0,
            ready: VecDeque::new(),
            ready_again: VecDeque::new(),
            resting: BTreeSet::new(),
            in_flight: 0,
            failing_in_flight: 0,
            dead_letters: VecDeque::new(),
            fetches: VecDeque::new(),
            settled: BTreeMap::new(),
            news: VecDeque::new(),
            endpoint: Endpoint::default(),
            is_gone: false,
            counts: Counts::default(),
            pending: 0,
            pending_bytes: 0,
            ages: BTreeMap::new(),
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// Publications that wait, and the bytes of their payloads.
    pub(crate) fn pending(&self) -> (usize, usize) {
        (self.pending, self.pending_bytes)
    }

    /// When the oldest of them was read, in milliseconds since 1970.
    pub(crate) fn oldest_ms(&self) -> Option<u64> {
        self.ages.keys().next().copied()
    }

    /// Attempts under way.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Topics of which something is known.
    pub(crate) fn topics(&self) -> usize {
        self.queues.len()
    }

    pub(crate) fn is_failing(&self) -> bool {
        self.endpoint.is_failing()
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// Takes a publication that was read.
    pub(crate) fn handle_publication(&mut self, delivery: Delivery) {
        let queue = self.queues.entry(delivery.topic.clone()).or_default();
        let Position { epoch, sequence } = &delivery.position;
        if let Some(read) = queue.read.as_ref().filter(|read| read.epoch == *epoch) {
            if *sequence <= read.sequence {
                return;
            }
            // No gap was told: its topic's policy lets slow readers skip.
            self.counts.conflated += sequence.count_after(read.sequence) - 1;
        }
        queue.read = Some(delivery.position.clone());
        if !self.rules.wants(&delivery.topic) {
            self.settled.insert(delivery.topic.clone(), delivery.position);
            self.begin(delivery.topic);
        } else if !queue.leaves(self.rules.ahead_max) {
            self.take(delivery.topic.clone(), Entry::Delivery(Arc::new(delivery)));
        }
    }

    /// Takes a gap that was told.
    pub(crate) fn handle_missed(&mut self, mut missed: Missed) {
        let queue = self.queues.entry(missed.topic.clone()).or_default();
        if let Some(read) = queue.read.as_ref().filter(|it| it.epoch == missed.position.epoch) {
            if missed.position.sequence <= read.sequence {
                return;
            }
            // Told again from what was acknowledged: of that, some was read before.
            missed.from = missed.from.max(Some(read.sequence.next()));
        }
        queue.read = Some(missed.position.clone());
        if !self.rules.wants(&missed.topic) {
            self.settled.insert(missed.topic.clone(), missed.position);
            self.begin(missed.topic);
        } else if !queue.leaves(self.rules.ahead_max) {
            // Else the page will say so.
            self.take(missed.topic.clone(), Entry::Missed(missed));
        }
    }

    /// The next topic to fetch more of, and from where; [`Deliveries::handle_page`] brings it.
    pub(crate) fn poll_fetch(&mut self) -> Option<(TopicName, Position)> {
        self.fetches.pop_front()
    }

    /// Takes what a topic's history has after what was settled.
    pub(crate) fn handle_page(&mut self, page: Page) {
        let Page { topic, after, publications, read_ms } = page;
        let Some(queue) = self.queues.get_mut(&topic) else { return };
        let (Stage::Fetched, Some(settled)) = (&queue.stage, queue.more_after.take()) else {
            return;
        };
        queue.stage = Stage::Idle;
        let end = publications.last().map_or(&after, |last| &last.position).clone();
        let missed = |from: Option<Sequence>, position: Position| {
            let reason = if from.is_some() { GapReason::History } else { GapReason::Epoch };
            Entry::Missed(Missed { topic: topic.clone(), position, from, reason, read_ms })
        };
        let is_anew = after.epoch != settled.epoch;
        let mut entries = VecDeque::new();
        if is_anew {
            entries.push_back(missed(None, after));
        } else if after.sequence > settled.sequence {
            entries.push_back(missed(Some(settled.sequence.next()), after));
        }
        let is_end = publications.is_empty();
        entries
            .extend(publications.into_iter().map(|delivery| Entry::Delivery(Arc::new(delivery))));
        let is_ahead = |read: &&Position| read.epoch == end.epoch && read.sequence > end.sequence;
        match queue.read.as_ref().filter(is_ahead) {
            // It was told once, and its history never had it.
            Some(read) if is_end => {
                entries.push_back(missed(Some(end.sequence.next()), read.clone()));
            }
            Some(_) => queue.more_after = Some(end),
            None => queue.read = Some(end),
        }
        if entries.is_empty() {
            self.begin(topic);
            return;
        }
        for entry in entries {
            self.take(topic.clone(), entry);
        }
    }

    fn take(&mut self, topic: TopicName, entry: Entry) {
        self.pending += 1;
        self.pending_bytes += entry.bytes();
        *self.ages.entry(entry.read_ms()).or_default() += 1;
        let queue = self.queues.entry(topic.clone()).or_default();
        queue.waiting.push_back(entry);
        if matches!(queue.stage, Stage::Idle) {
            self.begin(topic);
        }
    }

    /// Sees to the oldest of a topic, if nothing of it is being seen to.
    fn begin(&mut self, topic: TopicName) {
        let Some(queue) = self.queues.get_mut(&topic) else { return };
        queue.failures = Failures::default();
        queue.stage = match (queue.waiting.pop_front(), &queue.more_after) {
            (None, Some(after)) => {
                self.fetches.push_back((topic, after.clone()));
                Stage::Fetched
            }
            (None, None) => {
                self.idles += 1;
                queue.idle_since = self.idles;
                self.idle.push_back((topic, self.idles));
                queue.stage = Stage::Idle;
                return self.forget_idle();
            }
            (Some(Entry::Delivery(delivery)), _) => {
                let ready = if queue.is_failing { &mut self.ready_again } else { &mut self.ready };
                ready.push_back(topic);
                Stage::Ready(delivery)
            }
            (Some(Entry::Missed(missed)), _) => {
                let dead_letter = DeadLetter::Missed(missed.clone());
                self.news.push_back(News::Dead(dead_letter.clone()));
                self.dead_letters.push_back(dead_letter);
                Stage::Recorded(Entry::Missed(missed))
            }
        };
    }

    /// Forgets the topics that have been idle for longest while there are too many. A topic stays
    /// as long as the server does not remember its place.
    fn forget_idle(&mut self) {
        let topics_max = self.rules.topics_max.max(1);
        while (self.queues.len() > topics_max || self.idle.len() > 2 * topics_max)
            && let Some((topic, since)) = self.idle.pop_front()
        {
            let queue = self.queues.get(&topic).filter(|it| it.is_idle() && it.idle_since == since);
            if queue.is_none() {
                continue;
            }
            if self.settled.contains_key(&topic) {
                self.idle.push_front((topic, since));
                return;
            }
            self.queues.remove(&topic);
        }
    }

    /// The next topic to make an attempt for: one that does not fail goes first. Those that fail hold one place while
    /// they have something to try, and half of all at most, so that endpoints that hang for some topics hold no other.
    fn next_ready(&mut self, now: Instant) -> Option<TopicName> {
        let concurrency = self.rules.concurrency;
        if self.in_flight >= concurrency {
            return None;
        }
        let is_owed = self.failing_in_flight == 0 && concurrency > 1;
        let may_fail = self.failing_in_flight < (concurrency / 2).max(1)
            && self.endpoint.admits(self.in_flight, now);
        if is_owed
            && may_fail
            && let Some(topic) = self.ready_again.pop_front()
        {
            return Some(topic);
        }
        // What hangs in other topics does not count where an endpoint is asked whether it is back.
        if self.endpoint.admits(self.in_flight - self.failing_in_flight, now)
            && let Some(topic) = self.ready.pop_front()
        {
            return Some(topic);
        }
        if may_fail { self.ready_again.pop_front() } else { None }
    }

    /// Makes the topics ready that have rested long enough.
    fn end_rests(&mut self, now: Instant) {
        while self.resting.first().is_some_and(|(due_at, _)| *due_at <= now)
            && let Some((_, topic)) = self.resting.pop_first()
        {
            let queue = self.queues.get_mut(&topic);
            if let Some(TopicQueue { stage, .. }) = queue
                && let Stage::Resting(delivery) = stage
            {
                *stage = Stage::Ready(Arc::clone(delivery));
                self.ready_again.push_back(topic);
            }
        }
    }

    /// The next attempt to make, if one may be made now.
    pub(crate) fn poll_attempt(&mut self, now: Instant) -> Option<Arc<Delivery>> {
        self.end_rests(now);
        if self.is_gone {
            return None;
        }
        let topic = self.next_ready(now)?;
        let queue = self.queues.get_mut(&topic)?;
        let Stage::Ready(delivery) = &queue.stage else { return None };
        let delivery = Arc::clone(delivery);
        queue.stage = Stage::Attempted(Arc::clone(&delivery));
        self.in_flight += 1;
        self.failing_in_flight += usize::from(queue.is_failing);
        Some(delivery)
    }

    /// Takes what became of an attempt.
    pub(crate) fn handle_outcome(&mut self, topic: &TopicName, outcome: Outcome, heard: Heard) {
        let Some(queue) = self.queues.get_mut(topic) else { return };
        let Stage::Attempted(delivery) = &queue.stage else { return };
        let delivery = Arc::clone(delivery);
        self.in_flight -= 1;
        self.failing_in_flight -= usize::from(queue.is_failing);
        queue.is_failing = outcome != Outcome::Delivered;
        match outcome {
            Outcome::Delivered => {
                self.counts.delivered += 1;
                self.counts.last_success_ms = heard.unix_ms;
                if self.endpoint.handle_delivered() {
                    self.news.push_back(News::Recovered);
                }
                self.settle(topic.clone(), &Entry::Delivery(delivery));
            }
            Outcome::Gone => {
                self.counts.attempts_failed += 1;
                // Nothing ends this rest.
                queue.stage = Stage::Resting(delivery);
                if !std::mem::replace(&mut self.is_gone, true) {
                    self.news.push_back(News::Gone);
                }
            }
            Outcome::Failed { status, error, asked } => {
                self.counts.attempts_failed += 1;
                let pauses = (&self.rules.schedule, heard.random);
                if self.endpoint.handle_failed(topic, asked, pauses, heard.at) {
                    self.news.push_back(News::Failing { error: error.clone() });
                }
                self.handle_failed(delivery, (status, error), asked, heard);
            }
        }
    }

    fn handle_failed(
        &mut self,
        delivery: Arc<Delivery>,
        (status, error): (Option<u16>, String),
        asked: Option<Duration>,
        heard: Heard,
    ) {
        let topic = delivery.topic.clone();
        let Some(queue) = self.queues.get_mut(&topic) else { return };
        let failures = &mut queue.failures;
        if failures.attempts == 0 {
            failures.first_ms = heard.unix_ms;
        }
        failures.attempts += 1;
        (failures.last_ms, failures.status, failures.error) = (heard.unix_ms, status, error);
        if failures.attempts < self.rules.attempts_max {
            let pause = self.rules.schedule.pause(failures.attempts, heard.random);
            let due_at = heard.at + pause.max(asked.unwrap_or_default());
            queue.stage = Stage::Resting(delivery);
            self.resting.insert((due_at, topic));
            return;
        }
        let dead_letter = DeadLetter::Undelivered(Arc::clone(&delivery), failures.clone());
        queue.stage = Stage::Recorded(Entry::Delivery(delivery));
        self.news.push_back(News::Dead(dead_letter.clone()));
        match is_dead_letters(&topic) {
            // Dead letters about dead letters would never end.
            true => self.handle_recorded(&dead_letter),
            false => self.dead_letters.push_back(dead_letter),
        }
    }

    /// The next dead letter to record; [`Deliveries::handle_recorded`] says that it is.
    pub(crate) fn poll_dead_letter(&mut self) -> Option<DeadLetter> {
        self.dead_letters.pop_front()
    }

    /// Notes that a dead letter is recorded, or never will be.
    pub(crate) fn handle_recorded(&mut self, dead_letter: &DeadLetter) {
        let Some(queue) = self.queues.get_mut(dead_letter.topic()) else { return };
        let entry = match std::mem::take(&mut queue.stage) {
            Stage::Recorded(entry) => entry,
            other => return queue.stage = other,
        };
        match dead_letter {
            DeadLetter::Undelivered(..) => self.counts.dead_letters += 1,
            DeadLetter::Missed(missed) => self.counts.missed += missed.count(),
        }
        self.settle(dead_letter.topic().clone(), &entry);
    }

    /// Is done with the oldest of a topic.
    fn settle(&mut self, topic: TopicName, entry: &Entry) {
        self.pending -= 1;
        self.pending_bytes -= entry.bytes();
        if let btree_map::Entry::Occupied(mut age) = self.ages.entry(entry.read_ms()) {
            *age.get_mut() -= 1;
            if *age.get() == 0 {
                age.remove();
            }
        }
        self.settled.insert(topic.clone(), entry.position().clone());
        self.begin(topic);
    }

    /// How far each topic came since the last call.
    pub(crate) fn take_settled(&mut self) -> Vec<(TopicName, Position)> {
        let mut settled = std::mem::take(&mut self.settled);
        self.forget_idle();
        settled.retain(|_, position| position.sequence > Sequence::START);
        settled.into_iter().collect()
    }

    pub(crate) fn has_settled(&self) -> bool {
        !self.settled.is_empty()
    }

    pub(crate) fn poll_news(&mut self) -> Option<News> {
        self.news.pop_front()
    }

    /// When [`Deliveries::poll_attempt`] may have more, if nothing else happens.
    pub(crate) fn wake_at(&self, now: Instant) -> Option<Instant> {
        let resting = self.resting.first().map(|(due_at, _)| *due_at);
        let is_none_ready = self.ready.is_empty() && self.ready_again.is_empty();
        match (self.endpoint.wake_at(now), is_none_ready) {
            (Some(endpoint), true) => resting.map(|resting| resting.max(endpoint)),
            (Some(endpoint), false) => Some(endpoint),
            (None, _) => resting,
        }
    }
}

/// Whether dead letters of some webhook go to this topic.
fn is_dead_letters(topic: &TopicName) -> bool {
    topic.as_str().starts_with(DEAD_LETTERS)
}

/// The first level of the topics of all dead letters.
const DEAD_LETTERS: &str = "webhooks/";

impl Rules {
    /// Whether publications of a topic are delivered. Dead letters are if they were asked for by name, and
    /// never one's own: each would make the next.
    fn wants(&self, topic: &TopicName) -> bool {
        let names_dead_letters = |selector: &Selector| {
            selector.literal_prefix().starts_with(DEAD_LETTERS) && selector.matches(topic.as_str())
        };
        !is_dead_letters(topic)
            || (*topic != self.dead_letters && self.topics.iter().any(names_dead_letters))
    }
}

#[cfg(test)]
mod tests;
