//! What readers are told is what was published: each case a history that once was told wrongly.

use std::time::Duration;

use model::{
    AckLevel, Conflation, DeltaKind, Limits, PolicyRule, Selector, Sequence, Start,
    SubscribeOptions, TopicPolicy,
};
use tidegate_hub::home_shard;

use crate::node::{Node, SINGLE};

/// A node where every topic has one policy.
fn node(shards: usize, limits: Limits, policy: TopicPolicy) -> Node {
    node_with_mail(shards, limits, policy, 10_000)
}

fn node_with_mail(shards: usize, limits: Limits, policy: TopicPolicy, mail: usize) -> Node {
    let selector = Selector::parse("#", &limits).expect("valid");
    Node::new(shards, limits, vec![PolicyRule { selector, policy }], mail)
}

/// A name below `prefix` that is at home on the first of two shards.
fn name_below(node: &Node, prefix: &str) -> String {
    let mut names = (0..).map(|number| format!("{prefix}/{number}"));
    names.find(|name| home_shard(&node.topic(name), 2).0 == 0).expect("one of them")
}

/// Names at home on the first of two shards.
fn names_of_first_shard(node: &Node, count: usize) -> Vec<String> {
    let names = (0..).map(|number| format!("t{number}"));
    names.filter(|name| home_shard(&node.topic(name), 2).0 == 0).take(count).collect()
}

fn on_disk(memory_count: usize) -> TopicPolicy {
    TopicPolicy {
        ack: AckLevel::Disk,
        history_count: 10_000,
        memory_count,
        ..TopicPolicy::default()
    }
}

fn publish_named(node: &mut Node, name: &str, count: usize) {
    for number in 0..count {
        node.publish(name, &format!("{name}:{number}"));
    }
}

/// What a reader was told of a topic: gaps and texts.
fn told(node: &Node, reader: usize, name: &str) -> Vec<String> {
    let is_of = |line: &String| line.split(' ').nth(1) == Some(name);
    node.lines(reader).into_iter().filter(is_of).collect()
}

#[test]
fn a_page_of_one_topic_is_never_told_as_another() {
    for answers_before in [0, 1] {
        let mut node = node(2, Limits::default(), on_disk(2));
        let names = names_of_first_shard(&node, 2);
        let (one, other) = (names[0].as_str(), names[1].as_str());
        publish_named(&mut node, one, 600);
        publish_named(&mut node, other, 600);
        let reader = node.open(1, SINGLE, 1 << 20);
        node.subscribe(reader, &[one], Start::All);
        for _ in 0..3 {
            node.turn(1, 10);
            node.turn(0, 10);
        }
        node.turn(1, 10);
        // The first page was asked for; it is here, or on its way.
        node.answer_pages(1, answers_before);
        node.unsubscribe(reader, one);
        node.subscribe(reader, &[other], Start::All);
        node.settle();
        let lines = told(&node, reader, other);
        let expected =
            (1..=600).map(|at| format!("publication {other} {at} full {other}:{}", at - 1));
        let expected: Vec<String> =
            std::iter::once(format!("start {other} 0")).chain(expected).collect();
        assert_eq!(lines, expected);
    }
}

/// Lets every shard take its mail and send, a few times.
fn turns(node: &mut Node) {
    for _ in 0..4 {
        for shard in 0..node.hubs.len() {
            node.turn(shard, 100);
        }
    }
}

/// From now on a reader's connection takes nothing.
fn close_to_bytes(node: &mut Node, reader: usize) {
    let known = node.readers[reader].as_ref().expect("open");
    node.wires[known.shard].connections.get_mut(&known.link).expect("open").room = 0;
}

#[test]
fn a_topic_in_the_place_of_another_is_told_from_its_own_first_publication() {
    let mut node = node(2, Limits::default(), TopicPolicy::default());
    let names = names_of_first_shard(&node, 2);
    let [kept, gone] = [0, 1].map(|at: usize| names[at].as_str());
    let (reader, other) = (node.open(1, SINGLE, 1 << 20), node.open(1, SINGLE, 1 << 20));
    node.subscribe(reader, &[kept], Start::Now);
    node.subscribe(other, &[gone], Start::Now);
    turns(&mut node);
    close_to_bytes(&mut node, reader);
    publish_named(&mut node, gone, 30);
    turns(&mut node);
    // Two subscriptions, behind at two places.
    publish_named(&mut node, kept, 1);
    turns(&mut node);
    publish_named(&mut node, kept, 1);
    turns(&mut node);
    node.subscribe(reader, &["new/+"], Start::Now);
    turns(&mut node);
    publish_named(&mut node, gone, 50);
    turns(&mut node);
    node.unsubscribe(other, gone);
    turns(&mut node);
    let name = name_below(&node, "new");
    publish_named(&mut node, &name, 20);
    turns(&mut node);
    // It joins both, and selects no topic of the second.
    node.subscribe(reader, &[kept, "+/x"], Start::Now);
    node.settle();
    let lines = told(&node, reader, &name);
    let publications = lines.iter().filter(|line| line.starts_with("publication"));
    assert_eq!(publications.count(), 20, "{lines:#?}");
}

/// The sequences of the publications among lines.
fn sequences(lines: &[String]) -> Vec<u64> {
    let publications = lines.iter().filter(|line| line.starts_with("publication"));
    let sequence = |line: &String| line.split(' ').nth(2).and_then(|word| word.parse().ok());
    publications.filter_map(sequence).collect()
}

#[test]
fn a_member_told_last_gets_what_the_ring_lost_meanwhile_or_a_gap() {
    let limits = Limits { recent_deliveries_max: 4, ..Limits::default() };
    let mut node = node(1, limits, TopicPolicy::default());
    let (first, last) = (node.open(0, SINGLE, 1 << 20), node.open(0, SINGLE, 1 << 20));
    let other = node.open(0, SINGLE, 1 << 20);
    let with_delta = || SubscribeOptions { delta: DeltaKind::Vcdiff, ..Default::default() };
    node.subscribe(other, &["b"], Start::Now);
    node.subscribe_with(first, &["a"], Start::Now, with_delta());
    node.settle();
    node.publish("a", "k0-1");
    node.settle();
    // It stepped in after what the next delta is made from: it is told the whole value, and comes last.
    node.subscribe_with(last, &["a"], Start::Now, with_delta());
    node.settle();
    node.publish("a", "k0-2");
    node.turn(0, 1);
    publish_named(&mut node, "b", 10);
    node.settle();
    node.publish("a", "k0-3");
    node.settle();
    let lines = told(&node, last, "a");
    let expected = ["start a 1", "publication a 2 full k0-2", "publication a 3 full k0-3"];
    let as_delta = ["start a 1", "publication a 2 full k0-2", "delta a 3 2 -3"];
    assert!(lines == expected || lines == as_delta, "{lines:#?}");
}

/// A session that resumes one topic after `position`, on the topic's home or on another shard.
fn resumed_from(position: u64, is_home: bool) -> Vec<String> {
    let mut node = node(2, Limits::default(), TopicPolicy::default());
    let name = names_of_first_shard(&node, 1).remove(0);
    publish_named(&mut node, &name, 3);
    let reader = node.open(usize::from(!is_home), SINGLE, 1 << 20);
    let positions = vec![(name.as_str(), position)];
    node.subscribe_from(reader, &[&name], Start::Now, positions, SubscribeOptions::default());
    for _ in 0..4 {
        turns(&mut node);
        // Somebody publishes all the while.
        publish_named(&mut node, &name, 1);
        turns(&mut node);
        node.hubs.iter_mut().for_each(tidegate_hub::Hub::handle_tick);
    }
    node.settle();
    told(&node, reader, &name)
}

#[test]
fn a_position_that_was_never_given_is_told_as_a_gap_on_every_shard() {
    for is_home in [true, false] {
        let lines = resumed_from(1_000, is_home);
        assert!(lines.iter().any(|line| line.ends_with("epoch")), "home {is_home}: {lines:#?}");
        assert_eq!(sequences(&lines), [1, 2, 3, 4, 5, 6, 7], "home {is_home}: {lines:#?}");
    }
}

#[test]
fn all_positions_that_were_never_given_are_told_at_once() {
    let mut node = node(2, Limits::default(), TopicPolicy::default());
    let names = names_of_first_shard(&node, 20);
    names.iter().for_each(|name| publish_named(&mut node, name, 1));
    let reader = node.open(1, SINGLE, 1 << 20);
    let positions = names.iter().map(|name| (name.as_str(), 1_000)).collect();
    let selectors: Vec<&str> = names.iter().map(String::as_str).collect();
    let options = SubscribeOptions::default();
    node.subscribe_from(reader, &selectors, Start::Now, positions, options);
    turns(&mut node);
    for _ in 0..2 {
        node.tick();
        turns(&mut node);
    }
    for name in &names {
        let lines = told(&node, reader, name);
        assert!(lines.contains(&format!("gap {name} 0 epoch")), "{lines:#?}");
    }
}

/// A topic with an interval, on disk, of which the disk keeps the newest only: a session reads it afresh while
/// something newer is held back.
#[test]
fn what_the_disk_dropped_is_told_while_newer_publications_are_held_back() {
    let policy = TopicPolicy {
        history_count: 1,
        interval: Duration::from_millis(43),
        conflation: Some(Conflation::Off),
        ..on_disk(1)
    };
    let mut node = node(1, Limits::default(), policy);
    publish_named(&mut node, "a", 2);
    let reader = node.open(0, SINGLE, 1 << 20);
    node.subscribe(reader, &["a"], Start::Snapshot);
    node.pass(Duration::from_millis(43));
    node.turn(0, 1);
    publish_named(&mut node, "a", 1);
    for _ in 0..4 {
        node.answer_pages(0, 1);
        node.turn(0, 10);
    }
    assert_eq!(sequences(&told(&node, reader, "a")), [2], "without waiting for the third");
    assert!(!node.turn(0, 10), "it has nothing to do until then");
}

#[test]
fn what_memory_has_is_told_where_the_disk_dropped_it() {
    let policy = TopicPolicy { history_count: 3, ..on_disk(2) };
    let mut node = node(2, Limits::default(), policy);
    let name = names_of_first_shard(&node, 1).remove(0);
    let (first, reader) = (node.open(1, SINGLE, 1 << 20), node.open(1, SINGLE, 1 << 20));
    node.subscribe(first, &[&name], Start::Now);
    turns(&mut node);
    publish_named(&mut node, &name, 3);
    turns(&mut node);
    // The other shard is yet to hear of two more; the disk keeps the last three.
    publish_named(&mut node, &name, 2);
    node.subscribe(reader, &[&name], Start::All);
    node.turn(1, 10);
    node.answer_pages(1, 1);
    node.turn(1, 10);
    let lines = told(&node, reader, &name);
    assert_eq!(lines[1], format!("gap {name} 1 history"), "{lines:#?}");
    assert_eq!(sequences(&lines), [2, 3], "{lines:#?}");
}

#[test]
fn a_position_that_another_shard_told_already_is_waited_for() {
    let lines = resumed_from(5, false);
    assert_eq!(sequences(&lines), [6, 7], "{lines:#?}");
    assert!(!lines.iter().any(|line| line.starts_with("gap")), "{lines:#?}");
}

#[test]
fn who_asks_for_conflation_is_told_no_gap_where_the_ring_reaches_back() {
    for (conflation, ack) in [
        (Conflation::Off, AckLevel::Memory),
        (Conflation::Lagging, AckLevel::Memory),
        (Conflation::Lagging, AckLevel::Disk),
    ] {
        let policy = TopicPolicy {
            ack,
            history_count: 100,
            memory_count: 100,
            conflation: Some(Conflation::Off),
            ..TopicPolicy::default()
        };
        let mut node = node(1, Limits::default(), policy);
        let reader = node.open(0, SINGLE, 1 << 20);
        let options = SubscribeOptions {
            conflation,
            filter: Some("1".into()),
            ..SubscribeOptions::default()
        };
        node.subscribe_with(reader, &["a"], Start::Now, options);
        node.settle();
        close_to_bytes(&mut node, reader);
        for number in 0..1_901 {
            let ending = u8::from(number < 401);
            node.publish("a", &format!("k0{number}-{ending}"));
            node.turn(0, 10);
        }
        node.settle();
        let lines = told(&node, reader, "a");
        assert_eq!(sequences(&lines).last(), Some(&401), "{conflation:?} {ack:?}");
        assert!(!lines.iter().any(|line| line.starts_with("gap")), "{conflation:?} {ack:?}");
        assert_eq!(node.closed, 0, "{conflation:?} {ack:?}");
    }
}

#[test]
fn a_reader_from_now_is_told_nothing_older_because_somebody_else_reads_a_pattern() {
    let mut node = node(2, Limits::default(), TopicPolicy::default());
    let (one, other) = (name_below(&node, "a"), name_below(&node, "b"));
    publish_named(&mut node, &one, 20);
    let (by_name, by_pattern) = (node.open(1, SINGLE, 1 << 20), node.open(1, SINGLE, 1 << 20));
    node.subscribe(by_pattern, &[&other], Start::Now);
    node.settle();
    node.subscribe(by_pattern, &[&other, "a/+"], Start::Now);
    node.subscribe(by_name, &[&one], Start::Now);
    node.settle();
    assert_eq!(told(&node, by_name, &one), [format!("start {one} 20")]);
    publish_named(&mut node, &one, 1);
    node.settle();
    assert_eq!(sequences(&told(&node, by_name, &one)), [21]);
    assert_eq!(sequences(&told(&node, by_pattern, &one)), [21]);
}

#[test]
fn a_subscribe_that_is_taken_back_is_answered_first() {
    for shards in [1, 2] {
        let mut node = node(shards, Limits::default(), TopicPolicy::default());
        let name = names_of_first_shard(&node, 1).remove(0);
        let reader = node.open(shards - 1, SINGLE, 1 << 20);
        for selectors in [vec![name.as_str()], vec!["x/+"], vec![name.as_str(), "y"]] {
            let before = node.lines(reader).len();
            let options = SubscribeOptions::default();
            let id = node.subscribe_from(reader, &selectors, Start::Now, Vec::new(), options);
            node.unsubscribe(reader, selectors[0]);
            if let Some(other) = selectors.get(1) {
                node.unsubscribe(reader, other);
            }
            node.settle();
            let lines = node.lines(reader);
            let answers = lines[before..].iter().filter(|line| line.contains("subscribed"));
            let mut expected = vec![format!("subscribed {id}")];
            expected.resize(1 + selectors.len(), "unsubscribed".to_owned());
            // The rest of a subscription is answered when its topics are known, or when it is taken back, too.
            let answers: Vec<String> = answers.cloned().collect();
            let place = answers.iter().position(|line| *line == expected[0]);
            assert_eq!(place, Some(selectors.len() - 1), "{lines:#?}");
            assert_eq!(answers.len(), expected.len(), "{lines:#?}");
        }
    }
}

#[test]
fn joining_subscriptions_takes_nothing_that_the_shard_lost_for_known() {
    let in_memory = TopicPolicy { history_count: 1, ..TopicPolicy::default() };
    for policy in [in_memory, on_disk(1)] {
        let policy = TopicPolicy { conflation: Some(Conflation::Off), ..policy };
        let is_on_disk = policy.ack == AckLevel::Disk;
        let mut node = node_with_mail(2, Limits::default(), policy, 1);
        let one = names_of_first_shard(&node, 1).remove(0);
        let other = name_below(&node, "new");
        publish_named(&mut node, &other, 5);
        let reader = node.open(1, SINGLE, 1 << 20);
        node.subscribe(reader, &[&one], Start::Now);
        node.subscribe(reader, &["new/+"], Start::Now);
        node.settle();
        close_to_bytes(&mut node, reader);
        publish_named(&mut node, &one, 1);
        turns(&mut node);
        // The mailbox is full with the first: of the others the home has only the last in memory when there is room.
        publish_named(&mut node, &one, 1);
        publish_named(&mut node, &other, 5);
        turns(&mut node);
        // It joins both, and selects no topic of the second.
        node.subscribe(reader, &[&one, "+/x"], Start::Now);
        node.settle();
        let lines = told(&node, reader, &other);
        match is_on_disk {
            true => assert_eq!(sequences(&lines), [6, 7, 8, 9, 10], "{lines:#?}"),
            false => assert_eq!(lines[1..2], [format!("gap {other} 9 lagged")], "{lines:#?}"),
        }
    }
}

#[test]
fn what_is_taken_over_from_a_home_makes_no_delivery_come_twice() {
    let policy = TopicPolicy { history_count: 1_000, ..TopicPolicy::default() };
    let mut node = node(2, Limits::default(), policy);
    let names = names_of_first_shard(&node, 3);
    let [one, other, new] = [0, 1, 2].map(|at: usize| names[at].as_str());
    publish_named(&mut node, new, 20);
    let reader = node.open(1, SINGLE, 1 << 20);
    node.subscribe(reader, &[one, other], Start::Now);
    node.settle();
    close_to_bytes(&mut node, reader);
    publish_named(&mut node, one, 300);
    publish_named(&mut node, other, 1);
    turns(&mut node);
    // The new topic's history is taken over while the newest delivery is one of another topic.
    node.subscribe(reader, &[one, new], Start::Now);
    turns(&mut node);
    node.settle();
    assert_eq!(sequences(&told(&node, reader, other)), [1]);
}

#[test]
fn who_drops_the_topic_that_it_waits_for_is_told_the_others_at_once() {
    let mut node = node(2, Limits::default(), TopicPolicy::default());
    let names = names_of_first_shard(&node, 2);
    let [awaited, other] = [0, 1].map(|at: usize| names[at].as_str());
    publish_named(&mut node, awaited, 3);
    (0..100).for_each(|_| node.publish("large", &"x".repeat(2_000)));
    let reader = node.open(1, SINGLE, 1 << 20);
    let positions = vec![(awaited, 1_000)];
    node.subscribe(reader, &[other], Start::Now);
    node.subscribe_from(reader, &[awaited], Start::Now, positions, SubscribeOptions::default());
    turns(&mut node);
    node.unsubscribe(reader, awaited);
    node.subscribe(reader, &["large"], Start::All);
    turns(&mut node);
    turns(&mut node);
    let lines = told(&node, reader, "large");
    assert_eq!(sequences(&lines).len(), 100, "more than is told in one go");
}

#[test]
fn what_is_too_old_is_told_to_nobody_even_if_nothing_more_is_published() {
    let policy = TopicPolicy {
        history_age: Some(Duration::from_secs(1)),
        retain: false,
        ..TopicPolicy::default()
    };
    for shard in [0, 1] {
        let mut node = node(2, Limits::default(), policy.clone());
        let name = names_of_first_shard(&node, 1).remove(0);
        let early = node.open(1, SINGLE, 1 << 20);
        node.subscribe(early, &[&name], Start::Now);
        node.settle();
        for _ in 0..5 {
            publish_named(&mut node, &name, 1);
            turns(&mut node);
            node.pass(Duration::from_millis(300));
        }
        turns(&mut node);
        let reader = node.open(shard, SINGLE, 1 << 20);
        node.subscribe(reader, &[&name], Start::All);
        turns(&mut node);
        let lines = told(&node, reader, &name);
        assert_eq!(sequences(&lines), [3, 4, 5], "{lines:#?}");
        node.pass(Duration::from_secs(3));
        turns(&mut node);
        let topic = node.topic(&name);
        let start = Sequence::START;
        assert!(node.hubs.iter().all(|hub| hub.history(&topic, start).next().is_none()));
    }
}

/// What a reader is told of a topic that it reads by name since it was empty, and then by patterns too.
fn told_by_name_and_pattern(
    shard: usize,
    deliveries_max: usize,
    publish: impl Fn(&mut Node, usize, &str),
) -> Vec<String> {
    let limits = Limits { recent_deliveries_max: deliveries_max, ..Limits::default() };
    let policy = TopicPolicy { history_count: 1_000, ..TopicPolicy::default() };
    let mut node = node(2, limits, policy);
    let name = name_below(&node, "a");
    let reader = node.open(shard, SINGLE, 1 << 20);
    node.subscribe(reader, &[&name], Start::All);
    node.settle();
    node.subscribe(reader, &["a/+", "a/#"], Start::All);
    turns(&mut node);
    publish(&mut node, reader, &name);
    node.settle();
    told(&node, reader, &name)
}

fn check_described_twice(lines: &[String]) {
    assert_eq!(sequences(lines), [1, 2, 3, 4, 5, 6, 7, 8], "{lines:#?}");
    let told_before = lines.iter().take_while(|line| !line.starts_with("publication"));
    let starts = told_before.filter(|line| line.starts_with("start"));
    assert_eq!(starts.count(), 2, "once by name, once by pattern: {lines:#?}");
}

#[test]
fn a_pattern_announces_a_topic_that_the_session_reads_by_name_since_it_was_empty() {
    for shard in [0, 1] {
        let lines = told_by_name_and_pattern(shard, 1_000, |node, _, name| {
            publish_named(node, name, 8);
        });
        check_described_twice(&lines);
    }
}

#[test]
fn a_pattern_announces_a_topic_read_by_name_to_a_session_that_is_behind() {
    for deliveries_max in [1_000, 4] {
        let lines = told_by_name_and_pattern(0, deliveries_max, |node, reader, name| {
            close_to_bytes(node, reader);
            publish_named(node, "a/other", 1);
            turns(node);
            publish_named(node, name, 8);
            turns(node);
        });
        check_described_twice(&lines);
    }
}

#[test]
fn a_pattern_announces_a_topic_that_was_empty_when_the_session_began_to_read_it_afresh() {
    // It comes to the topic after its first publications, or before them.
    for room in [0, 200] {
        let policy = TopicPolicy { history_count: 1_000, ..TopicPolicy::default() };
        let mut node = node(2, Limits::default(), policy);
        let (name, other) = (name_below(&node, "a"), name_below(&node, "b"));
        let reader = node.open(0, SINGLE, 1 << 20);
        node.subscribe(reader, &[&other], Start::Now);
        node.settle();
        close_to_bytes(&mut node, reader);
        node.publish(&other, &"x".repeat(1_000));
        turns(&mut node);
        // A position that nobody was told: a gap is to be told of it.
        let (positions, options) = (vec![(name.as_str(), 1_000)], SubscribeOptions::default());
        node.subscribe_from(reader, &[&name], Start::All, positions, options);
        turns(&mut node);
        node.give_room(reader, room);
        turns(&mut node);
        assert_eq!(told(&node, reader, &name).len(), if room == 0 { 0 } else { 2 });
        node.subscribe(reader, &["a/+"], Start::All);
        turns(&mut node);
        publish_named(&mut node, &name, 8);
        turns(&mut node);
        node.settle();
        check_described_twice(&told(&node, reader, &name));
    }
}

/// Somebody says, on a shard that follows the topic, that they have more than was ever given. Before the topic's home is asked
/// another epoch begins, and its numbering passes that position.
fn claimed_across_an_epoch(claimed: u64, is_read_before: bool, is_blocked: bool) -> Vec<String> {
    let mut node = node(2, Limits::default(), on_disk(10));
    let name = names_of_first_shard(&node, 1).remove(0);
    publish_named(&mut node, &name, 3);
    let (other, reader) = (node.open(1, SINGLE, 1 << 20), node.open(1, SINGLE, 1 << 20));
    node.subscribe(other, &[&name], Start::Now);
    turns(&mut node);
    let positions = vec![(name.as_str(), claimed)];
    if is_blocked {
        close_to_bytes(&mut node, reader);
    }
    node.subscribe_from(reader, &[&name], Start::Now, positions, SubscribeOptions::default());
    if is_read_before {
        turns(&mut node);
    }
    node.begin_epoch();
    publish_named(&mut node, &name, 4);
    node.settle();
    told(&node, reader, &name)
}

#[test]
fn a_position_that_was_never_given_counts_for_nothing_in_the_next_epoch() {
    for (is_read_before, is_blocked) in [(true, false), (false, false), (true, true), (false, true)]
    {
        let lines = claimed_across_an_epoch(5, is_read_before, is_blocked);
        let place = lines.iter().position(|line| line.ends_with("epoch"));
        let place = place.unwrap_or_else(|| panic!("no gap is told: {lines:#?}"));
        assert_eq!(sequences(&lines), [1, 2, 3, 4, 5, 6, 7], "{lines:#?}");
        assert!(sequences(&lines[..place]).is_empty(), "{lines:#?}");
    }
}

#[test]
fn a_position_that_another_shard_told_already_counts_in_the_next_epoch() {
    let mut node = node(2, Limits::default(), on_disk(10));
    let name = names_of_first_shard(&node, 1).remove(0);
    publish_named(&mut node, &name, 3);
    let (other, reader) = (node.open(1, SINGLE, 1 << 20), node.open(1, SINGLE, 1 << 20));
    node.subscribe(other, &[&name], Start::Now);
    turns(&mut node);
    // Its home has two more, and told them to the reader.
    publish_named(&mut node, &name, 2);
    let positions = vec![(name.as_str(), 5)];
    node.subscribe_from(reader, &[&name], Start::Now, positions, SubscribeOptions::default());
    node.turn(1, 10);
    node.begin_epoch();
    publish_named(&mut node, &name, 2);
    node.settle();
    let lines = told(&node, reader, &name);
    assert_eq!(sequences(&lines), [6, 7], "{lines:#?}");
    assert!(lines.contains(&format!("gap {name} 5 epoch")), "{lines:#?}");
}

#[test]
fn what_was_before_and_nobody_knows_is_told_as_a_gap_once() {
    let mut node = node(1, Limits::default(), TopicPolicy::default());
    publish_named(&mut node, "a", 3);
    let reader = node.open(0, SINGLE, 1 << 20);
    node.subscribe(reader, &["a"], Start::Now);
    node.settle();
    // The connector of a broker comes anew: it does not know what was published before.
    (0..2).for_each(|_| node.publish_unheard("a", "lost"));
    node.publish_unknown("a", "later");
    let late = [0, 3, 4].map(|at| {
        let late = node.open(0, SINGLE, 1 << 20);
        node.subscribe_from(late, &["a"], Start::Now, vec![("a", at)], SubscribeOptions::default());
        late
    });
    node.settle();
    let end = ["gap a 5 lagged", "publication a 6 full later"];
    let short = ["gap a 5 lagged", "publication a 6 short later"];
    let told_first = told(&node, reader, "a");
    assert!(told_first.ends_with(&short.map(str::to_owned)), "{told_first:?}");
    for reader in late {
        let told = told(&node, reader, "a");
        assert_eq!(told[told.len() - 1], end[1], "{told:?}");
        assert_eq!(told[told.len() - 2], "gap a 5 history", "{told:?}");
    }
}
