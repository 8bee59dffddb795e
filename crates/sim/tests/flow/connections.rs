//! Single connections: ends, deadlines, limits by address, bytes that come in parts.

use std::time::Duration;

use crate::node::{Carriage, HANDSHAKE, Node, Session, commands_of, frame, node_with_content};

#[test]
fn data_and_the_end_of_a_connection_that_come_together_end_the_session() {
    let mut node = Node::start(1, "");
    let link = node.connect();
    node.send(link, HANDSHAKE);
    node.turn();
    assert!(node.receive(link).starts_with("HTTP/1.1 101"));
    node.send(link, &frame(r#"{"type":"ping"}"#));
    node.network.borrow_mut().drop_link(link);
    node.turn();
    assert!(!node.is_held(link), "nothing will tell of the end again");
}

#[test]
fn a_client_that_left_while_its_input_waits_is_let_go_of() {
    let mut node = node_with_content(1);
    let row = r#"{"id":N,"type":"history","topic":"a"}"#;
    for carriage in [Carriage::Frames, Carriage::Records] {
        let session = Session::open(&mut node, carriage);
        session.say(&mut node, &commands_of(row, 2_000));
        node.turns(10);
        assert_eq!(node.counters().inputs_waiting, 1, "its answers are not taken");
        node.network.borrow_mut().drop_link(session.link);
        node.turn();
        assert!(!node.is_held(session.link), "{carriage:?}: it waits for somebody who is gone");
        node.turn();
        assert_eq!(node.counters().inputs_waiting, 0);
    }
}

#[test]
fn a_request_after_a_long_rest_may_come_in_two_pieces() {
    let config = "[limits]\nrequest_ms = 10000\nkeep_alive_ms = 60000";
    let mut node = Node::start(1, config);
    let link = node.connect();
    let ping =
        "POST /v1/request?topic=$server/ping HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n1234";
    node.send(link, ping.as_bytes());
    node.turn();
    assert!(node.receive(link).starts_with("HTTP/1.1 200"));
    node.pass(Duration::from_secs(30));
    let (first, second) = ping.split_at(20);
    node.send(link, first.as_bytes());
    node.pass(Duration::from_secs(5));
    node.send(link, second.as_bytes());
    node.pass(Duration::from_secs(1));
    assert!(node.receive(link).starts_with("HTTP/1.1 200"));
    // The limit holds all the same.
    node.send(link, first.as_bytes());
    node.pass(Duration::from_secs(13));
    assert!(node.receive(link).starts_with("HTTP/1.1 408"));
    assert!(!node.is_held(link));
}

#[test]
fn strangers_are_counted_by_the_address_of_their_connection_on_all_shards_together() {
    let config = "[limits]\nconnections_per_address_max = 2";
    let mut node = Node::start(2, config);
    let (one, other) = ([203, 0, 113, 5].into(), [203, 0, 113, 6].into());
    let connect = |node: &mut Node, shard, address| {
        let link = node.network.borrow_mut().connect_from(shard, address);
        node.turn();
        link
    };
    let links = [connect(&mut node, 0, one), connect(&mut node, 1, one)];
    let refused = connect(&mut node, 1, one);
    let answer = node.receive(refused);
    assert!(answer.starts_with("HTTP/1.1 429") && answer.contains("4113"), "{answer}");
    assert!(!node.is_held(refused));
    let others = [connect(&mut node, 0, other), connect(&mut node, 1, [127, 0, 0, 1].into())];
    assert!(links.iter().chain(&others).all(|link| node.is_held(*link)));
    node.network.borrow_mut().drop_link(links[0]);
    node.send(links[0], b"");
    node.turn();
    let again = connect(&mut node, 1, one);
    assert!(node.is_held(again), "one went");
}

#[test]
fn a_websocket_that_presents_no_token_is_closed_when_its_time_is_up_and_not_before() {
    let config = "[access]\nanonymous = \"none\"\n[limits]\nauthenticate_ms = 10000";
    let mut node = Node::start(1, config);
    let link = node.connect();
    node.send(link, HANDSHAKE);
    node.turn();
    assert!(node.receive(link).starts_with("HTTP/1.1 101"));
    node.send(link, &frame(r#"{"type":"ping"}"#));
    node.pass(Duration::from_secs(9));
    assert!(node.receive(link).contains("pong") && node.is_held(link));
    node.pass(Duration::from_secs(3));
    assert!(node.receive(link).contains("4305") && !node.is_held(link));
}

#[test]
fn a_continue_that_the_socket_takes_in_parts_arrives_whole() {
    const BODY: &str = r#"{"topic":"t","data":1}"#;
    let mut node = Node::start(1, "");
    let link = node.connect();
    node.network.borrow_mut().set_room(link, 10);
    let head = format!(
        "POST /v1/commands HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nExpect: 100-continue\r\n\
         Content-Length: {}\r\n\r\n",
        BODY.len()
    );
    node.send(link, head.as_bytes());
    let mut told = String::new();
    for _ in 0..10 {
        node.turn();
        told += &node.receive(link);
    }
    assert_eq!(told, "HTTP/1.1 100 Continue\r\n\r\n");
    node.send(link, BODY.as_bytes());
    for _ in 0..100 {
        node.turn();
        told += &node.receive(link);
    }
    assert_eq!(told.matches("HTTP/1.1 ").count(), 2, "{told}");
}

#[test]
fn a_message_that_trickles_in_is_cut_and_one_that_makes_it_in_time_is_not() {
    let mut node = Node::start(1, "[limits]\nmessage_ms = 20000");
    let link = node.connect();
    node.send(link, HANDSHAKE);
    node.turn();
    let ping = frame(r#"{"type":"ping"}"#);
    for (at, seconds) in [(0, 15), (1, 60)] {
        let (first, rest) = ping.split_at(5);
        node.send(link, first);
        node.pass(Duration::from_secs(seconds));
        // A byte now and then is a sign of life, not a message.
        node.send(link, &rest[..1]);
        node.pass(Duration::from_secs(1));
        node.send(link, &rest[1..]);
        node.pass(Duration::from_secs(1));
        let told = node.receive(link);
        assert_eq!(told.contains("pong"), at == 0, "{told}");
        assert_eq!(told.contains("4211"), at == 1, "{told}");
    }
    assert!(!node.is_held(link));
}

#[test]
fn an_answer_that_is_taken_too_slowly_ends() {
    let mut node = Node::start(1, "[limits]\nanswer_ms = 20000");
    let body = "x".repeat(10_000);
    let request = format!(
        "POST /v1/request?topic=$server/ping HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let (quick, slow) = (node.connect(), node.connect());
    node.send(quick, request.as_bytes());
    node.send(slow, request.as_bytes());
    let mut taken = 0;
    for _ in 0..30 {
        node.pass(Duration::from_secs(1));
        taken += node.receive(quick).len();
        let _ = node.network.borrow_mut().receive(slow, 100);
    }
    assert!(taken > body.len() && node.is_held(quick), "{taken} bytes of the answer");
    assert!(!node.is_held(slow), "it has had {} s", node.clocks.elapsed.as_secs());
}
