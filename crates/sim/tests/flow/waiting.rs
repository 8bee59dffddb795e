//! Those who wait cost nothing while nothing happens to them.

use std::time::Duration;

use crate::node::{CARRIAGES, Carriage, Node, Session, commands_of, node_with_content};

/// Lets the node do what it has to do, until it does nothing more.
fn settle(node: &mut Node) {
    let mut work = 0;
    for _ in 0..1_000 {
        node.turns(10);
        let before = std::mem::replace(&mut work, node.counters().work);
        if work - before <= 16 * node.mailboxes.len() as u64 {
            return;
        }
    }
    panic!("it comes to no rest");
}

/// Steps that it takes to answer fifty pings, each in a turn of its own.
fn steps_of_pings(node: &mut Node) -> u64 {
    let session = Session::open(node, Carriage::Frames);
    node.turns(4);
    let before = node.counters().work;
    for _ in 0..50 {
        session.say(node, &[r#"{"type":"ping"}"#.into()]);
        node.turn();
        assert!(session.read(node, 0).contains("pong"));
    }
    node.counters().work - before
}

#[test]
fn those_who_wait_cost_nothing_while_nothing_happens_to_them() {
    let row = r#"{"id":N,"type":"history","topic":"a"}"#;
    let steps = |carriage, waiting: usize| {
        let mut node = node_with_content(1);
        let sessions: Vec<Session> =
            (0..waiting).map(|_| Session::open(&mut node, carriage)).collect();
        for session in &sessions {
            session.say(&mut node, &commands_of(row, 4));
        }
        settle(&mut node);
        assert_eq!(node.counters().inputs_waiting, waiting as u64, "their answers are not taken");
        let steps = steps_of_pings(&mut node);
        let told: usize = sessions[0].read(&mut node, 1).len();
        for _ in 0..2_000 {
            sessions.iter().for_each(|session| drop(node.receive(session.link)));
            node.turn();
        }
        let left = node.counters().inputs_waiting;
        assert!(told > 0 && (left == 0 || carriage == Carriage::Poll), "{carriage:?}: {left} left");
        steps
    };
    for carriage in CARRIAGES {
        let [once, twice] = [100, 200].map(|waiting| steps(carriage, waiting));
        assert!(twice <= once + 50, "{carriage:?}: {once} steps beside 100, {twice} beside 200");
    }
}

#[test]
fn those_who_are_being_closed_cost_nothing_while_nothing_happens_to_them() {
    let steps = |closing: usize| {
        let mut node = node_with_content(1);
        let sessions: Vec<Session> =
            (0..closing).map(|_| Session::open(&mut node, Carriage::Frames)).collect();
        for session in &sessions {
            session.say(&mut node, &commands_of(r#"{"id":N,"type":"history","topic":"a"}"#, 1));
            session.say(&mut node, &[r#"{"type":"close"}"#.into()]);
        }
        settle(&mut node);
        let steps = steps_of_pings(&mut node);
        // One takes what waits for it, the others do not.
        for _ in 0..300 {
            node.receive(sessions[0].link);
            node.turn();
        }
        let is_held = |node: &Node| sessions.iter().filter(|it| node.is_held(it.link)).count();
        assert_eq!(is_held(&node), closing - 1);
        node.pass(Duration::from_secs(6));
        assert_eq!(is_held(&node), 0);
        steps
    };
    let [once, twice] = [100, 200].map(steps);
    assert!(twice <= once + 50, "{once} steps beside 100, {twice} beside 200");
}
