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

/// Each shard works until it has nothing to do, and no time passes.
fn work(node: &mut Node) {
    for _ in 0..10 {
        node.turn(0, 100);
        node.turn(1, 100);
    }
}

/// A session of the second shard that has more of a topic of the first than there is, and waits; the ring has room for eight.
/// It reads a topic of its own shard, too.
struct Beyond {
    node: Node,
    reader: usize,
    own: String,
    topic: String,
}

impl Beyond {
    fn waits() -> Self {
        let limits = Limits { recent_deliveries_max: 8, ..Limits::default() };
        let policy = TopicPolicy { history_count: 10, ..TopicPolicy::default() };
        let (mut node, topic) = node(limits, policy, 100);
        let of_first: Vec<String> = names_of_first_shard(&node, "a", 2).collect();
        let mut names = (0..).map(|number| format!("a{number}"));
        let own = names.find(|name| !of_first.contains(name)).expect("one");
        publish(&mut node, &topic, 3);
        node.settle();
        let reader = node.open(1, SINGLE, ROOM);
        let (positions, options) = (vec![(topic.as_str(), 5)], SubscribeOptions::default());
        node.subscribe_from(reader, &[&own, &topic], Start::Now, positions, options);
        work(&mut node);
        Self { node, reader, own, topic }
    }

    /// It is to read both topics afresh, its own first, of which its connection takes nothing.
    fn falls_off(&mut self) {
        let Self { node, reader, own, .. } = self;
        node.take_room(*reader, 0);
        publish(node, own, 20);
        node.turn(1, 100);
        node.give_room(*reader, 1);
        node.turn(1, 100);
        node.turn(1, 100);
    }

    /// It is told its gap when the home answers, and not seconds later, after another question.
    fn hears_its_gap(mut self) {
        work(&mut self.node);
        self.node.give_room(self.reader, ROOM);
        work(&mut self.node);
        let lines = self.node.lines(self.reader);
        let gaps = lines.iter().filter(|line| line.starts_with("gap "));
        let gaps: Vec<&str> = gaps.map(String::as_str).collect();
        let expected =
            [format!("gap {} 10 lagged", self.own), format!("gap {} 0 epoch", self.topic)];
        assert_eq!(gaps, expected, "{lines:#?}");
    }
}

#[test]
fn who_falls_off_before_the_home_is_asked_is_told_its_gap_when_it_answers() {
    let mut beyond = Beyond::waits();
    beyond.node.tick();
    beyond.falls_off();
    beyond.node.tick();
    beyond.hears_its_gap();
}

#[test]
fn who_falls_off_before_the_home_answers_is_told_its_gap_then() {
    let mut beyond = Beyond::waits();
    beyond.node.tick();
    beyond.node.tick();
    beyond.falls_off();
    beyond.hears_its_gap();
}
