//! Who may be sent less than there is in a second: everything that changes equally often is told equally often.

use std::num::NonZeroU32;
use std::time::Duration;

use model::{
    Conflation, Limits, PolicyRule, Rates, Selector, Start, SubscribeOptions, TopicPolicy,
};

use crate::node::{Node, SINGLE};

const ROOM: usize = 1 << 30;

/// How often each of 50 symbols that change equally often is told to a session that may be sent 20 in a second, in half a
/// minute: the least and the most. `is_visited` if other sessions begin to read them meanwhile.
fn told_at_a_rate(conflation: Conflation, is_visited: bool) -> (usize, usize) {
    let mut node = Node::new(1, Limits::default(), Vec::new(), 1 << 20);
    let reader = node.open(0, SINGLE, ROOM);
    let options = SubscribeOptions { conflation, ..SubscribeOptions::default() };
    let symbols: Vec<String> = (0..50).map(|number| format!("s/{number}")).collect();
    symbols.iter().for_each(|symbol| node.publish(symbol, "0"));
    node.subscribe_with(reader, &["s/+"], Start::Snapshot, options);
    node.settle();
    let mut seen = node.lines(reader).len();
    let snapshot = seen;
    node.throttle(reader, Rates { messages: NonZeroU32::new(20), bytes: None });
    for round in 0..300 {
        let text = round.to_string();
        symbols.iter().for_each(|symbol| node.publish(symbol, &text));
        let visitor = is_visited.then(|| node.open(0, SINGLE, ROOM));
        if let Some(visitor) = visitor {
            node.subscribe(visitor, &[&symbols[round % symbols.len()]], Start::Now);
        }
        for _ in 0..10 {
            node.turn(0, 100);
            node.pass(Duration::from_millis(10));
        }
        visitor.into_iter().for_each(|visitor| node.close(visitor));
        let lines = node.lines(reader);
        let is_stale = |line: &&String| {
            line.starts_with("publication") && !line.ends_with(&format!(" {text}"))
        };
        assert_eq!(lines[seen..].iter().find(is_stale), None, "in round {round}");
        seen = lines.len();
    }
    let lines = node.lines(reader);
    let told = |symbol: &String| {
        let start = format!("publication {symbol} ");
        lines[snapshot..].iter().filter(|line| line.starts_with(&start)).count()
    };
    let counts: Vec<usize> = symbols.iter().map(told).collect();
    (*counts.iter().min().expect("some"), *counts.iter().max().expect("some"))
}

/// Their turns make it so (`take_turns`). Rounds would do it only as long as nobody else begins to read them, and would tell
/// what is as old as a round is long: each is told as it is when its turn comes.
#[test]
fn at_a_rate_limit_symbols_that_change_equally_often_are_told_equally_often() {
    for conflation in [Conflation::Off, Conflation::Lagging, Conflation::Always] {
        for is_visited in [false, true] {
            let (least, most) = told_at_a_rate(conflation, is_visited);
            let is_fair = least >= 8 && most <= least + 4;
            assert!(is_fair, "{conflation:?} {is_visited}: {least} to {most} times");
        }
    }
}

/// How often each of 50 entities of one topic that change equally often is told to a session that may be sent so much in a
/// second, in half a minute: the least and the most. All that it is told is in order, and in the end the newest of each.
fn entities_told_at_a_rate(rates: Rates, filter: Option<&str>) -> (usize, usize) {
    let policy = TopicPolicy { conflation_key: Some("/x".into()), ..TopicPolicy::default() };
    let limits = Limits::default();
    let selector = Selector::parse("t", &limits).expect("valid");
    let mut node = Node::new(1, limits, vec![PolicyRule { selector, policy }], 1 << 20);
    let reader = node.open(0, SINGLE, ROOM);
    let (conflation, filter) = (Conflation::Lagging, filter.map(Into::into));
    let options = SubscribeOptions { conflation, filter, ..SubscribeOptions::default() };
    node.subscribe_with(reader, &["t"], Start::Now, options);
    node.settle();
    node.throttle(reader, rates);
    let entities: Vec<String> = (10..60).map(|number| number.to_string()).collect();
    for round in 0..300 {
        for entity in &entities {
            node.publish("t", &format!("{entity}{round:03}"));
        }
        for _ in 0..10 {
            node.turn(0, 100);
            node.pass(Duration::from_millis(10));
        }
    }
    let meanwhile = node.lines(reader).len();
    for _ in 0..1_000 {
        node.turn(0, 100);
        node.pass(Duration::from_millis(10));
    }
    let all = node.lines(reader);
    let is_told = |line: &&String| line.starts_with("publication");
    let sequence = |line: &String| line.split(' ').nth(2).and_then(|it| it.parse::<u64>().ok());
    assert!(all.iter().filter(is_told).map(sequence).is_sorted(), "{all:?}");
    let is_about = |line: &String, entity: &String| {
        line.rsplit(' ').next().is_some_and(|text| text.starts_with(entity.as_str()))
    };
    let count = |entity| {
        let mut of_it = all.iter().filter(is_told).filter(|line| is_about(line, entity));
        let last = of_it.next_back();
        assert!(last.is_some_and(|line| line.ends_with("299")), "{entity}: {last:?}");
        let told = all[..meanwhile].iter().filter(is_told);
        told.filter(|line| is_about(line, entity)).count()
    };
    let counts: Vec<usize> = entities.iter().map(count).collect();
    (*counts.iter().min().expect("some"), *counts.iter().max().expect("some"))
}

#[test]
fn at_a_rate_limit_entities_of_one_topic_are_told_equally_often() {
    let messages = Rates { messages: NonZeroU32::new(20), bytes: None };
    let bytes = Rates { messages: None, bytes: NonZeroU32::new(1_000) };
    for (rates, filter) in [(messages, None), (messages, Some("9")), (bytes, None)] {
        let (least, most) = entities_told_at_a_rate(rates, filter);
        let is_fair = least >= 8 && most <= least + 2;
        assert!(is_fair, "{rates:?} {filter:?}: {least} to {most} times");
    }
}
