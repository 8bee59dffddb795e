//! What one command costs grows with its size, not with the square of it: steps are counted, not time.

use std::num::NonZeroU32;
use std::time::Duration;

use model::{
    Code, Conflation, Epoch, Limits, PolicyRule, Position, Rates, Selector, Sequence, Start,
    Subscribe, SubscribeOptions, TopicName, TopicPolicy, Unsubscribe,
};
use tidegate_hub::SessionIndex;

use crate::node::{FIRST_EPOCH, Node, SINGLE};

const ROOM: usize = 1 << 30;

/// A node of one shard, and a session of it.
fn node() -> (Node, SessionIndex) {
    // All that is to be looked at in one turn, so that all of it is counted.
    let limits = Limits { attached_per_turn: 1 << 30, ..Limits::default() };
    let mut node = Node::new(1, limits, Vec::new(), 1 << 20);
    let reader = node.open(0, SINGLE, ROOM);
    let session = node.readers[reader].as_ref().expect("open").session;
    (node, session)
}

/// Steps that `act` takes at once.
fn steps_of(node: &mut Node, act: impl FnOnce(&mut Node)) -> u64 {
    let before = node.hubs[0].work();
    act(node);
    node.hubs[0].work() - before
}

fn subscribe(
    node: &mut Node,
    session: SessionIndex,
    selectors: impl IntoIterator<Item = String>,
    positions: Vec<(TopicName, Position)>,
) {
    let selectors = selectors.into_iter().map(|text| node.selector(&text)).collect();
    let (start, name, options) = (Start::Snapshot, None, SubscribeOptions::default());
    let wanted = Subscribe { subscription: None, selectors, start, positions, name, options };
    node.hubs[0].subscribe(session, None, wanted).expect("within limits");
}

fn unsubscribe(node: &mut Node, session: SessionIndex, selectors: impl Iterator<Item = String>) {
    let selectors = selectors.map(|text| node.selector(&text)).collect();
    let unwanted = Unsubscribe::Selectors(selectors);
    node.hubs[0].unsubscribe(session, None, unwanted).expect("subscribed");
}

fn names(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|number| format!("t/{number}"))
}

/// Patterns of thirty levels, of which those that start otherwise share nothing.
fn deep(start: &'static str, count: usize) -> impl Iterator<Item = String> {
    (0..count).map(move |number| format!("{}{start}/{number}/+", "a/".repeat(27)))
}

fn patterns_beside_others(count: usize) -> u64 {
    let (mut node, session) = node();
    subscribe(&mut node, session, deep("x", count), Vec::new());
    steps_of(&mut node, |node| subscribe(node, session, deep("y", count), Vec::new()))
}

fn patterns_each_alone_beside_others(count: usize) -> u64 {
    let (mut node, session) = node();
    for pattern in deep("x", count) {
        subscribe(&mut node, session, [pattern], Vec::new());
    }
    steps_of(&mut node, |node| subscribe(node, session, deep("y", count), Vec::new()))
}

fn unsubscribe_the_same_again_and_again(count: usize) -> u64 {
    let (mut node, session) = node();
    subscribe(&mut node, session, names(count), Vec::new());
    let again = std::iter::repeat_n("t/0".to_owned(), count);
    steps_of(&mut node, |node| unsubscribe(node, session, again))
}

fn unsubscribe_everything_that_came_one_by_one(count: usize) -> u64 {
    let (mut node, session) = node();
    for name in names(count) {
        subscribe(&mut node, session, [name], Vec::new());
    }
    node.turn(0, 1 << 20);
    steps_of(&mut node, |node| unsubscribe(node, session, names(count)))
}

fn everything_and_names_of_many_topics(count: usize) -> u64 {
    let (mut node, session) = node();
    names(5 * count).for_each(|name| node.publish(&name, ""));
    let selectors = ["#".to_owned()].into_iter().chain(names(count));
    steps_of(&mut node, |node| subscribe(node, session, selectors, Vec::new()))
}

fn patterns_that_select_nothing_of_many_topics(count: usize) -> u64 {
    let (mut node, session) = node();
    names(count).for_each(|name| node.publish(&name, ""));
    let patterns = (0..count).map(|number| format!("+/x{number}"));
    steps_of(&mut node, |node| subscribe(node, session, patterns, Vec::new()))
}

fn resume_a_pattern(count: usize) -> u64 {
    let (mut node, session) = node();
    names(count).for_each(|name| node.publish(&name, ""));
    let epoch = Epoch::new("e");
    let sequence = Sequence::START.next();
    let position = |name: String| (node.topic(&name), Position { epoch: epoch.clone(), sequence });
    let positions = names(count).map(position).collect();
    steps_of(&mut node, |node| subscribe(node, session, ["t/+".to_owned()], positions))
}

fn resume_the_same_pattern_again_before_it_was_read(count: usize) -> u64 {
    let (mut node, session) = node();
    names(count).for_each(|name| node.publish(&name, ""));
    subscribe(&mut node, session, ["t/+".to_owned()], Vec::new());
    steps_of(&mut node, |node| subscribe(node, session, ["t/+".to_owned()], Vec::new()))
}

fn join_what_stands_at_different_places(count: usize) -> u64 {
    let (mut node, session) = node();
    for name in names(count) {
        subscribe(&mut node, session, [name], Vec::new());
    }
    node.settle();
    let link = node.readers[0].as_ref().expect("open").link;
    node.wires[0].connections.get_mut(&link).expect("open").room = 0;
    for name in names(count) {
        node.publish(&name, "x");
        node.turn(0, 1);
    }
    steps_of(&mut node, |node| subscribe(node, session, ["t/+".to_owned()], Vec::new()))
}

fn sessions_with_the_same_topic_go(count: usize) -> u64 {
    let (mut node, _) = node();
    node.publish("t/x", "");
    let sessions: Vec<usize> = (0..count).map(|_| node.open(0, SINGLE, ROOM)).collect();
    for (number, &reader) in sessions.iter().enumerate() {
        // Each in an audience of its own.
        let interval = Duration::from_millis(number as u64);
        let options = SubscribeOptions { interval, ..SubscribeOptions::default() };
        node.subscribe_with(reader, &["t/+"], Start::Now, options);
    }
    node.turn(0, 1 << 20);
    node.publish("t/x", "");
    steps_of(&mut node, |node| sessions.iter().for_each(|reader| node.close(*reader)))
}

#[test]
fn what_a_command_costs_grows_with_its_size() {
    const COUNT: usize = 1_000;
    type Row = (&'static str, fn(usize) -> u64);
    let rows: [Row; 10] = [
        ("patterns beside others", patterns_beside_others),
        ("patterns beside others one by one", patterns_each_alone_beside_others),
        ("unsubscribe the same", unsubscribe_the_same_again_and_again),
        ("unsubscribe everything", unsubscribe_everything_that_came_one_by_one),
        ("everything and names", everything_and_names_of_many_topics),
        ("patterns that select nothing", patterns_that_select_nothing_of_many_topics),
        ("resume a pattern", resume_a_pattern),
        ("resume it again", resume_the_same_pattern_again_before_it_was_read),
        ("join different places", join_what_stands_at_different_places),
        ("sessions go", sessions_with_the_same_topic_go),
    ];
    for (name, steps_for) in rows {
        let (once, twice) = (steps_for(COUNT), steps_for(2 * COUNT));
        assert!(
            twice as f64 <= 2.2 * once as f64,
            "{name}: {once} steps, {twice} for twice as many"
        );
        assert!(once <= 40 * COUNT as u64, "{name}: {once} steps for {COUNT}");
    }
}

#[test]
fn patterns_that_cannot_be_compared_in_few_steps_are_refused() {
    let limits = Limits { overlap_steps_max: 1_000, ..Limits::default() };
    let mut node = Node::new(1, limits, Vec::new(), 1 << 20);
    let reader = node.open(0, SINGLE, ROOM);
    let session = node.readers[reader].as_ref().expect("open").session;
    // Each with its wildcards at other levels.
    let shaped = |end: &'static str| {
        (0..100).map(move |number: usize| {
            let level = |at: usize| if number >> at & 1 == 1 { "+/" } else { "a/" };
            (0..7).map(level).collect::<String>() + end
        })
    };
    subscribe(&mut node, session, shaped("x"), Vec::new());
    let selectors = shaped("y").map(|text| node.selector(&text)).collect();
    let (start, name, options) = (Start::Snapshot, None, SubscribeOptions::default());
    let wanted =
        Subscribe { subscription: None, selectors, start, positions: Vec::new(), name, options };
    let before = node.hubs[0].work();
    let refusal = node.hubs[0].subscribe(session, None, wanted).expect_err("too many steps");
    assert!(refusal.text.contains("overlap_steps_max"), "{refusal}");
    assert!(node.hubs[0].work() - before < 2_000);
}

#[test]
fn a_session_far_behind_in_a_few_topics_is_told_everything_once() {
    const COUNT: u64 = 10_000;
    let policy = TopicPolicy { history_count: 20_000, memory_count: 20_000, ..Default::default() };
    let everything = Selector::parse("#", &Limits::default()).expect("valid");
    let rules = vec![PolicyRule { selector: everything, policy }];
    let mut node = Node::new(1, Limits::default(), rules, 1 << 20);
    let reader = node.open(0, SINGLE, ROOM);
    let options = SubscribeOptions { filter: Some("9".into()), ..SubscribeOptions::default() };
    node.subscribe_with(reader, &["t/x"], Start::Snapshot, options);
    node.settle();
    let link = node.readers[reader].as_ref().expect("open").link;
    node.wires[0].connections.get_mut(&link).expect("open").room = 0;
    for number in 0..COUNT {
        node.publish("t/x", &number.to_string());
        if number % 100 == 0 {
            node.turn(0, 100);
        }
    }
    node.settle();
    let lines = node.lines(reader);
    let told = lines.iter().filter(|line| line.starts_with("publication"));
    let numbers =
        told.map(|line| line.rsplit(' ').next().expect("a text").parse::<u64>().expect("a number"));
    assert!(numbers.eq((0..COUNT).filter(|number| number % 10 == 9)), "{} lines", lines.len());
}

#[test]
fn a_listing_that_selects_nothing_looks_at_some_names_at_a_time() {
    let (mut node, _) = node();
    names(5_000).for_each(|name| node.publish(&name, ""));
    let nothing = node.selector("t/+/x");
    let (mut after, mut pieces) = (None, 0);
    loop {
        let before = node.hubs[0].work();
        let listing = node.hubs[0].list(&nothing, after.as_ref(), 100);
        assert!(listing.topics.is_empty() && node.hubs[0].work() - before <= 1_024);
        pieces += 1;
        after = listing.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(pieces, 5_000 / 1_024 + 1);
    let found = node.hubs[0].list(&node.selector("t/+"), None, 3);
    let found: Vec<String> = found.topics.iter().map(|(name, _)| name.to_string()).collect();
    assert_eq!(found, ["t/0", "t/1", "t/10"]);
}

#[test]
fn who_is_slow_is_told_in_bounded_steps_however_many_are() {
    let (mut node, _) = node();
    let readers: Vec<usize> = (0..400).map(|_| node.open(0, SINGLE, ROOM)).collect();
    for reader in &readers {
        node.subscribe(*reader, &["t/+"], Start::Now);
    }
    node.settle();
    for reader in readers {
        let link = node.readers[reader].as_ref().expect("open").link;
        node.wires[0].connections.get_mut(&link).expect("open").room = 0;
    }
    for number in 0..5_000 {
        node.publish(&format!("t/{}", number % 10), "x");
        node.turn(0, 1 << 20);
    }
    let steps = [1, 10, 100].map(|count| {
        let mut told = 0;
        let steps = steps_of(&mut node, |node| told = node.hubs[0].slow_sessions(count).len());
        assert_eq!(told, count);
        steps
    });
    assert!(steps[0] > 4_096 && steps.iter().all(|steps| *steps <= 20_000), "{steps:?}");
}

#[test]
fn a_pattern_of_very_many_topics_is_attached_over_several_turns() {
    let limits = Limits { attached_per_turn: 1_000, ..Limits::default() };
    let mut node = Node::new(1, limits, Vec::new(), 1 << 20);
    names(10_000).for_each(|name| node.publish(&name, "x"));
    let reader = node.open(0, SINGLE, ROOM);
    let session = node.readers[reader].as_ref().expect("open").session;
    let patterns = ["t/+".to_owned()];
    let steps = steps_of(&mut node, |node| subscribe(node, session, patterns, Vec::new()));
    assert!(steps <= 1_010, "{steps} steps at once");
    let mut turns = 0;
    while node.hubs[0].awaits_topics(session) {
        let before = node.hubs[0].work();
        assert!(node.turn(0, 100), "there is more to do");
        turns += 1;
        // The last turn answers it.
        if node.hubs[0].awaits_topics(session) {
            assert!(node.hubs[0].work() - before <= 1_010);
        }
    }
    assert!(turns >= 9, "{turns} turns");
    node.publish("t/5", "y");
    node.settle();
    let lines = node.lines(reader);
    let told = lines.iter().filter(|line| line.starts_with("publication"));
    assert_eq!(told.count(), 10_001);
}

#[test]
fn an_audience_that_ends_while_it_is_attached_leaves_nothing_behind() {
    let limits = Limits { attached_per_turn: 10, ..Limits::default() };
    let mut node = Node::new(1, limits, Vec::new(), 1 << 20);
    names(100).for_each(|name| node.publish(&name, "x"));
    for _ in 0..3 {
        let reader = node.open(0, SINGLE, ROOM);
        node.subscribe(reader, &["t/+"], Start::Snapshot);
        node.turn(0, 100);
        node.close(reader);
    }
    node.publish("t/5", "y");
    node.settle();
    let counters = node.hubs[0].counters();
    assert_eq!((counters.audiences, counters.subscriptions, counters.deliveries), (0, 0, 0));
}

#[test]
fn who_stands_at_different_places_in_very_many_topics_has_to_catch_up_first() {
    const NAMES_MAX: usize = 1_000;
    let join = |count: usize| {
        let limits = Limits { merged_names_max: NAMES_MAX, ..Limits::default() };
        let mut node = Node::new(1, limits, Vec::new(), 1 << 20);
        for start in ["a", "b"] {
            (0..count).for_each(|number| node.publish(&format!("{start}/{number}"), "x"));
        }
        let reader = node.open(0, SINGLE, ROOM);
        node.subscribe(reader, &["a/+"], Start::Now);
        node.settle();
        full(&mut node, reader);
        node.publish("a/1", "y");
        node.turn(0, 100);
        node.subscribe(reader, &["b/+"], Start::Now);
        node.publish("b/1", "y");
        node.turn(0, 100);
        let session = node.readers[reader].as_ref().expect("open").session;
        let ask = |node: &mut Node| {
            let (selectors, options) = (vec![node.selector("#")], SubscribeOptions::default());
            let (start, positions) = (Start::Now, Vec::new());
            let wanted =
                Subscribe { subscription: None, selectors, start, positions, name: None, options };
            let before = node.hubs[0].work();
            let asked = node.hubs[0].subscribe(session, None, wanted);
            (asked.map_err(|refusal| refusal.code), node.hubs[0].work() - before)
        };
        let (asked, steps) = ask(&mut node);
        // To be let in it is also attached to all topics, and told where each of them begins.
        let names = if asked.is_ok() { 16 * NAMES_MAX } else { NAMES_MAX + 10 };
        assert!(steps <= names as u64, "{asked:?}: {steps} steps at once");
        if asked.is_err() {
            node.give_room(reader, ROOM);
            node.settle();
            assert_eq!(ask(&mut node).0, Ok(()), "it has caught up");
        }
        asked
    };
    assert_eq!(join(NAMES_MAX), Ok(()));
    assert_eq!(join(4 * NAMES_MAX), Err(Code::MustCatchUp));
}

/// Steps of a `subscribe` that joins so many patterns, at each of which the session stands at another place.
fn joined(patterns: usize) -> u64 {
    const NAMES: usize = 1_000;
    let mut node = Node::new(1, Limits::default(), Vec::new(), 1 << 20);
    (0..NAMES).for_each(|number| node.publish(&format!("{number}/{}", number % 100), "x"));
    let reader = node.open(0, SINGLE, ROOM);
    node.settle();
    full(&mut node, reader);
    for number in 0..patterns {
        node.subscribe(reader, &[&format!("+/{number}")], Start::Now);
        node.publish(&format!("{number}/{number}"), "y");
        node.turn(0, 100);
    }
    let session = node.readers[reader].as_ref().expect("open").session;
    let (selectors, options) = (vec![node.selector("#")], SubscribeOptions::default());
    let (start, positions) = (Start::Now, Vec::new());
    let wanted = Subscribe { subscription: None, selectors, start, positions, name: None, options };
    let before = node.hubs[0].work();
    node.hubs[0].subscribe(session, None, wanted).expect("few enough names");
    node.hubs[0].work() - before
}

#[test]
fn joining_many_patterns_looks_at_the_names_once() {
    let (some, many) = (joined(50), joined(100));
    assert!(many < some * 3 / 2, "{some} steps for 50 patterns, {many} for 100");
}

/// Each message for another shard is a step; the node of these tests holds that in every history.
#[test]
fn there_is_no_more_mail_than_a_command_may_cause() {
    const SHARDS: usize = 4;
    let limits = Limits::default();
    let count = limits.subscriptions_per_session_max;
    let mut node = Node::new(SHARDS, limits, Vec::new(), 1 << 20);
    let reader = node.open(0, SINGLE, 1 << 30);
    let texts: Vec<String> = (0..count).map(|number| format!("{number}/+")).collect();
    let selectors: Vec<&str> = texts.iter().map(String::as_str).collect();
    node.subscribe(reader, &selectors, Start::Now);
    node.settle();
    let most = (count * (SHARDS - 1)) as u64;
    assert_eq!(node.hubs[0].counters().mail_peak, most, "a message for each pattern and shard");
    node.close(reader);
    node.settle();
    let counters = node.hubs[0].counters();
    assert_eq!((counters.mail, counters.mail_peak), (0, most));
    // Who asks is answered with a message: the others have no more to send.
    assert!(node.hubs.iter().all(|hub| hub.counters().mail_peak <= most));
}

/// How many names a shard looks at in one turn, in the tests of what takes several.
const PER_TURN: usize = 1_000;

/// Steps that something takes on one shard, and how many of them in one turn at the most.
#[derive(Debug, Default)]
struct Cost {
    all: u64,
    most: u64,
    /// Positions that the command says.
    said: u64,
}

/// What `act` costs a shard, with the turns after it until nothing is left to do.
fn cost_of(node: &mut Node, shard: usize, act: impl FnOnce(&mut Node)) -> Cost {
    let mut cost = Cost::default();
    let note = |cost: &mut Cost, steps: u64| {
        cost.all += steps;
        cost.most = cost.most.max(steps);
    };
    let before = node.hubs[shard].work();
    act(node);
    note(&mut cost, node.hubs[shard].work() - before);
    for _ in 0..10_000 {
        let (mut is_busy, before) = (false, node.hubs[shard].work());
        for other in 0..node.hubs.len() {
            is_busy |= node.turn(other, 256);
        }
        let steps = node.hubs[shard].work() - before;
        note(&mut cost, steps);
        if !is_busy && !node.has_mail() {
            return cost;
        }
    }
    panic!("it does not come to an end");
}

/// A node with so many topics, and a reader of it on shard 0.
fn node_of_topics(shards: usize, count: usize) -> (Node, usize) {
    let limits = Limits { attached_per_turn: PER_TURN, ..Limits::default() };
    let mut node = Node::new(shards, limits, Vec::new(), 1 << 20);
    names(count).for_each(|name| node.publish(&name, "x"));
    node.settle();
    let reader = node.open(0, SINGLE, ROOM);
    (node, reader)
}

fn a_pattern_ends(count: usize) -> Cost {
    let (mut node, reader) = node_of_topics(1, count);
    node.subscribe(reader, &["t/+"], Start::Now);
    node.settle();
    cost_of(&mut node, 0, |node| node.close(reader))
}

fn a_pattern_is_told_to_another_shard(count: usize) -> Cost {
    let (mut node, _) = node_of_topics(2, count);
    let reader = node.open(1, SINGLE, ROOM);
    cost_of(&mut node, 0, |node| node.subscribe(reader, &["t/+"], Start::Now))
}

fn a_pattern_begins(count: usize) -> Cost {
    let (mut node, reader) = node_of_topics(1, count);
    cost_of(&mut node, 0, |node| node.subscribe(reader, &["t/+"], Start::Snapshot))
}

fn a_pattern_is_resumed(count: usize) -> Cost {
    let (mut node, reader) = node_of_topics(1, count);
    let topics: Vec<String> = names(count).collect();
    let positions = topics.iter().map(|name| (name.as_str(), 1)).collect();
    let options = SubscribeOptions::default();
    let cost = cost_of(&mut node, 0, |node| {
        node.subscribe_from(reader, &["t/+"], Start::Now, positions, options);
    });
    Cost { said: count as u64, ..cost }
}

fn a_pattern_is_read_in_order(count: usize) -> Cost {
    let (mut node, reader) = node_of_topics(1, count);
    let last_id = "1000 t/5 1 1000 start";
    cost_of(&mut node, 0, |node| {
        node.subscribe_resumably(reader, &["t/+"], Start::All, Some((last_id, FIRST_EPOCH)));
    })
}

fn a_pattern_begins_again_before_it_was_read(count: usize) -> Cost {
    let (mut node, reader) = node_of_topics(1, count);
    full(&mut node, reader);
    node.subscribe(reader, &["t/+"], Start::Snapshot);
    while node.turn(0, 1) {}
    cost_of(&mut node, 0, |node| node.subscribe(reader, &["t/+"], Start::Snapshot))
}

fn a_pattern_begins_beside_what_is_read(count: usize) -> Cost {
    let (mut node, reader) = node_of_topics(1, count);
    node.subscribe(reader, &["t/+"], Start::Now);
    node.settle();
    full(&mut node, reader);
    node.publish("t/1", "x");
    while node.turn(0, 1) {}
    cost_of(&mut node, 0, |node| node.subscribe(reader, &["#"], Start::Now))
}

fn a_part_of_an_audience_ends(count: usize) -> Cost {
    let (mut node, reader) = node_of_topics(1, count);
    node.subscribe(reader, &["t/+", "#"], Start::Now);
    node.settle();
    cost_of(&mut node, 0, |node| node.unsubscribe(reader, "#"))
}

fn a_session_is_lapped(count: usize) -> Cost {
    let limits =
        Limits { attached_per_turn: PER_TURN, recent_deliveries_max: 4, ..Limits::default() };
    let mut node = Node::new(1, limits, Vec::new(), 1 << 20);
    names(count).for_each(|name| node.publish(&name, "x"));
    let reader = node.open(0, SINGLE, ROOM);
    node.subscribe(reader, &["t/+"], Start::Now);
    node.settle();
    full(&mut node, reader);
    node.publish("t/0", "y");
    while node.turn(0, 1) {}
    names(count).for_each(|name| node.publish(&name, "y"));
    while node.turn(0, 1) {}
    cost_of(&mut node, 0, |node| node.give_room(reader, ROOM))
}

fn a_session_is_ahead(count: usize) -> Cost {
    let limits = Limits { attached_per_turn: PER_TURN, ..Limits::default() };
    let mut node = Node::new(2, limits, Vec::new(), 1 << 20);
    names(count).for_each(|name| node.publish(&name, "x"));
    node.settle();
    let reader = node.open(0, SINGLE, ROOM);
    let topics: Vec<String> = names(count).collect();
    let positions = topics.iter().map(|name| (name.as_str(), 7)).collect();
    node.subscribe_from(reader, &["t/+"], Start::Now, positions, SubscribeOptions::default());
    node.settle();
    let cost = cost_of(&mut node, 0, |node| (0..3).for_each(|_| node.tick()));
    node.settle();
    let gaps = node.lines(reader).iter().filter(|line| line.starts_with("gap")).count();
    assert_eq!(gaps, count, "nobody was ever told these positions");
    cost
}

/// Lets a reader's connection take nothing more.
fn full(node: &mut Node, reader: usize) {
    let link = node.readers[reader].as_ref().expect("open").link;
    node.wires[0].connections.get_mut(&link).expect("open").room = 0;
}

#[test]
fn what_concerns_very_many_topics_takes_many_turns() {
    const COUNT: usize = 10_000;
    type Row = (&'static str, fn(usize) -> Cost);
    let rows: [Row; 10] = [
        ("a pattern begins", a_pattern_begins),
        ("a pattern is resumed", a_pattern_is_resumed),
        ("a pattern is read in order", a_pattern_is_read_in_order),
        ("a pattern begins again before it was read", a_pattern_begins_again_before_it_was_read),
        ("a pattern begins beside what is read", a_pattern_begins_beside_what_is_read),
        ("a part of a pattern's audience ends", a_part_of_an_audience_ends),
        ("a session is lapped", a_session_is_lapped),
        ("a pattern ends", a_pattern_ends),
        ("a session is ahead", a_session_is_ahead),
        ("a pattern is told to another shard", a_pattern_is_told_to_another_shard),
    ];
    let mut broken = Vec::new();
    for (name, cost_for) in rows {
        let (once, twice) = (cost_for(COUNT), cost_for(2 * COUNT));
        println!("{name}: {once:?}, {twice:?}");
        // The names that are looked at, what one session is told in one go, and what a command says itself.
        let is_bounded = |cost: &Cost| cost.most <= 6 * PER_TURN as u64 + cost.said;
        let is_bounded = is_bounded(&once) && is_bounded(&twice);
        if !is_bounded || twice.all as f64 > 2.2 * once.all as f64 {
            broken.push(format!("{name}: {once:?}, {twice:?} for twice as many"));
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn operations_beyond_the_limit_are_refused_until_others_are_done() {
    const PENDING_MAX: usize = 3;
    let limits =
        Limits { attached_per_turn: 16, operations_pending_max: PENDING_MAX, ..Limits::default() };
    let mut node = Node::new(1, limits, Vec::new(), 1 << 20);
    names(1_000).for_each(|name| node.publish(&name, "x"));
    let ask = |node: &mut Node, reader: usize, selector: &str| {
        let session = node.readers[reader].as_ref().expect("open").session;
        let interval = Duration::from_millis(reader as u64);
        let options = SubscribeOptions { interval, ..SubscribeOptions::default() };
        let (selectors, start) = (vec![node.selector(selector)], Start::Now);
        let wanted = Subscribe {
            subscription: None,
            selectors,
            start,
            positions: Vec::new(),
            name: None,
            options,
        };
        node.hubs[0].subscribe(session, None, wanted)
    };
    let readers: Vec<usize> = (0..6).map(|_| node.open(0, SINGLE, ROOM)).collect();
    for (count, reader) in readers.iter().enumerate() {
        let asked = ask(&mut node, *reader, "t/+");
        assert_eq!(asked.is_err(), count >= PENDING_MAX, "{count}: {asked:?}");
        if let Err(refusal) = asked {
            assert_eq!(refusal.code, Code::TooManyOperations);
            assert!(refusal.text.contains("operations_pending_max (3)"), "{refusal}");
        }
        assert_eq!(node.hubs[0].counters().operations_pending as usize, PENDING_MAX.min(count + 1));
    }
    assert_eq!(ask(&mut node, readers[5], "t/1"), Ok(()), "that goes through no topics");
    node.settle();
    assert_eq!(node.hubs[0].counters().operations_pending, 0);
    assert_eq!(ask(&mut node, readers[4], "t/+"), Ok(()));
    node.settle();
    node.publish("t/7", "y");
    node.settle();
    let told = |reader: usize| node.lines(reader).iter().any(|line| line.ends_with(" y"));
    let told: Vec<bool> = readers.iter().map(|reader| told(*reader)).collect();
    assert_eq!(told, [true, true, true, false, true, false]);
}

/// The most steps of a turn in which so many readers of a selector catch up with 20,000 publications of which their filter
/// accepts few.
fn steps_of_a_turn_with(readers: usize, selector: &str) -> u64 {
    let policy = TopicPolicy { history_count: 30_000, memory_count: 30_000, ..Default::default() };
    let everything = Selector::parse("#", &Limits::default()).expect("valid");
    let rules = vec![PolicyRule { selector: everything, policy }];
    let mut node = Node::new(1, Limits::default(), rules, 1 << 20);
    for _ in 0..readers {
        let reader = node.open(0, SINGLE, ROOM);
        let options =
            SubscribeOptions { filter: Some("9999".into()), ..SubscribeOptions::default() };
        node.subscribe_with(reader, &[selector], Start::Snapshot, options);
        node.settle();
        full(&mut node, reader);
    }
    for number in 0..20_000 {
        node.publish("t/x", &number.to_string());
        node.turn(0, 100);
    }
    (0..readers).for_each(|reader| node.give_room(reader, ROOM));
    let mut most = 0;
    for _ in 0..10_000 {
        let before = node.hubs[0].work();
        let has_more = node.turn(0, 256);
        most = most.max(node.hubs[0].work() - before);
        if !has_more {
            break;
        }
    }
    for reader in 0..readers {
        let told = node.lines(reader).iter().filter(|line| line.starts_with("publication")).count();
        assert_eq!(told, 2, "19999 and 9999");
    }
    most
}

#[test]
fn readers_that_catch_up_share_the_steps_of_a_turn() {
    for selector in ["t/+", "t/x"] {
        let most = [1, 2, 20, 40].map(|readers| steps_of_a_turn_with(readers, selector));
        assert!(
            most.iter().all(|steps| *steps <= 50_000),
            "{selector}: {most:?} steps in one turn"
        );
    }
}

/// A session that is served may begin to look for its topics. With nobody else at work, nothing but its own operation gets it on.
#[test]
fn who_is_held_up_by_its_rate_and_looks_for_its_topics_goes_on_by_itself() {
    let limits = Limits { attached_per_turn: 1, recent_deliveries_max: 1_000, ..Limits::default() };
    let selector = Selector::parse("#", &limits).expect("valid");
    let policy = TopicPolicy {
        conflation: Some(Conflation::Off),
        history_count: 1,
        ..TopicPolicy::default()
    };
    let mut node = Node::new(1, limits, vec![PolicyRule { selector, policy }], 100);
    let reader = node.open(0, SINGLE, ROOM);
    node.throttle(reader, Rates { messages: NonZeroU32::new(1), bytes: None });
    (0..30).for_each(|number| node.publish(&format!("a/{number}"), "x"));
    node.subscribe(reader, &["a/#"], Start::Now);
    node.settle();
    (0..60).for_each(|_| node.publish("a/0", "x"));
    node.settle();
    let lines = node.lines(reader);
    let told = lines.iter().filter(|line| line.starts_with("publication a/0 ")).count();
    assert_eq!(told, 60, "{lines:#?}");
}
