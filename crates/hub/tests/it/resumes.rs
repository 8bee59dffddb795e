//! Readers that keep nothing but the last place that they were told: whatever is cut when, they get everything at
//! least once.

use std::collections::BTreeSet;
use std::time::Duration;

use model::{Limits, PolicyRule, Selector, Start, TopicPolicy};
use proptest::prelude::*;

use crate::node::{Node, SINGLE};

/// `held/` has an interval, `late/` is told long after its time.
const TOPICS: [&str; 6] = ["a", "b", "b/c", "held/x", "late/y", "z"];
const READINGS: [&[&str]; 4] = [&["a", "z"], &["#"], &["+", "held/x"], &["late/y", "b/#", "a"]];
const LATE_MS: u64 = 7_000;

#[derive(Clone, Debug)]
enum Step {
    Publish { topic: usize },
    Pass { ms: u64 },
    Turn { shard: usize, budget: usize },
    Room { bytes: usize },
    Cut { shard: usize },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..TOPICS.len()).prop_map(|topic| Step::Publish { topic }),
        3 => prop_oneof![0..10u64, 0..6_000u64].prop_map(|ms| Step::Pass { ms }),
        8 => (0..3usize, 1..6usize).prop_map(|(shard, budget)| Step::Turn { shard, budget }),
        10 => (0..400usize).prop_map(|bytes| Step::Room { bytes }),
        4 => (0..3usize).prop_map(|shard| Step::Cut { shard }),
    ]
}

/// A reader over all its connections.
struct Reader {
    reading: &'static [&'static str],
    start: Start,
    /// Its connection.
    current: usize,
    last_id: Option<String>,
    had: BTreeSet<(String, String)>,
    /// How many things had been published when it was told its first place.
    since: Option<usize>,
}

impl Reader {
    fn connect(&mut self, node: &mut Node, shard: usize, room: usize) {
        self.current = node.open(shard, SINGLE, room);
        let (start, last_id) = (self.start.clone(), self.last_id.as_deref());
        node.subscribe_resumably(self.current, self.reading, start, last_id);
    }

    /// Takes in what came on its connection.
    fn take(&mut self, node: &Node) {
        for line in node.lines(self.current) {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["publication", topic, sequence, ..] => {
                    self.had.insert((topic.to_owned(), sequence.to_owned()));
                }
                ["id", ..] => {
                    self.last_id = Some(line[3..].to_owned());
                    self.since.get_or_insert(node.published.len());
                }
                ["gap", ..] => panic!("a gap, and nothing is gone: {line}"),
                _ => {}
            }
        }
    }
}

fn check(shards: usize, reading: usize, start: &Start, steps: &[Step]) {
    let held = TopicPolicy { interval: Duration::from_secs(9), ..keeps_all() };
    let rule = |selector: &str, policy: TopicPolicy| PolicyRule {
        selector: Selector::parse(selector, &Limits::default()).expect("valid"),
        policy,
    };
    let rules = vec![rule("held/#", held), rule("#", keeps_all())];
    let limits = Limits { recent_deliveries_max: 8, attached_per_turn: 1, ..Limits::default() };
    let mut node = Node::new(shards, limits, rules, 1_000);
    let (reading, start) = (READINGS[reading], start.clone());
    let mut reader =
        Reader { reading, start, current: 0, last_id: None, had: BTreeSet::new(), since: None };
    node.pass(Duration::from_secs(100));
    for round in 0..3 {
        TOPICS.iter().for_each(|topic| publish(&mut node, topic));
        pass(&mut node, 4_000 * round);
    }
    let begun = node.published.len();
    reader.connect(&mut node, 0, 100);
    for step in steps {
        match step {
            Step::Publish { topic } => publish(&mut node, TOPICS[*topic]),
            Step::Pass { ms } => pass(&mut node, *ms),
            Step::Turn { shard, budget } => drop(node.turn(shard % shards, *budget)),
            Step::Room { bytes } => node.give_room(reader.current, *bytes),
            Step::Cut { shard } => {
                reader.take(&node);
                node.close(reader.current);
                reader.connect(&mut node, shard % shards, 100);
            }
        }
        reader.take(&node);
    }
    node.settle();
    reader.take(&node);
    let from = if reader.start == Start::All { 0 } else { reader.since.unwrap_or(begun) };
    for (topic, sequence, _) in &node.published[from..] {
        let mut selectors = reader.reading.iter().map(|text| node.selector(text));
        let wanted = (topic.as_str().to_owned(), sequence.to_string());
        let is_selected = selectors.any(|selector| selector.matches(topic.as_str()));
        assert!(
            !is_selected || reader.had.contains(&wanted),
            "{wanted:?} is missing of {:?}",
            reader.had
        );
    }
}

fn keeps_all() -> TopicPolicy {
    TopicPolicy { history_count: 10_000, ..TopicPolicy::default() }
}

fn publish(node: &mut Node, topic: &str) {
    let late_ms = if topic.starts_with("late/") { LATE_MS } else { 0 };
    node.publish_late(topic, "text", late_ms);
}

/// Lets time pass; what shards tell each other takes less than a second.
fn pass(node: &mut Node, ms: u64) {
    for _ in 0..2 {
        for shard in 0..node.hubs.len() {
            node.turn(shard, 1);
        }
    }
    node.pass(Duration::from_millis(ms));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn whoever_goes_on_from_the_last_place_told_loses_nothing(
        shards in 1..4usize,
        reading in 0..READINGS.len(),
        start in prop_oneof![Just(Start::All), Just(Start::Snapshot), Just(Start::Now), Just(Start::Last(2))],
        steps in prop::collection::vec(step(), 1..120),
    ) {
        check(shards, reading, &start, &steps);
    }
}
