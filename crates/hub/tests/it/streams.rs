//! Every session sees what a private queue per session would have given it.

use std::collections::HashMap;

use model::{
    Conflation, Limits, PolicyRule, Selector, Sequence, Start, SubscribeOptions, TopicPolicy,
};
use proptest::prelude::*;

use crate::node::{BATCHED, Node, SINGLE};

const TOPICS: [&str; 5] = ["a", "a/b", "a/c", "b/b", "b/c/d"];
const SELECTORS: [&str; 9] = ["a", "a/b", "a/c", "b/b", "b/c/d", "a/+", "a/#", "+/b", "#"];

#[derive(Clone, Debug)]
enum Step {
    Open { shard: usize, is_batched: bool },
    Close { reader: usize },
    Subscribe { reader: usize, selectors: Vec<usize>, start: u8 },
    Unsubscribe { reader: usize, selector: usize },
    Publish { topic: usize, bytes: usize },
    Turn { shard: usize, budget: usize },
    Room { reader: usize, bytes: usize },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => (0..4usize, any::<bool>())
            .prop_map(|(shard, is_batched)| Step::Open { shard, is_batched }),
        1 => (0..8usize).prop_map(|reader| Step::Close { reader }),
        4 => (0..8usize, prop::collection::vec(0..SELECTORS.len(), 1..4), 0..5u8)
            .prop_map(|(reader, selectors, start)| Step::Subscribe { reader, selectors, start }),
        1 => (0..8usize, 0..SELECTORS.len())
            .prop_map(|(reader, selector)| Step::Unsubscribe { reader, selector }),
        12 => (0..TOPICS.len(), 0..60usize)
            .prop_map(|(topic, bytes)| Step::Publish { topic, bytes }),
        10 => (0..4usize, 1..6usize).prop_map(|(shard, budget)| Step::Turn { shard, budget }),
        6 => (0..8usize, 0..200usize).prop_map(|(reader, bytes)| Step::Room { reader, bytes }),
    ]
}

struct Setting {
    shards: usize,
    limits: Limits,
    policy: TopicPolicy,
    mail: usize,
    may_have_gaps: bool,
}

/// Runs `steps`, then checks every reader's stream and that it ends at every topic's head.
fn check_steps(setting: &Setting, steps: &[Step]) {
    let everything = Selector::parse("#", &setting.limits).expect("valid");
    let rules = vec![PolicyRule { selector: everything, policy: setting.policy.clone() }];
    let mut node = Node::new(setting.shards, setting.limits.clone(), rules, setting.mail);
    for reader in 0..3 {
        node.open(reader % setting.shards, if reader == 1 { BATCHED } else { SINGLE }, 500);
    }
    for step in steps {
        run_step(&mut node, setting, step);
    }
    node.settle();
    for reader in 0..node.readers.len() {
        check_reader(&node, setting, reader);
    }
}

fn run_step(node: &mut Node, setting: &Setting, step: &Step) {
    let count = node.readers.len();
    match step {
        Step::Open { shard, is_batched } => {
            let encoding = if *is_batched { BATCHED } else { SINGLE };
            node.open(shard % setting.shards, encoding, 300);
        }
        Step::Close { reader } => node.close(reader % count),
        Step::Subscribe { reader, selectors, start } => {
            let start = match start {
                0 | 1 => Start::Snapshot,
                2 => Start::Now,
                3 => Start::All,
                _ => Start::Last(3),
            };
            let selectors: Vec<&str> = selectors.iter().map(|&index| SELECTORS[index]).collect();
            node.subscribe(reader % count, &selectors, start);
        }
        Step::Unsubscribe { reader, selector } => {
            node.unsubscribe(reader % count, SELECTORS[*selector]);
        }
        Step::Publish { topic, bytes } => node.publish(TOPICS[*topic], &"x".repeat(*bytes)),
        Step::Turn { shard, budget } => {
            node.turn(shard % setting.shards, *budget);
        }
        Step::Room { reader, bytes } => node.give_room(reader % count, *bytes),
    }
}

/// Follows one reader's stream: no hole without `gap`, no publication twice, all of it to the end.
fn check_reader(node: &Node, setting: &Setting, reader: usize) {
    let Some(known) = &node.readers[reader] else { return };
    let lines = node.lines(reader);
    let mut last: HashMap<String, u64> = HashMap::new();
    let mut owed_gap: HashMap<String, u64> = HashMap::new();
    for (at, line) in lines.iter().enumerate() {
        let words: Vec<&str> = line.split(' ').collect();
        let context = || format!("reader {reader}, line {at} `{line}` of {lines:#?}");
        match words[..] {
            ["start", topic, start] => {
                let start: u64 = start.parse().expect("a number");
                if setting.may_have_gaps && last.get(topic).is_some_and(|last| start > *last) {
                    owed_gap.insert(topic.to_owned(), start);
                }
                last.insert(topic.to_owned(), start);
            }
            ["gap", topic, to] => {
                assert!(setting.may_have_gaps, "a gap: {}", context());
                let to: u64 = to.parse().expect("a number");
                assert!(to >= last[topic], "a gap backwards: {}", context());
                owed_gap.remove(topic);
                last.insert(topic.to_owned(), to);
            }
            ["publication", topic, sequence, form, ..] => {
                let sequence: u64 = sequence.parse().expect("a number");
                let before = *last.get(topic).unwrap_or_else(|| panic!("unheard: {}", context()));
                assert_eq!(sequence, before + 1, "{}", context());
                assert!(form == "full" || form == "short", "{}", context());
                last.insert(topic.to_owned(), sequence);
            }
            ["subscribed"] | ["unsubscribed"] => {}
            _ => panic!("unexpected: {}", context()),
        }
    }
    for (topic, head) in &node.heads {
        let is_read = known.selectors.iter().any(|selector| selector.matches(topic.as_str()));
        if is_read && *head > Sequence::START {
            let last = last.get(topic.as_str()).copied();
            assert_eq!(last, Some(head.get()), "reader {reader} of {topic}: {lines:#?}");
        }
    }
}

fn roomy(shards: usize) -> Setting {
    Setting {
        shards,
        limits: Limits::default(),
        policy: TopicPolicy { history_count: 10_000, ..TopicPolicy::default() },
        mail: 10_000,
        may_have_gaps: false,
    }
}

fn cramped(shards: usize) -> Setting {
    Setting {
        shards,
        limits: Limits { recent_deliveries_max: 4, batch_bytes_max: 100, ..Limits::default() },
        policy: TopicPolicy { history_count: 3, ..TopicPolicy::default() },
        mail: 3,
        may_have_gaps: true,
    }
}

fn small_ring(shards: usize) -> Setting {
    Setting { limits: cramped(1).limits, ..roomy(shards) }
}

/// 20,000 cases of each property, or as many as PROPTEST_CASES says.
fn many_cases() -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok());
    ProptestConfig { cases: asked.unwrap_or(20_000), ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(many_cases())]

    #[test]
    fn one_shard_loses_nothing(steps in prop::collection::vec(step(), 1..120)) {
        check_steps(&roomy(1), &steps);
    }

    #[test]
    fn one_shard_reads_on_from_history(steps in prop::collection::vec(step(), 1..120)) {
        check_steps(&small_ring(1), &steps);
    }

    #[test]
    fn one_shard_announces_every_gap(steps in prop::collection::vec(step(), 1..120)) {
        check_steps(&cramped(1), &steps);
    }

    #[test]
    fn three_shards_lose_nothing(steps in prop::collection::vec(step(), 1..120)) {
        check_steps(&roomy(3), &steps);
    }

    #[test]
    fn three_shards_make_up_for_full_mailboxes(steps in prop::collection::vec(step(), 1..120)) {
        check_steps(&Setting { mail: 2, ..roomy(3) }, &steps);
    }

    #[test]
    fn three_shards_announce_every_gap(steps in prop::collection::vec(step(), 1..120)) {
        check_steps(&cramped(3), &steps);
    }
}

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
