//! Deliveries by table, and random histories of them.

use model::Epoch;
use proptest::prelude::*;

use super::*;
use crate::webhooks::checks::{
    AHEAD_MAX, PAUSE, check_deliveries, deliveries, delivery, failed, heard, missed, topic,
};

/// The attempts that may begin now, as topic and sequence.
fn attempts(it: &mut Deliveries, now: Instant) -> Vec<(String, u64)> {
    let shown = |it: Arc<Delivery>| (it.topic.to_string(), it.position.sequence.get());
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
        it.handle_publication(delivery(name, sequence));
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
    it.handle_publication(delivery("a", 1));
    it.handle_publication(delivery("a", 2));
    for pause in [PAUSE, PAUSE * 2] {
        assert_eq!(attempts(&mut it, now), of(&[("a", 1)]));
        it.handle_outcome(&topic("a"), failed(None), heard(now));
        assert_eq!(it.wake_at(now), Some(now + pause));
        assert_eq!(attempts(&mut it, now + pause / 2), of(&[]));
        now += pause;
    }
    assert_eq!(attempts(&mut it, now), of(&[("a", 1)]));
    it.handle_outcome(&topic("a"), failed(None), heard(now));
    let dead_letter = it.poll_dead_letter().expect("there is one");
    assert!(matches!(&dead_letter, DeadLetter::Undelivered(_, failures) if failures.attempts == 3));
    assert_eq!((settled(&mut it), attempts(&mut it, now)), (of(&[]), of(&[])));
    it.handle_recorded(&dead_letter);
    assert_eq!(settled(&mut it), of(&[("a", 1)]));
    assert_eq!(attempts(&mut it, now), of(&[("a", 2)]), "the next goes on at once");
    assert_eq!((it.counts().dead_letters, it.counts().attempts_failed), (1, 3));
}

#[test]
fn a_topic_that_fails_holds_no_other() {
    let (mut it, now) = (deliveries(&["#"]), Instant::now());
    it.handle_publication(delivery("bad", 1));
    attempts(&mut it, now);
    it.handle_outcome(&topic("bad"), failed(None), heard(now));
    it.handle_publication(delivery("good", 1));
    assert_eq!(attempts(&mut it, now), of(&[("good", 1)]));
}

#[test]
fn topics_that_hang_leave_places_to_those_that_do_not() {
    let (mut it, mut now) = (deliveries(&["#"]), Instant::now());
    it.rules.concurrency = 8;
    it.rules.attempts_max = u32::MAX;
    for number in 0..12 {
        it.handle_publication(delivery(&format!("hang/{number}"), 1));
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
        it.handle_publication(delivery("good", sequence));
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
        it.handle_publication(delivery(&name, 1));
        attempts(&mut it, now);
        it.handle_outcome(&topic(&name), Outcome::Delivered, heard(now));
    }
    assert_eq!(it.topics(), 10, "none is acknowledged");
    assert_eq!(settled(&mut it).len(), 10);
    assert_eq!(it.topics(), 2);
    // The newest are known still: what comes again is not delivered again.
    it.handle_publication(delivery("t/9", 1));
    assert_eq!(attempts(&mut it, now), of(&[]));
    for number in 0..10 {
        it.handle_publication(delivery(&format!("webhooks/other/dead{number}"), 1));
    }
    assert_eq!(settled(&mut it).len(), 10, "letters that nobody wants are settled at once");
    assert!(it.topics() <= 2 && it.idle.len() <= 4);
}

#[test]
fn retry_after_is_obeyed_by_all_topics() {
    let (mut it, now) = (deliveries(&["#"]), Instant::now());
    it.handle_publication(delivery("a", 1));
    attempts(&mut it, now);
    it.handle_outcome(&topic("a"), failed(Some(PAUSE * 9)), heard(now));
    it.handle_publication(delivery("b", 1));
    assert_eq!(attempts(&mut it, now + PAUSE * 8), of(&[]));
    assert_eq!(it.wake_at(now), Some(now + PAUSE * 9));
    assert_eq!(attempts(&mut it, now + PAUSE * 9).len(), 2);
}

#[test]
fn after_410_nothing_is_tried_or_acknowledged() {
    let (mut it, now) = (deliveries(&["#"]), Instant::now());
    it.handle_publication(delivery("a", 1));
    it.handle_publication(delivery("b", 1));
    attempts(&mut it, now);
    it.handle_outcome(&topic("a"), Outcome::Gone, heard(now));
    it.handle_outcome(&topic("b"), Outcome::Gone, heard(now));
    assert_eq!((it.poll_news(), it.poll_news()), (Some(News::Gone), None));
    it.handle_publication(delivery("c", 1));
    assert_eq!((attempts(&mut it, now), settled(&mut it)), (of(&[]), of(&[])));
}

#[test]
fn what_comes_again_means_nothing_and_what_is_missing_is_recorded_in_its_place() {
    let (mut it, now) = (deliveries(&["#"]), Instant::now());
    it.handle_publication(delivery("a", 5));
    it.handle_publication(delivery("a", 4));
    it.handle_missed(missed("a", 2, 5));
    assert_eq!(it.pending().0, 1, "all of that was known");
    it.handle_missed(missed("a", 3, 9));
    it.handle_publication(delivery("a", 10));
    it.handle_publication(delivery("a", 13));
    assert_eq!(it.counts().conflated, 2, "nobody told of a gap");
    assert_eq!((attempts(&mut it, now), it.poll_dead_letter()), (of(&[("a", 5)]), None));
    it.handle_outcome(&topic("a"), Outcome::Delivered, heard(now));
    let dead_letter = it.poll_dead_letter().expect("what is missed is recorded");
    assert_eq!(settled(&mut it), of(&[("a", 5)]));
    it.handle_recorded(&dead_letter);
    assert_eq!((settled(&mut it), it.counts().missed), (of(&[("a", 9)]), 4));
    assert_eq!(attempts(&mut it, now), of(&[("a", 10)]));
}

#[test]
fn a_topic_that_is_far_behind_holds_little_and_fetches_the_rest() {
    let (mut it, now) = (deliveries(&["#"]), Instant::now());
    (1..=9).for_each(|sequence| it.handle_publication(delivery("a", sequence)));
    assert_eq!((it.pending().0, it.poll_fetch()), (AHEAD_MAX, None));
    for sequence in 1..=3 {
        assert_eq!(attempts(&mut it, now), of(&[("a", sequence)]));
        it.handle_outcome(&topic("a"), Outcome::Delivered, heard(now));
    }
    let (name, after) = it.poll_fetch().expect("more follows");
    assert_eq!((name.as_str(), after.sequence.get()), ("a", 3));
    let page = |after, sequences: &[u64]| {
        let publications = sequences.iter().map(|at| delivery("a", *at)).collect();
        let after = delivery("a", after).position;
        Page { topic: topic("a"), after, publications, read_ms: 7 }
    };
    it.handle_publication(delivery("a", 10));
    it.handle_page(page(5, &[6, 7]));
    let dead_letter = it.poll_dead_letter().expect("4 and 5 are not kept any more");
    assert!(matches!(&dead_letter, DeadLetter::Missed(missed) if missed.count() == 2));
    it.handle_recorded(&dead_letter);
    for sequence in 6..=7 {
        assert_eq!(attempts(&mut it, now), of(&[("a", sequence)]));
        it.handle_outcome(&topic("a"), Outcome::Delivered, heard(now));
    }
    assert!(it.poll_fetch().is_some());
    it.handle_page(page(7, &[8, 9, 10]));
    it.handle_publication(delivery("a", 10));
    it.handle_publication(delivery("a", 11));
    assert_eq!(it.pending().0, 3, "it has caught up but for one");
    assert_eq!(it.counts().conflated, 0);
}

#[test]
fn a_new_epoch_is_no_repetition() {
    let mut it = deliveries(&["#"]);
    it.handle_publication(delivery("a", 5));
    let mut anew = delivery("a", 1);
    anew.position.epoch = Epoch::new("e2");
    it.handle_publication(anew);
    assert_eq!((it.pending().0, it.counts().conflated), (2, 0));
}

#[test]
fn dead_letters_are_delivered_if_they_are_named_and_make_no_others() {
    let (mut it, mut now) = (deliveries(&["#"]), Instant::now());
    it.handle_publication(delivery("webhooks/other/dead", 1));
    it.handle_publication(delivery("webhooks/own/dead", 1));
    assert_eq!(it.pending(), (0, 0), "`#` does not name them");
    assert_eq!(settled(&mut it), of(&[("webhooks/other/dead", 1), ("webhooks/own/dead", 1)]));
    let mut it = deliveries(&["webhooks/+/dead"]);
    it.handle_publication(delivery("webhooks/own/dead", 1));
    it.handle_publication(delivery("webhooks/other/dead", 1));
    for _ in 0..3 {
        assert_eq!(attempts(&mut it, now), of(&[("webhooks/other/dead", 1)]));
        it.handle_outcome(&topic("webhooks/other/dead"), failed(None), heard(now));
        now += PAUSE * 4;
    }
    assert_eq!((it.poll_dead_letter(), it.counts().dead_letters), (None, 1));
    assert_eq!(it.pending(), (0, 0));
}

#[test]
fn what_nobody_awaits_changes_nothing() {
    let (mut it, now) = (deliveries(&["#"]), Instant::now());
    let nothing_awaited = |it: &mut Deliveries, name: &str| {
        let position = delivery(name, 9).position;
        it.handle_outcome(&topic(name), Outcome::Delivered, heard(now));
        it.handle_outcome(&topic(name), failed(None), heard(now));
        it.handle_recorded(&DeadLetter::Missed(missed(name, 1, 9)));
        it.handle_page(Page {
            topic: topic(name),
            after: position,
            publications: vec![],
            read_ms: 7,
        });
    };
    nothing_awaited(&mut it, "unknown");
    it.handle_publication(delivery("a", 1));
    nothing_awaited(&mut it, "a");
    assert_eq!((it.pending(), it.in_flight(), it.counts()), ((1, 4), 0, Counts::default()));
    assert_eq!((attempts(&mut it, now), settled(&mut it)), (of(&[("a", 1)]), of(&[])));
}

proptest! {
    #[test]
    fn every_topic_is_settled_in_order_and_completely(
        steps in proptest::collection::vec(any::<[u8; 3]>(), 1..200),
    ) {
        check_deliveries(&steps);
    }
}
