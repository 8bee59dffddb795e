//! What the recent deliveries have is told, also where a topic's history does not reach back to it: each case one history.
//! Without looking there (`Fault::RingIsNotAsked`) the node itself finds gaps that cover what can be had.

use std::time::Duration;

use model::{Conflation, Limits, PolicyRule, Selector, Start, SubscribeOptions, TopicPolicy};

use crate::node::{Node, SINGLE};

const ROOM: usize = 1 << 20;

/// A node of one shard with so short a history, and a ring of eight.
fn node(history_count: usize) -> Node {
    let limits = Limits { recent_deliveries_max: 8, ..Limits::default() };
    let policy =
        TopicPolicy { history_count, conflation: Some(Conflation::Off), ..TopicPolicy::default() };
    let selector = Selector::parse("#", &limits).expect("valid");
    Node::new(1, limits, vec![PolicyRule { selector, policy }], 100)
}

fn publish(node: &mut Node, name: &str, count: usize) {
    (0..count).for_each(|_| node.publish(name, "x"));
    node.turn(0, 100);
}

/// What a reader was told of `a`: sequences, and gaps.
fn told(node: &Node, reader: usize) -> Vec<String> {
    let lines = node.lines(reader);
    let is_told = |line: &&String| line.starts_with("publication a ") || line.starts_with("gap a ");
    let word = |line: &String| match line.strip_prefix("publication a ") {
        Some(rest) => rest.split(' ').next().expect("a sequence").to_owned(),
        None => line["gap a ".len()..].to_owned(),
    };
    lines.iter().filter(is_told).map(word).collect()
}

/// A session that takes nothing while `before` of its topic, then `others`, then `after` are published.
fn told_after_a_stall(before: usize, others: usize, after: usize) -> Vec<String> {
    let mut node = node(1);
    let reader = node.open(0, SINGLE, ROOM);
    node.subscribe(reader, &["a", "b"], Start::Now);
    node.settle();
    node.take_room(reader, 0);
    publish(&mut node, "a", before);
    publish(&mut node, "b", others);
    publish(&mut node, "a", after);
    node.settle();
    told(&node, reader)
}

#[test]
fn who_fell_off_the_ring_is_told_what_is_in_it() {
    let rows = [
        // Nothing of the topic fell off: the one before is what the session has.
        ((0, 10, 3), "1, 2, 3"),
        ((0, 10, 8), "1, 2, 3, 4, 5, 6, 7, 8"),
        // Some of it did.
        ((2, 10, 3), "2 lagged, 3, 4, 5"),
        ((10, 0, 0), "2 lagged, 3, 4, 5, 6, 7, 8, 9, 10"),
        // All of it did.
        ((3, 10, 0), "2 lagged, 3"),
    ];
    for ((before, others, after), expected) in rows {
        let found = told_after_a_stall(before, others, after).join(", ");
        assert_eq!(found, expected, "{before} {others} {after}");
    }
}

/// A session that resumes from a position while another one keeps the ring alive.
fn told_from(start: &Start, position: Option<u64>) -> Vec<String> {
    told_of(node(2), start, position)
}

fn told_of(mut node: Node, start: &Start, position: Option<u64>) -> Vec<String> {
    let (stalled, reader) = (node.open(0, SINGLE, ROOM), node.open(0, SINGLE, ROOM));
    node.subscribe(stalled, &["a"], Start::Now);
    node.settle();
    node.take_room(stalled, 0);
    for _ in 0..10 {
        publish(&mut node, "a", 1);
        node.pass(Duration::from_secs(1));
    }
    let positions = position.map(|position| ("a", position)).into_iter().collect();
    let options = SubscribeOptions::default();
    node.subscribe_from(reader, &["a"], start.clone(), positions, options);
    node.settle();
    told(&node, reader)
}

#[test]
fn who_comes_is_told_what_is_in_the_ring() {
    // Published at 1,000 ms, 2,000 ms and so on; the ring has the last eight, the history the last two.
    let rows = [
        (Start::Now, Some(5), "6, 7, 8, 9, 10"),
        (Start::Now, Some(1), "2 history, 3, 4, 5, 6, 7, 8, 9, 10"),
        (Start::All, None, "2 history, 3, 4, 5, 6, 7, 8, 9, 10"),
        (Start::Since(6_000), None, "6, 7, 8, 9, 10"),
        (Start::Last(5), None, "9, 10"),
    ];
    for (start, position, expected) in rows {
        let found = told_from(&start, position).join(", ");
        assert_eq!(found, expected, "{start:?} {position:?}");
    }
}

/// The numbering began anew: what the reader had counts for nothing, and what it is told may be among the recent deliveries only.
#[test]
fn who_has_a_position_of_another_epoch_is_told_what_is_in_the_ring() {
    // One beyond the head is of no life of the numbering.
    let found = told_from(&Start::Now, Some(1_000)).join(", ");
    assert_eq!(found, "2 epoch, 3, 4, 5, 6, 7, 8, 9, 10");
    // Where only the value is kept nobody expects what it replaced.
    let found = told_of(node(1), &Start::Now, Some(1_000)).join(", ");
    assert_eq!(found, "9 epoch, 10");
}

/// A reader that does not unsubscribe keeps its topic's chain whole; one that comes later is told of both parts.
#[test]
fn what_nobody_read_is_a_gap_between_what_is_in_the_ring() {
    let mut node = node(1);
    let (stalled, first) = (node.open(0, SINGLE, ROOM), node.open(0, SINGLE, ROOM));
    node.subscribe(stalled, &["b"], Start::Now);
    node.subscribe(first, &["a"], Start::Now);
    node.settle();
    node.take_room(stalled, 0);
    publish(&mut node, "b", 1);
    publish(&mut node, "a", 2);
    node.unsubscribe(first, "a");
    // These are not among the deliveries of the shard.
    publish(&mut node, "a", 2);
    node.subscribe(first, &["a"], Start::Now);
    publish(&mut node, "a", 2);
    let late = node.open(0, SINGLE, ROOM);
    node.subscribe(late, &["a"], Start::All);
    node.settle();
    assert_eq!(told(&node, late), ["1", "2", "4 history", "5", "6"]);
}

/// The first publication of a topic with an interval is told at once, the others are held back meanwhile: its name comes
/// before whatever is told of it first, also to who fell off the ring in between.
#[test]
fn a_topic_with_an_interval_is_named_to_those_who_fell_off_the_ring() {
    for others in [0, 3, 4, 5, 20] {
        let limits = Limits { recent_deliveries_max: 4, ..Limits::default() };
        let rule = |selector: &str, interval_ms| PolicyRule {
            selector: Selector::parse(selector, &limits).expect("valid"),
            policy: TopicPolicy {
                interval: Duration::from_millis(interval_ms),
                conflation: Some(Conflation::Off),
                history_count: 10,
                ..TopicPolicy::default()
            },
        };
        let rules = vec![rule("a", 1_000), rule("#", 0)];
        let mut node = Node::new(1, limits.clone(), rules, 100);
        let reader = node.open(0, SINGLE, ROOM);
        node.subscribe(reader, &["+"], Start::Now);
        node.settle();
        node.take_room(reader, 0);
        publish(&mut node, "b", 1);
        publish(&mut node, "a", 3);
        publish(&mut node, "b", others);
        node.pass(Duration::from_secs(2));
        publish(&mut node, "b", others);
        node.settle();
        let lines = node.lines(reader);
        let named = lines.iter().position(|line| line.starts_with("start a "));
        let first = lines.iter().position(|line| line.starts_with("publication a 1"));
        assert!(named.is_some() && first.is_some() && named < first, "{others}: {lines:#?}");
        assert_eq!(told(&node, reader), ["1", "2", "3"], "{others}: {lines:#?}");
    }
}

/// One topic fills the ring: it is told in several pieces, each with a walk through it.
#[test]
fn a_long_stall_is_told_from_the_ring_in_pieces() {
    const COUNT: usize = 5_000;
    let limits = Limits { recent_deliveries_max: COUNT, ..Limits::default() };
    let mut node = Node::new(1, limits, Vec::new(), 100);
    let (stalled, reader) = (node.open(0, SINGLE, ROOM), node.open(0, SINGLE, ROOM));
    node.subscribe(stalled, &["a"], Start::Now);
    node.settle();
    node.take_room(stalled, 0);
    (0..COUNT).for_each(|_| publish(&mut node, "a", 1));
    let (positions, options) = (vec![("a", 0)], SubscribeOptions::default());
    let before = node.hubs[0].work();
    node.subscribe_from(reader, &["a"], Start::Now, positions, options);
    node.give_room(reader, ROOM);
    while node.turn(0, 100) {}
    let steps = node.hubs[0].work() - before;
    let expected: Vec<String> = (1..=COUNT).map(|sequence| sequence.to_string()).collect();
    assert_eq!(told(&node, reader), expected);
    // A walk for each thousand of them.
    assert!(steps < 8 * COUNT as u64, "{steps} steps");
}
