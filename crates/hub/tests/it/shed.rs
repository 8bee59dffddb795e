//! Letting go of histories: some topics in each turn, and counted without looking at all of them.

use model::{Limits, PolicyRule, TopicPolicy};

use crate::node::Node;

const TOPICS: usize = 3_000;

/// A node of one shard that keeps four publications of ten bytes of each of many topics.
fn node_with_histories() -> Node {
    let selector = Node::new(1, Limits::default(), Vec::new(), 1 << 20).selector("#");
    let policy = TopicPolicy { history_count: 4, ..TopicPolicy::default() };
    let mut node = Node::new(1, Limits::default(), vec![PolicyRule { selector, policy }], 1 << 20);
    for _ in 0..5 {
        for number in 0..TOPICS {
            node.publish(&format!("t/{number}"), "0123456789");
        }
    }
    node
}

#[test]
fn histories_are_counted_as_they_change() {
    let node = node_with_histories();
    assert_eq!(node.hubs[0].counters().history_bytes, TOPICS as u64 * 4 * 10);
}

#[test]
fn shedding_goes_on_where_it_stopped_some_topics_at_a_time() {
    const AT_A_TIME: usize = 512;
    let mut node = node_with_histories();
    let hub = &mut node.hubs[0];
    assert_eq!(hub.shed_history(), 0, "no round has begun");
    hub.begin_shedding();
    let mut steps = Vec::new();
    while hub.is_shedding() {
        steps.push(hub.shed_history() as usize);
    }
    let (last, others) = steps.split_last().expect("some");
    assert!(others.iter().all(|bytes| *bytes == AT_A_TIME * 2 * 10), "{steps:?}");
    assert_eq!(others.len(), TOPICS / AT_A_TIME);
    assert_eq!(*last, TOPICS % AT_A_TIME * 2 * 10);
    assert_eq!(hub.counters().history_bytes, TOPICS as u64 * 2 * 10);
    hub.begin_shedding();
    hub.shed_history();
    hub.end_shedding();
    assert_eq!(hub.shed_history(), 0, "the round was ended");
}
