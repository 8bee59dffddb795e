//! Readers that keep a time and no positions, and clocks that somebody sets back while the process is down. While it lives its
//! clock never goes back (`engine::Clock`).

use std::time::Duration;

use model::{
    AckLevel, Epoch, Limits, PolicyRule, Position, Publication, Selector, Sequence, Start,
    TopicPolicy,
};
use tidegate_hub::home_shard;

use crate::node::{FIRST_EPOCH, Node, SINGLE};

/// Of the last one everything is old.
const TOPICS: [&str; 3] = ["a", "b", "old"];
const HOUR: Duration = Duration::from_secs(3_600);

fn node() -> Node {
    let (limits, ack) = (Limits::default(), AckLevel::Disk);
    let policy =
        TopicPolicy { ack, history_count: 100, memory_count: 100, ..TopicPolicy::default() };
    let selector = Selector::parse("#", &limits).expect("valid");
    Node::new(2, limits, vec![PolicyRule { selector, policy }], 1_000)
}

/// A node that lived for three hours, and the id that a reader of both topics has when everything was told.
fn lived() -> (Node, String) {
    let mut node = node();
    node.publish("old", "old0");
    node.pass(3 * HOUR);
    let reader = node.open(0, SINGLE, 1 << 20);
    node.subscribe_resumably(reader, &TOPICS, Start::All, None);
    node.settle();
    for number in 0..4 {
        TOPICS[..2].iter().for_each(|topic| node.publish(topic, &format!("{topic}{number}")));
        node.settle();
        node.pass(Duration::from_secs(10));
    }
    let lines = node.lines(reader);
    let id = lines.iter().rev().find_map(|line| line.strip_prefix("id ")).expect("it has one");
    (node, id.to_owned())
}

/// The same store in another process, whose clock shows another time.
fn restarted(before: &Node, set_back_by: Duration) -> Node {
    let mut node = node();
    node.pass(before.now.elapsed - set_back_by);
    for topic in TOPICS {
        let name = node.topic(topic);
        let at_home = &before.hubs[usize::from(home_shard(&name, 2).0)];
        let kept: Vec<Publication> = at_home.history(&name, Sequence::START).cloned().collect();
        let head = kept.last().map_or(Sequence::START, Publication::sequence);
        node.heads.insert(name.clone(), head);
        let position = Position { epoch: Epoch::new(FIRST_EPOCH), sequence: head };
        let home = usize::from(home_shard(&name, 2).0);
        let now = node.now;
        node.hubs[home].handle_stored(&name, &position, kept, now);
    }
    node
}

/// What a reader is told that comes with an id: gaps and publications, by topic.
fn told_since(node: &mut Node, id: &str) -> [Vec<String>; 3] {
    let reader = node.open(0, SINGLE, 1 << 20);
    node.subscribe_resumably(reader, &TOPICS, Start::All, Some((id, FIRST_EPOCH)));
    node.settle();
    let lines = node.lines(reader);
    TOPICS.map(|topic| {
        let is_of = |line: &&String| {
            let mut words = line.split(' ');
            let word = words.next();
            matches!(word, Some("publication" | "gap")) && words.next() == Some(topic)
        };
        lines.iter().filter(is_of).cloned().collect()
    })
}

fn is_epoch_gap(line: &str) -> bool {
    line.starts_with("gap") && line.ends_with("epoch")
}

#[test]
fn who_comes_back_before_a_clock_that_was_set_back_has_caught_up_is_told_a_gap_and_all_that_is_kept()
 {
    let (before, id) = lived();
    let mut node = restarted(&before, HOUR);
    for (topic, told) in TOPICS.iter().zip(told_since(&mut node, &id)) {
        assert!(is_epoch_gap(&told[0]), "{told:#?}");
        let count = if *topic == "old" { 1 } else { 4 };
        let all = (0..count).map(|at| format!("publication {topic} {} full {topic}{at}", at + 1));
        assert_eq!(told[1..], all.collect::<Vec<_>>());
    }
}

#[test]
fn who_comes_back_when_the_clock_has_caught_up_is_told_no_gap_and_what_was_published_since() {
    let (before, id) = lived();
    let mut node = restarted(&before, HOUR);
    node.pass(HOUR);
    node.publish("a", "a4");
    node.settle();
    let [a, b, _] = told_since(&mut node, &id);
    assert!(!a.iter().chain(&b).any(|line| line.starts_with("gap")), "{a:#?} {b:#?}");
    assert_eq!(a.last().map(String::as_str), Some("publication a 5 full a4"));
}

/// What docs/guarantees.md excepts.
#[test]
fn what_was_published_before_the_clock_had_caught_up_is_missed_by_who_comes_later() {
    let (before, id) = lived();
    let mut node = restarted(&before, HOUR);
    node.publish("old", "old1");
    node.settle();
    node.pass(HOUR);
    let [_, _, old] = told_since(&mut node, &id);
    assert_eq!(old, Vec::<String>::new());
}

/// The same without a restart, as long as the hub's time does not go back.
#[test]
fn while_time_goes_on_however_slowly_nobody_is_told_a_gap() {
    let (mut node, id) = lived();
    node.publish("b", "b4");
    node.settle();
    let [a, b, _] = told_since(&mut node, &id);
    assert!(!a.iter().chain(&b).any(|line| line.starts_with("gap")), "{a:#?} {b:#?}");
    assert_eq!(b.last().map(String::as_str), Some("publication b 5 full b4"));
}

/// What a reader of a topic in memory is told that comes with `start`, where memory keeps the last two and the ring nothing.
fn told_by(start: Start, is_by_pattern: bool) -> Vec<String> {
    let (limits, selector) = (Limits::default(), "#");
    let policy = TopicPolicy { history_count: 2, ..TopicPolicy::default() };
    let selector = Selector::parse(selector, &limits).expect("valid");
    let mut node = Node::new(1, limits, vec![PolicyRule { selector, policy }], 1_000);
    (0..4).for_each(|number| node.publish("a", &format!("a{number}")));
    let reader = node.open(0, SINGLE, 1 << 20);
    node.subscribe(reader, if is_by_pattern { &["+"] } else { &["a"] }, start);
    node.settle();
    node.lines(reader).into_iter().filter(|line| line.contains(" a ")).collect()
}

/// Clients fill in from where a gap is: after the last that they took. One that does not reach beyond that they do not tell.
#[test]
fn who_asks_for_a_time_that_nothing_remembers_is_told_a_gap_from_the_beginning() {
    let [third, fourth] = ["publication a 3 full a2", "publication a 4 full a3"];
    for is_by_pattern in [false, true] {
        let told = told_by(Start::Since(0), is_by_pattern);
        assert_eq!(told, ["start a 0", "gap a 2 history", third, fourth], "{is_by_pattern}");
    }
}
