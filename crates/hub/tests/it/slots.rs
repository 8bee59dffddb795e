//! Findings 76, 77 and 79 of the audit, each as one history, told rightly and, with the fault planted, wrongly.

use model::planted::{self, Fault};
use model::{DeltaKind, Epoch, Limits, Start, SubscribeOptions};

use crate::histories::names_of_first_shard;
use crate::node::{Node, SINGLE};

const ROOM: usize = 1 << 20;

/// What `told` says of a history, and what it says with a fault planted.
fn with_and_without<T>(fault: Fault, told: impl Fn() -> T) -> (T, T) {
    let rightly = told();
    (rightly, planted::with(fault, told))
}

/// Turns of these shards, each with one send.
fn turns(node: &mut Node, shards: &[usize]) {
    for &shard in shards {
        node.turn(shard, 1);
    }
}

/// The sequences of the publications of a topic that a reader was told.
fn sequences(node: &Node, reader: usize, topic: &str) -> Vec<u64> {
    let start = format!("publication {topic} ");
    let lines = node.lines(reader);
    let told = lines.iter().filter_map(|line| line.strip_prefix(&start)?.split(' ').next());
    told.map(|sequence| sequence.parse().expect("a number")).collect()
}

/// A session that comes back to a shard which is behind, in the place of one that waited there.
fn told_in_the_place_of_a_parked_session() -> Vec<u64> {
    let mut node = Node::new(2, Limits::default(), Vec::new(), 100);
    let topic = names_of_first_shard(&node, "t", 2).next().expect("one");
    let publish = |node: &mut Node, count| (0..count).for_each(|_| node.publish(&topic, "x"));
    let resume = |node: &mut Node, position| {
        let reader = node.open(1, SINGLE, ROOM);
        let (start, options) = (Start::Now, SubscribeOptions::default());
        node.subscribe_from(reader, &[&topic], start, vec![(&topic, position)], options);
        node.turn(1, 100);
        reader
    };
    let first = node.open(1, SINGLE, ROOM);
    node.subscribe(first, &[&topic], Start::Now);
    publish(&mut node, 3);
    node.settle();
    let parked = resume(&mut node, 1_000);
    node.tick();
    node.close(parked);
    // The topic's home has two more, of which this shard is yet to hear; who comes has them already.
    publish(&mut node, 2);
    let reader = resume(&mut node, 5);
    node.tick();
    node.turn(1, 100);
    node.settle();
    publish(&mut node, 1);
    node.settle();
    sequences(&node, reader, &topic)
}

#[test]
fn a_session_in_the_place_of_a_parked_one_is_told_nothing_twice() {
    let told = told_in_the_place_of_a_parked_session;
    let (rightly, wrongly) = with_and_without(Fault::SlotOfAParkedSession, told);
    assert_eq!(rightly, [6]);
    assert_eq!(wrongly, [4, 5, 6]);
}

/// A session that is ahead of a shard, which catches up while a batch is under way to the session's audience.
fn told_of_what_it_was_ahead_in() -> Vec<u64> {
    let mut node = Node::new(2, Limits::default(), Vec::new(), 100);
    let topic = names_of_first_shard(&node, "t", 2).next().expect("one");
    for _ in 0..20 {
        let member = node.open(1, SINGLE, ROOM);
        node.subscribe(member, &[&topic], Start::Now);
    }
    node.settle();
    node.publish(&topic, "x");
    turns(&mut node, &[0, 1]);
    // It has the second from another shard.
    let reader = node.open(1, SINGLE, ROOM);
    let (start, options) = (Start::Now, SubscribeOptions::default());
    node.subscribe_from(reader, &[&topic], start, vec![(&topic, 2)], options);
    turns(&mut node, &[1, 1, 1]);
    node.publish(&topic, "x");
    turns(&mut node, &[0, 1, 1, 1]);
    node.settle();
    node.publish(&topic, "x");
    node.settle();
    sequences(&node, reader, &topic)
}

#[test]
fn a_session_that_was_ahead_is_told_nothing_twice() {
    let told = told_of_what_it_was_ahead_in;
    let (rightly, wrongly) = with_and_without(Fault::StepsInTooEarly, told);
    assert_eq!(rightly, [3]);
    assert_eq!(wrongly, [2, 3]);
}

/// A shard is told of a topic for a pattern that it took back meanwhile, while it asks for it again and takes that back, too.
fn told_of_a_topic_after_its_pattern_came_and_went() -> Vec<u64> {
    let limits = Limits { attached_per_turn: 1, ..Limits::default() };
    let mut node = Node::new(2, limits, Vec::new(), 100);
    let topics: Vec<String> = names_of_first_shard(&node, "a/", 2).take(3).collect();
    let topic = topics.last().expect("three");
    topics.iter().for_each(|topic| node.publish(topic, "x"));
    let first = node.open(1, SINGLE, ROOM);
    node.subscribe(first, &[topic, "a/#"], Start::Now);
    node.turn(1, 100);
    turns(&mut node, &[0, 0, 0, 0, 0]);
    // Both are taken back; the home is yet to hear it.
    node.close(first);
    let second = node.open(1, SINGLE, ROOM);
    node.subscribe(second, &["a/#"], Start::Now);
    node.turn(1, 100);
    let reader = node.open(1, SINGLE, ROOM);
    node.subscribe(reader, &[topic], Start::Now);
    node.close(second);
    node.settle();
    node.publish(topic, "x");
    node.settle();
    sequences(&node, reader, topic)
}

#[test]
fn a_shard_follows_what_it_was_told_of_for_a_pattern_that_it_took_back() {
    let told = told_of_a_topic_after_its_pattern_came_and_went;
    let (rightly, wrongly) = with_and_without(Fault::StaleStateTaken, told);
    assert_eq!(rightly, [2]);
    assert_eq!(wrongly, [0; 0]);
}

/// The epoch changes where a topic was that only a subscription had made, and that went with it.
#[test]
fn a_new_epoch_passes_over_places_without_a_topic() {
    let mut node = Node::new(1, Limits::default(), Vec::new(), 100);
    let (going, staying) = (node.open(0, SINGLE, ROOM), node.open(0, SINGLE, ROOM));
    node.subscribe(going, &["nothing/here"], Start::Now);
    node.settle();
    node.publish("a", "x");
    node.subscribe(staying, &["a"], Start::Now);
    node.settle();
    node.unsubscribe(going, "nothing/here");
    node.settle();
    let hub = &mut node.hubs[0];
    hub.handle_epoch(&Epoch::new("e"), &Epoch::new("f"));
    while hub.is_renewing() {
        hub.renew_some();
    }
    node.settle();
    let told = node.lines(staying);
    assert!(told.iter().any(|line| line.starts_with("gap a ")), "{told:?}");
}

/// A session that joins two subscriptions, which stand at two places, with members whose batch ends between these.
fn told_of_what_it_had_when_it_joined() -> Vec<u64> {
    let mut node = Node::new(1, Limits::default(), Vec::new(), 100);
    let reader = node.open(0, SINGLE, ROOM);
    let members: Vec<usize> = (0..20).map(|_| node.open(0, SINGLE, ROOM)).collect();
    ["a/0", "b/0"].iter().for_each(|topic| node.publish(topic, "x"));
    node.subscribe(reader, &["a/+"], Start::Now);
    let first = SubscribeOptions { priority: 5, ..SubscribeOptions::default() };
    node.subscribe_with(reader, &["b/+"], Start::Now, first);
    for member in members {
        node.subscribe(member, &["a/+", "b/+", "+/x"], Start::Now);
    }
    node.settle();
    node.take_room(reader, 0);
    node.publish("a/0", "x");
    turns(&mut node, &[0, 0, 0]);
    // It takes exactly what comes first.
    node.publish("b/0", "x");
    node.give_room(reader, 4 + "publication b/0 2 full x\n".len());
    node.turn(0, 1);
    assert_eq!(
        (sequences(&node, reader, "a/0"), sequences(&node, reader, "b/0")),
        (vec![], vec![2])
    );
    // It selects nothing, and overlaps with both.
    node.subscribe(reader, &["+/x"], Start::Now);
    node.give_room(reader, ROOM);
    node.turn(0, 1);
    node.settle();
    assert_eq!(sequences(&node, reader, "a/0"), [2]);
    sequences(&node, reader, "b/0")
}

#[test]
fn a_session_steps_in_only_behind_what_it_has() {
    let (rightly, wrongly) =
        with_and_without(Fault::StepsInTooEarly, told_of_what_it_had_when_it_joined);
    assert_eq!(rightly, [2]);
    assert_eq!(wrongly, [2, 2]);
}

/// A topic that is told by deltas comes into the place of another while a batch is under way all the time.
fn told_by_a_delta_in_the_place_of_another() -> Vec<String> {
    let mut node = Node::new(2, Limits::default(), Vec::new(), 100);
    let names: Vec<String> = names_of_first_shard(&node, "t", 2).take(3).collect();
    let [busy, one, other] = [0, 1, 2].map(|at: usize| names[at].as_str());
    let reader = node.open(1, SINGLE, ROOM);
    let subscribe = |node: &mut Node, topic: &str| {
        let delta = SubscribeOptions { delta: DeltaKind::Vcdiff, ..SubscribeOptions::default() };
        node.subscribe_with(reader, &[topic], Start::Now, delta);
    };
    let members: Vec<usize> = (0..100).map(|_| node.open(1, SINGLE, ROOM)).collect();
    members.iter().for_each(|member| node.subscribe(*member, &[busy], Start::Now));
    subscribe(&mut node, one);
    node.settle();
    node.publish(busy, "x");
    for (topic, texts) in [(one, ["k0-1", "k0-2"]), (other, ["k0-3", "k0-4"])] {
        for text in texts {
            node.publish(topic, text);
            node.turn(0, 1);
            turns(&mut node, &[1, 1, 1, 1]);
        }
        if topic == one {
            node.unsubscribe(reader, one);
            subscribe(&mut node, other);
            turns(&mut node, &[1, 0, 1, 0]);
        }
    }
    let is_told = |member: &&usize| sequences(&node, **member, busy) == [1];
    assert!(members.iter().filter(is_told).count() < members.len(), "its batch is under way");
    let lines = node.lines(reader);
    lines.into_iter().filter(|line| line.starts_with("delta")).collect()
}

#[test]
fn a_topic_in_the_place_of_another_has_deltas_of_its_own() {
    let told = told_by_a_delta_in_the_place_of_another;
    let (rightly, wrongly) = with_and_without(Fault::DeltaOfAnotherTopic, told);
    let texts = |lines: &[String]| -> Vec<String> {
        lines.iter().filter_map(|line| Some(line.rsplit(' ').next()?.to_owned())).collect()
    };
    assert_eq!(texts(&rightly), ["-2", "-4"], "{rightly:?}");
    assert_eq!(texts(&wrongly), ["-2", "-2"], "{wrongly:?}");
}
