//! What is sent, how often and in which order, in histories written down.

use model::{Conflation, Limits, PolicyRule, Selector, Start, SubscribeOptions, TopicPolicy};

use crate::node::{BATCHED, Node, SINGLE};

#[test]
fn a_batch_is_encoded_once_and_sent_once_to_each_member() {
    let mut node = Node::new(1, Limits::default(), Vec::new(), 100);
    let readers: Vec<usize> = (0..50).map(|_| node.open(0, BATCHED, 1 << 20)).collect();
    for &reader in &readers {
        node.subscribe(reader, &["a", "b"], Start::Snapshot);
    }
    node.settle();
    let before: Vec<usize> = readers.iter().map(|&reader| node.sends(reader)).collect();
    let encoded = node.hubs[0].counters().records_encoded;
    for topic in ["a", "b", "a"] {
        node.publish(topic, "x");
    }
    node.settle();
    for (&reader, before) in readers.iter().zip(before) {
        assert_eq!(node.sends(reader) - before, 1, "one send a turn");
    }
    assert_eq!(node.hubs[0].counters().records_encoded - encoded, 3);
    assert_eq!(node.hubs[0].counters().delivered, 150);
    assert_eq!(node.hubs[0].counters().audiences, 1);
}

#[test]
fn a_session_in_two_audiences_gets_both_in_one_send() {
    let mut node = Node::new(1, Limits::default(), Vec::new(), 100);
    let (one, other) = (node.open(0, SINGLE, 1 << 20), node.open(0, SINGLE, 1 << 20));
    for reader in [one, other] {
        node.subscribe(reader, &["shared"], Start::Snapshot);
    }
    node.subscribe(one, &["private/1"], Start::Snapshot);
    node.settle();
    let before = node.sends(one);
    node.publish("shared", "x");
    node.publish("private/1", "y");
    node.settle();
    assert_eq!(node.sends(one) - before, 1);
    assert_eq!(node.hubs[0].counters().audiences, 2);
    assert!(node.lines(one).iter().any(|line| line.starts_with("publication private/1 1")));
    assert!(node.lines(other).iter().any(|line| line.starts_with("publication shared 1")));
}

#[test]
fn a_stalled_session_with_conflation_gets_only_the_newest_of_each_topic() {
    let limits = Limits::default();
    let rules = vec![PolicyRule {
        selector: Selector::parse("#", &limits).expect("valid"),
        policy: TopicPolicy { conflation: Some(Conflation::Lagging), ..TopicPolicy::default() },
    }];
    let mut node = Node::new(1, limits, rules, 100);
    let reader = node.open(0, SINGLE, 1 << 20);
    node.subscribe(reader, &["a", "b"], Start::Snapshot);
    node.settle();
    let Some(known) = &node.readers[reader] else { panic!("open") };
    let link = known.link;
    node.wires[0].connections.get_mut(&link).expect("open").room = 0;
    node.publish("a", "first");
    node.turn(0, 10);
    for _ in 0..100 {
        node.publish("a", "skipped");
        node.publish("b", "skipped");
        node.turn(0, 10);
    }
    node.publish("a", "newest");
    node.publish("b", "newest");
    node.turn(0, 10);
    node.settle();
    let lines = node.lines(reader);
    let told: Vec<&String> = lines.iter().filter(|line| line.starts_with("publication")).collect();
    assert_eq!(told, ["publication a 102 full newest", "publication b 101 full newest"]);
    let counters = node.hubs[0].counters();
    assert_eq!((counters.delivered, counters.conflated, counters.gaps), (2, 201, 0));
}

#[test]
fn a_message_larger_than_a_batch_survives_a_connection_that_takes_it_in_pieces() {
    let limits = Limits { batch_bytes_max: 64, ..Limits::default() };
    let mut node = Node::new(1, limits, Vec::new(), 100);
    let reader = node.open(0, BATCHED, 1 << 20);
    node.subscribe(reader, &["a"], Start::Snapshot);
    node.settle();
    let link = node.readers[reader].as_ref().expect("open").link;
    node.wires[0].connections.get_mut(&link).expect("open").room = 10;
    let large = "L".repeat(1000);
    node.publish("a", &large);
    node.publish("a", "small");
    node.turn(0, 10);
    for _ in 0..200 {
        node.give_room(reader, 7);
        node.turn(0, 10);
    }
    node.settle();
    let lines = node.lines(reader);
    assert!(lines.contains(&format!("publication a 1 short {large}")), "{lines:?}");
    assert!(lines.iter().any(|line| line.starts_with("publication a 2")), "{lines:?}");
}

#[test]
fn a_session_that_lags_gets_its_subscriptions_of_higher_priority_first() {
    let mut node = Node::new(1, Limits::default(), Vec::new(), 100);
    let reader = node.open(0, SINGLE, 1 << 20);
    for (topic, priority) in [("low", -1), ("high", 5), ("usual", 0)] {
        let options = SubscribeOptions { priority, ..SubscribeOptions::default() };
        node.subscribe_with(reader, &[topic], Start::Now, options);
    }
    node.settle();
    let link = node.readers[reader].as_ref().expect("open").link;
    node.wires[0].connections.get_mut(&link).expect("open").room = 0;
    for number in 0..10 {
        for topic in ["low", "usual", "high"] {
            node.publish(topic, &number.to_string());
        }
        node.turn(0, 10);
    }
    node.settle();
    let lines = node.lines(reader);
    let told: Vec<&str> = lines
        .iter()
        .filter_map(|line| line.strip_prefix("publication ")?.split(' ').next())
        .collect();
    // The first was begun before the connection was found to be full.
    let expected = [vec!["high"; 10], vec!["usual"; 10], vec!["low"; 10]].concat();
    let from = told.iter().position(|topic| *topic == "high").expect("told");
    assert!(from <= 1, "{told:?}");
    let mut rest = told.clone();
    rest.sort_by_key(|topic| ["high", "usual", "low"].iter().position(|it| it == topic));
    assert_eq!(rest, expected, "all of it came");
    assert_eq!(told[from..from + 10], expected[..10], "{told:?}");
}

#[test]
fn where_a_topic_stands_is_not_known_before_its_home_answered() {
    let mut node = Node::new(2, Limits::default(), Vec::new(), 100);
    for shard in 0..2 {
        let reader = node.open(shard, SINGLE, 1 << 20);
        node.subscribe(reader, &["a", "b", "c"], Start::Snapshot);
    }
    for name in ["a", "b", "c", "d"] {
        let topic = node.topic(name);
        for hub in &node.hubs {
            assert_eq!(hub.standing(&topic), None, "{name}");
            assert_eq!(hub.value(&topic), None, "{name}");
        }
    }
}
