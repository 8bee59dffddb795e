//! Deliveries by table, and random histories of them against plain numbers.

use model::{Epoch, Limits, PayloadKind};
use proptest::prelude::*;

use super::*;
use crate::posting::tests::posting as posting_of_kind;

const PAUSE: Duration = Duration::from_secs(1);
const AHEAD_MAX: usize = 3;

fn topic(name: &str) -> TopicName {
    TopicName::parse(name, &Limits::default()).expect("valid")
}

fn deliveries(topics: &[&str]) -> Deliveries {
    let limits = Limits::default();
    let selector = |text: &&str| Selector::parse(text, &limits).expect("valid");
    Deliveries::new(Rules {
        letters: topic("webhooks/own/dead"),
        topics: topics.iter().map(selector).collect(),
        schedule: Schedule { pause_min: PAUSE, pause_max: PAUSE * 4 },
        attempts_max: 3,
        concurrency: 2,
        ahead_max: AHEAD_MAX,
        topics_max: 100,
    })
}

fn posting(topic: &str, sequence: u64) -> Posting {
    posting_of_kind(topic, sequence, PayloadKind::Text, b"four")
}

fn missed(topic: &str, from: u64, to: u64) -> Missed {
    let Posting { topic, position, read_ms, .. } = posting(topic, to);
    Missed { topic, position, from: Sequence::new(from), reason: GapReason::History, read_ms }
}

fn heard(at: Instant) -> Heard {
    Heard { at, unix_ms: 1_700_000_000_000, random: 1.0 }
}

fn failed(asked: Option<Duration>) -> Outcome {
    Outcome::Failed { status: Some(500), error: "500".into(), asked }
}

/// The attempts that may begin now, as topic and sequence.
fn attempts(it: &mut Deliveries, now: Instant) -> Vec<(String, u64)> {
    let shown = |it: Arc<Posting>| (it.topic.to_string(), it.position.sequence.get());
    std::iter::from_fn(|| it.poll_attempt(now).map(shown)).collect()
}

fn settled(it: &mut Deliveries) -> Vec<(String, u64)> {
    let settled = it.take_settled().into_iter();
    settled.map(|(topic, at)| (topic.to_string(), at.sequence.get())).collect()
}

fn of(all: &[(&str, u64)]) -> Vec<(String, u64)> {
    all.iter().map(|(topic, sequence)| ((*topic).to_owned(), *sequence)).collect()
}

#[test]
fn a_topic_goes_one_after_another_and_topics_side_by_side() {
    let (mut it, now) = (deliveries(&["#"]), Instant::now());
    for (name, sequence) in [("a", 1), ("a", 2), ("b", 1), ("c", 1)] {
        it.handle_publication(posting(name, sequence));
    }
    assert_eq!(attempts(&mut it, now), of(&[("a", 1), ("b", 1)]), "two at a time");
    it.handle_outcome(&topic("a"), Outcome::Delivered, heard(now));
    assert_eq!(attempts(&mut it, now), of(&[("c", 1)]), "it waited longer");
    it.handle_outcome(&topic("c"), Outcome::Delivered, heard(now));
    assert_eq!(attempts(&mut it, now), of(&[("a", 2)]));
    assert_eq!(settled(&mut it), of(&[("a", 1), ("c", 1)]));
    assert_eq!((it.pending(), it.in_flight()), ((2, 8), 2));
}

#[test]
fn what_fails_too_often_is_recorded_before_it_is_acknowledged() {
    let (mut it, mut now) = (deliveries(&["#"]), Instant::now());
    it.handle_publication(posting("a", 1));
    it.handle_publication(posting("a", 2));
    for pause in [PAUSE, PAUSE * 2] {
        assert_eq!(attempts(&mut it, now), of(&[("a", 1)]));
        it.handle_outcome(&topic("a"), failed(None), heard(now));
        assert_eq!(it.wake_at(now), Some(now + pause));
        assert_eq!(attempts(&mut it, now + pause / 2), of(&[]));
        now += pause;
    }
    assert_eq!(attempts(&mut it, now), of(&[("a", 1)]));
    it.handle_outcome(&topic("a"), failed(None), heard(now));
    let letter = it.poll_letter().expect("there is one");
    assert!(matches!(&letter, Letter::Undelivered(_, trouble) if trouble.attempts == 3));
    assert_eq!((settled(&mut it), attempts(&mut it, now)), (of(&[]), of(&[])));
    it.handle_recorded(&letter);
    assert_eq!(settled(&mut it), of(&[("a", 1)]));
    assert_eq!(attempts(&mut it, now), of(&[("a", 2)]), "the next goes on at once");
    assert_eq!((it.counts().dead_letters, it.counts().attempts_failed), (1, 3));
}

#[test]
fn a_topic_that_fails_holds_no_other() {
    let (mut it, now) = (deliveries(&["#"]), Instant::now());
    it.handle_publication(posting("bad", 1));
    attempts(&mut it, now);
    it.handle_outcome(&topic("bad"), failed(None), heard(now));
    it.handle_publication(posting("good", 1));
    assert_eq!(attempts(&mut it, now), of(&[("good", 1)]));
}

#[test]
fn topics_that_hang_leave_places_to_those_that_do_not() {
    let (mut it, mut now) = (deliveries(&["#"]), Instant::now());
    it.rules.concurrency = 8;
    it.rules.attempts_max = u32::MAX;
    for number in 0..12 {
        it.handle_publication(posting(&format!("hang/{number}"), 1));
    }
    // Each hangs until its time is up.
    for _ in 0..12 {
        for (name, _) in attempts(&mut it, now) {
            it.handle_outcome(&topic(&name), failed(None), heard(now));
        }
        now += Duration::from_secs(60);
    }
    assert!(it.ready.is_empty(), "all are known to fail");
    for sequence in 1..=30 {
        it.handle_publication(posting("good", sequence));
        let begun = attempts(&mut it, now);
        assert!(begun.contains(&("good".to_owned(), sequence)), "{sequence}: {begun:?}");
        it.handle_outcome(&topic("good"), Outcome::Delivered, heard(now));
        assert!((1..=4).contains(&it.in_flight()), "{} hang", it.in_flight());
        now += Duration::from_millis(10);
    }
}

#[test]
fn idle_topics_are_forgotten_beyond_a_limit_once_they_are_acknowledged() {
    let (mut it, now) = (deliveries(&["#"]), Instant::now());
    it.rules.topics_max = 2;
    for number in 0..10 {
        let name = format!("t/{number}");
        it.handle_publication(posting(&name, 1));
        attempts(&mut it, now);
        it.handle_outcome(&topic(&name), Outcome::Delivered, heard(now));
    }
    assert_eq!(it.topics(), 10, "none is acknowledged");
    assert_eq!(settled(&mut it).len(), 10);
    assert_eq!(it.topics(), 2);
    // The newest are known still: what comes again is not delivered again.
    it.handle_publication(posting("t/9", 1));
    assert_eq!(attempts(&mut it, now), of(&[]));
    for number in 0..10 {
        it.handle_publication(posting(&format!("webhooks/other/dead{number}"), 1));
    }
    assert_eq!(settled(&mut it).len(), 10, "letters that nobody wants are settled at once");
    assert!(it.topics() <= 2 && it.idle.len() <= 4);
}

#[test]
fn retry_after_is_obeyed_by_all_topics() {
    let (mut it, now) = (deliveries(&["#"]), Instant::now());
    it.handle_publication(posting("a", 1));
    attempts(&mut it, now);
    it.handle_outcome(&topic("a"), failed(Some(PAUSE * 9)), heard(now));
    it.handle_publication(posting("b", 1));
    assert_eq!(attempts(&mut it, now + PAUSE * 8), of(&[]));
    assert_eq!(it.wake_at(now), Some(now + PAUSE * 9));
    assert_eq!(attempts(&mut it, now + PAUSE * 9).len(), 2);
}

#[test]
fn after_410_nothing_is_tried_or_acknowledged() {
    let (mut it, now) = (deliveries(&["#"]), Instant::now());
    it.handle_publication(posting("a", 1));
    it.handle_publication(posting("b", 1));
    attempts(&mut it, now);
    it.handle_outcome(&topic("a"), Outcome::Gone, heard(now));
    it.handle_outcome(&topic("b"), Outcome::Gone, heard(now));
    assert_eq!((it.poll_news(), it.poll_news()), (Some(News::Gone), None));
    it.handle_publication(posting("c", 1));
    assert_eq!((attempts(&mut it, now), settled(&mut it)), (of(&[]), of(&[])));
}

#[test]
fn what_comes_again_means_nothing_and_what_is_missing_is_recorded_in_its_place() {
    let (mut it, now) = (deliveries(&["#"]), Instant::now());
    it.handle_publication(posting("a", 5));
    it.handle_publication(posting("a", 4));
    it.handle_missed(missed("a", 2, 5));
    assert_eq!(it.pending().0, 1, "all of that was known");
    it.handle_missed(missed("a", 3, 9));
    it.handle_publication(posting("a", 10));
    it.handle_publication(posting("a", 13));
    assert_eq!(it.counts().conflated, 2, "nobody told of a gap");
    assert_eq!((attempts(&mut it, now), it.poll_letter()), (of(&[("a", 5)]), None));
    it.handle_outcome(&topic("a"), Outcome::Delivered, heard(now));
    let letter = it.poll_letter().expect("what is missed is recorded");
    assert_eq!(settled(&mut it), of(&[("a", 5)]));
    it.handle_recorded(&letter);
    assert_eq!((settled(&mut it), it.counts().missed), (of(&[("a", 9)]), 4));
    assert_eq!(attempts(&mut it, now), of(&[("a", 10)]));
}

#[test]
fn a_topic_that_is_far_behind_holds_little_and_fetches_the_rest() {
    let (mut it, now) = (deliveries(&["#"]), Instant::now());
    (1..=9).for_each(|sequence| it.handle_publication(posting("a", sequence)));
    assert_eq!((it.pending().0, it.poll_fetch()), (AHEAD_MAX, None));
    for sequence in 1..=3 {
        assert_eq!(attempts(&mut it, now), of(&[("a", sequence)]));
        it.handle_outcome(&topic("a"), Outcome::Delivered, heard(now));
    }
    let (name, after) = it.poll_fetch().expect("more follows");
    assert_eq!((name.as_str(), after.sequence.get()), ("a", 3));
    let page = |after, sequences: &[u64]| {
        let postings = sequences.iter().map(|at| posting("a", *at)).collect();
        let after = posting("a", after).position;
        Page { topic: topic("a"), after, postings, read_ms: 7 }
    };
    it.handle_publication(posting("a", 10));
    it.handle_page(page(5, &[6, 7]));
    let letter = it.poll_letter().expect("4 and 5 are not kept any more");
    assert!(matches!(&letter, Letter::Missed(missed) if missed.count() == 2));
    it.handle_recorded(&letter);
    for sequence in 6..=7 {
        assert_eq!(attempts(&mut it, now), of(&[("a", sequence)]));
        it.handle_outcome(&topic("a"), Outcome::Delivered, heard(now));
    }
    assert!(it.poll_fetch().is_some());
    it.handle_page(page(7, &[8, 9, 10]));
    it.handle_publication(posting("a", 10));
    it.handle_publication(posting("a", 11));
    assert_eq!(it.pending().0, 3, "it has caught up but for one");
    assert_eq!(it.counts().conflated, 0);
}

#[test]
fn a_new_epoch_is_no_repetition() {
    let mut it = deliveries(&["#"]);
    it.handle_publication(posting("a", 5));
    let mut anew = posting("a", 1);
    anew.position.epoch = Epoch::new("e2");
    it.handle_publication(anew);
    assert_eq!((it.pending().0, it.counts().conflated), (2, 0));
}

#[test]
fn dead_letters_are_delivered_if_they_are_named_and_make_no_others() {
    let (mut it, mut now) = (deliveries(&["#"]), Instant::now());
    it.handle_publication(posting("webhooks/other/dead", 1));
    it.handle_publication(posting("webhooks/own/dead", 1));
    assert_eq!(it.pending(), (0, 0), "`#` does not name them");
    assert_eq!(settled(&mut it), of(&[("webhooks/other/dead", 1), ("webhooks/own/dead", 1)]));
    let mut it = deliveries(&["webhooks/+/dead"]);
    it.handle_publication(posting("webhooks/own/dead", 1));
    it.handle_publication(posting("webhooks/other/dead", 1));
    for _ in 0..3 {
        assert_eq!(attempts(&mut it, now), of(&[("webhooks/other/dead", 1)]));
        it.handle_outcome(&topic("webhooks/other/dead"), failed(None), heard(now));
        now += PAUSE * 4;
    }
    assert_eq!((it.poll_letter(), it.counts().dead_letters), (None, 1));
    assert_eq!(it.pending(), (0, 0));
}

#[test]
fn what_nobody_awaits_changes_nothing() {
    let (mut it, now) = (deliveries(&["#"]), Instant::now());
    let nothing_awaited = |it: &mut Deliveries, name: &str| {
        let position = posting(name, 9).position;
        it.handle_outcome(&topic(name), Outcome::Delivered, heard(now));
        it.handle_outcome(&topic(name), failed(None), heard(now));
        it.handle_recorded(&Letter::Missed(missed(name, 1, 9)));
        it.handle_page(Page { topic: topic(name), after: position, postings: vec![], read_ms: 7 });
    };
    nothing_awaited(&mut it, "unknown");
    it.handle_publication(posting("a", 1));
    nothing_awaited(&mut it, "a");
    assert_eq!((it.pending(), it.in_flight(), it.counts()), ((1, 4), 0, Counts::default()));
    assert_eq!((attempts(&mut it, now), settled(&mut it)), (of(&[("a", 1)]), of(&[])));
}

/// What a random history does next.
#[derive(Clone, Debug)]
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

fn step() -> impl Strategy<Value = Step> {
    let of_topic = 0usize..5;
    prop_oneof![
        4 => of_topic.clone().prop_map(Step::Publish),
        1 => of_topic.clone().prop_map(Step::Repeat),
        1 => of_topic.clone().prop_map(Step::Stray),
        1 => (of_topic, 1u64..4).prop_map(|(topic, count)| Step::Gap(topic, count)),
        6 => (0usize..8, any::<bool>()).prop_map(|(at, good)| Step::Answer(at, good)),
        2 => Just(Step::Record),
        2 => Just(Step::Fetch),
        3 => (0u64..40).prop_map(Step::Wait),
        1 => Just(Step::Acknowledge),
    ]
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
    in_flight: Vec<Arc<Posting>>,
    letters: VecDeque<Letter>,
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
        let posting = self.in_flight.remove(at % self.in_flight.len());
        let outcome = if is_good { Outcome::Delivered } else { failed(None) };
        self.it.handle_outcome(&posting.topic, outcome, heard(self.now));
        if is_good {
            let sequence = posting.position.sequence.get();
            self.settle(&posting.topic, sequence, sequence);
        }
    }

    fn record(&mut self) {
        let Some(letter) = self.letters.pop_front() else { return };
        let (from, to) = match &letter {
            Letter::Undelivered(posting, _) => {
                (posting.position.sequence, posting.position.sequence)
            }
            Letter::Missed(it) => (it.from.expect("no epoch ends"), it.position.sequence),
        };
        self.it.handle_recorded(&letter);
        self.settle(letter.topic(), from.get(), to.get());
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
        let postings = (start + 1..=end).map(|at| posting(topic.as_str(), at)).collect();
        let after = posting(topic.as_str(), start).position;
        self.it.handle_page(Page { topic, after, postings, read_ms: 7 });
        true
    }

    fn stray(&mut self, topic: &TopicName) {
        if self.in_flight.iter().all(|it| it.topic != *topic) {
            self.it.handle_outcome(topic, Outcome::Delivered, heard(self.now));
        }
        if self.letters.iter().all(|it| it.topic() != topic) {
            self.it.handle_recorded(&Letter::Missed(missed(topic.as_str(), 1, 1)));
        }
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Publish(at) => {
                self.told[at].newest += 1;
                self.it.handle_publication(posting(NAMES[at], self.told[at].newest));
            }
            Step::Repeat(at) if self.told[at].newest > 0 => {
                self.it.handle_publication(posting(NAMES[at], self.told[at].newest));
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
        while let Some(posting) = self.it.poll_attempt(self.now) {
            let is_other = |other: &Arc<Posting>| other.topic != posting.topic;
            assert!(self.in_flight.iter().all(is_other), "one of a topic at a time");
            self.in_flight.push(posting);
        }
        assert!(self.in_flight.len() <= 2 && self.in_flight.len() == self.it.in_flight());
        self.letters.extend(std::iter::from_fn(|| self.it.poll_letter()));
        while self.it.poll_news().is_some() {}
        let (count, bytes) = self.it.pending();
        let unsettled: u64 = self.told.iter().map(|told| told.newest - told.settled).sum();
        assert!(count as u64 <= unsettled && count <= NAMES.len() * (AHEAD_MAX + 1));
        assert!(bytes <= count * 4 && (count > 0) == self.it.oldest_ms().is_some());
    }
}

proptest! {
    /// Whatever fails, each topic is settled in order and completely, and nothing else is acknowledged.
    #[test]
    fn every_topic_is_settled_in_order_and_completely(
        steps in proptest::collection::vec(step(), 1..200),
    ) {
        let mut model = Model {
            it: deliveries(&["#"]),
            now: Instant::now(),
            told: NAMES.iter().map(|_| Told::default()).collect(),
            in_flight: Vec::new(),
            letters: VecDeque::new(),
        };
        for step in &steps {
            model.take(step);
            model.check();
        }
        // In the end everything works: all of it is settled, and it is known when to look again.
        for _ in 0..10_000 {
            model.answer(0, true);
            model.record();
            let has_fetched = model.fetch();
            model.check();
            let is_busy = !model.in_flight.is_empty() || !model.letters.is_empty();
            if is_busy || has_fetched || model.it.pending().0 == 0 {
                continue;
            }
            let wake_at = model.it.wake_at(model.now).expect("something is due some time");
            prop_assert!(wake_at > model.now, "nothing was begun though it was due");
            model.now = wake_at;
            model.check();
        }
        model.acknowledge();
        prop_assert_eq!(model.it.pending(), (0, 0));
        prop_assert!(model.told.iter().all(|told| told.settled == told.newest));
    }
}
