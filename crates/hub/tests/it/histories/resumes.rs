//! Readers that keep nothing but the last place that they were told: whatever is cut when, they get everything at
//! least once.

use std::collections::BTreeSet;
use std::time::Duration;

use model::{AckLevel, Limits, PolicyRule, Selector, Start, TopicPolicy};

use super::choices::Choices;
use crate::node::{FIRST_EPOCH, Node, Numbering, SINGLE};

/// `held/` has an interval, `late/` is told long after its time.
const TOPICS: [&str; 6] = ["a", "b", "b/c", "held/x", "late/y", "z"];
const READINGS: [&[&str]; 4] = [&["a", "z"], &["#"], &["+", "held/x"], &["late/y", "b/#", "a"]];
const LATE_MS: u64 = 7_000;

enum Step {
    Publish { topic: usize },
    Pass { ms: u64 },
    Turn { shard: usize, budget: usize },
    Room { bytes: usize },
    Cut { shard: usize },
}

/// What a word stands for.
fn step(word: u64) -> Step {
    let choices = &mut Choices::of(word);
    match choices.weighted(&[12, 3, 8, 10, 4]) {
        0 => Step::Publish { topic: choices.below(TOPICS.len()) },
        1 if choices.is(128) => Step::Pass { ms: choices.below(10) as u64 },
        1 => Step::Pass { ms: 24 * u64::from(choices.byte()) },
        2 => Step::Turn { shard: choices.below(3), budget: 1 + choices.below(5) },
        3 => Step::Room { bytes: 2 * choices.below(200) },
        _ => Step::Cut { shard: choices.below(3) },
    }
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
    /// The epoch that topics were of when it was told its last place.
    epoch: String,
}

impl Reader {
    fn connect(&mut self, node: &mut Node, shard: usize, room: usize) {
        self.current = node.open(shard, SINGLE, room);
        let (start, last_id) = (self.start.clone(), self.last_id.as_deref());
        let last_id = last_id.map(|id| (id, self.epoch.as_str()));
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
                    let id = Some(line[3..].to_owned());
                    if self.last_id != id {
                        (self.last_id, self.epoch) = (id, node.epoch().to_owned());
                    }
                    self.since.get_or_insert(node.published.len());
                }
                // What it reads by time goes on in another epoch, or begins anew with all that is kept.
                ["gap", .., "epoch"] if node.epoch() != FIRST_EPOCH => {}
                ["gap", ..] => panic!("a gap, and nothing is gone: {line}"),
                _ => {}
            }
        }
    }
}

/// Runs what words stand for: the first one the node and its reader, each other one a step. Whoever goes on from the last place told
/// loses nothing.
pub fn run(words: &[u64]) {
    run_with(words, 8, &keeps_all(), None);
}

/// The same on a disk, of which memory holds little, and another epoch begins on the way.
pub fn run_across_an_epoch(words: &[u64]) {
    let policy = TopicPolicy { ack: AckLevel::Disk, memory_count: 2, ..keeps_all() };
    let begins_at = words.first().map(|word| (*word >> 32) as usize % words.len());
    // Who falls off the ring of a topic on disk is closed: here nobody does.
    run_with(words, 1_000, &policy, begins_at);
}

fn run_with(words: &[u64], ring: usize, policy: &TopicPolicy, epoch_begins_at: Option<usize>) {
    for numbering in Numbering::BOTH {
        run_numbered(words, ring, policy, epoch_begins_at, numbering);
    }
}

fn run_numbered(
    words: &[u64],
    ring: usize,
    policy: &TopicPolicy,
    epoch_begins_at: Option<usize>,
    numbering: Numbering,
) {
    const STARTS: [Start; 4] = [Start::All, Start::Snapshot, Start::Now, Start::Last(2)];
    let Some((setting, words)) = words.split_first() else { return };
    let choices = &mut Choices::of(*setting);
    let (shards, reading) = (1 + choices.below(3), *choices.one_of(&READINGS));
    let start = choices.one_of(&STARTS).clone();
    let held = TopicPolicy { interval: Duration::from_secs(9), ..policy.clone() };
    let rule = |selector: &str, policy: TopicPolicy| PolicyRule {
        selector: Selector::parse(selector, &Limits::default()).expect("valid"),
        policy,
    };
    let rules = vec![rule("held/#", held), rule("#", policy.clone())];
    let limits = Limits { recent_deliveries_max: ring, attached_per_turn: 1, ..Limits::default() };
    let mut node = Node::new(shards, limits, rules, 1_000).with_numbering(numbering);
    let (had, epoch) = (BTreeSet::new(), FIRST_EPOCH.to_owned());
    let mut reader = Reader { reading, start, current: 0, last_id: None, had, since: None, epoch };
    node.pass(Duration::from_secs(100));
    for round in 0..3 {
        TOPICS.iter().for_each(|topic| publish(&mut node, topic));
        pass(&mut node, 4_000 * round);
    }
    let begun = node.published.len();
    reader.connect(&mut node, 0, 100);
    for (at, word) in words.iter().enumerate() {
        if Some(at) == epoch_begins_at {
            node.begin_epoch();
        }
        match step(*word) {
            Step::Publish { topic } => publish(&mut node, TOPICS[topic]),
            Step::Pass { ms } => pass(&mut node, ms),
            Step::Turn { shard, budget } => {
                node.answer_pages(shard % shards, 1);
                node.turn(shard % shards, budget);
            }
            Step::Room { bytes } => node.give_room(reader.current, bytes),
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
