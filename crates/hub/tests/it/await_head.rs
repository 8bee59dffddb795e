//! Sessions that have more of a topic than their shard, and what becomes of that while they wait.

use model::{AckLevel, Limits, PolicyRule, Selector, Start, SubscribeOptions, TopicPolicy};

use crate::histories::names_of_first_shard;
use crate::node::{Node, SINGLE};

const ROOM: usize = 1 << 20;

/// A node of two shards with a topic at home on the first.
fn node(limits: Limits, policy: TopicPolicy, mail: usize) -> (Node, String) {
    let selector = Selector::parse("#", &limits).expect("valid");
    let node = Node::new(2, limits, vec![PolicyRule { selector, policy }], mail);
    let topic = names_of_first_shard(&node, "t", 2).next().expect("one");
    (node, topic)
}

fn publish(node: &mut Node, topic: &str, count: usize) {
    (0..count).for_each(|_| node.publish(topic, "x"));
}

/// A session on the second shard that says that it has a topic up to a position.
fn resume(node: &mut Node, topic: &str, position: u64) -> usize {
    let reader = node.open(1, SINGLE, ROOM);
    let positions = vec![(topic, position)];
    node.subscribe_from(reader, &[topic], Start::Now, positions, SubscribeOptions::default());
    reader
}

/// Its position was given, and another epoch began after that. Of the epoch its shard hears before it has what was published
/// in the one before: its mailbox was full.
#[test]
fn who_waits_is_told_of_an_epoch_that_its_shard_heard_of_too_early() {
    let policy = TopicPolicy { ack: AckLevel::Disk, history_count: 10, ..TopicPolicy::default() };
    let (mut node, topic) = node(Limits::default(), policy, 1);
    let other = node.open(1, SINGLE, ROOM);
    node.subscribe(other, &[&topic], Start::Now);
    publish(&mut node, &topic, 3);
    node.settle();
    publish(&mut node, &topic, 2);
    node.turn(0, 100);
    let reader = resume(&mut node, &topic, 5);
    node.turn(1, 100);
    node.begin_epoch();
    node.turn(0, 100);
    publish(&mut node, &topic, 1);
    node.settle();
    let lines = node.lines(reader);
    let told: Vec<&str> = lines.iter().map(|line| line.trim_end_matches(" full x")).collect();
    let epoch = format!("epoch {topic} f");
    let gap = format!("gap {topic} 5 epoch");
    let next = format!("publication {topic} 6 short x");
    assert_eq!(told[told.len() - 3..], [epoch.as_str(), &gap, &next], "{lines:#?}");
}
