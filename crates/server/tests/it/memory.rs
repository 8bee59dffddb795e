//! Where memory is used up, every way to use more of it is refused with one code, and what is there goes on.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_server::Memory;

use crate::node::Node;

const BUDGET: usize = 100 << 20;
const OUT_OF_MEMORY: u64 = 4106;

fn node(memory: &Memory) -> Node {
    Node::start_in(memory, "[engine]\nshards = 2")
}

fn code_of(body: &str) -> Value {
    serde_json::from_str::<Value>(body).expect("JSON")["code"].clone()
}

#[test]
fn every_verb_of_a_session_that_would_use_memory_is_refused() {
    let memory = Memory::fixed(BUDGET);
    let node = node(&memory);
    node.publish(&json!({"topic": "kept", "data": 1}));
    let mut peer = node.socket();
    memory.set_used(BUDGET as u64);
    let commands = [
        json!({"id": 1, "type": "publish", "topic": "kept", "data": 2}),
        json!({"id": 1, "type": "publish", "topic": "new", "data": 2}),
        json!({"id": 1, "type": "subscribe", "topic": "kept"}),
        json!({"id": 1, "type": "subscribe", "topic": "#"}),
        json!({"id": 1, "type": "history", "topic": "kept"}),
        json!({"id": 1, "type": "handle", "topic": "asked"}),
        json!({"id": 1, "type": "request", "topic": "asked", "data": 1}),
    ];
    for command in &commands {
        let refused = peer.ask(command);
        let told = (&refused["type"], &refused["id"], &refused["code"]);
        assert_eq!(told, (&json!("refused"), &json!(1), &json!(OUT_OF_MEMORY)), "{command}");
    }
    assert_eq!(peer.ask(&json!({"type": "ping"}))["type"], "pong");
    assert_eq!(node.metric("tidegate_memory_refusals_total"), commands.len() as u64);
    memory.set_used(0);
    for command in &commands[..4] {
        assert_ne!(peer.ask(command)["type"], "refused", "{command}");
    }
}

#[test]
fn every_request_that_would_use_memory_is_refused() {
    let memory = Memory::fixed(BUDGET);
    let node = node(&memory);
    node.publish(&json!({"topic": "kept", "data": 1}));
    memory.set_used(BUDGET as u64);
    let broadcast = r#"{"topics":["a","b","c"],"text":"x"}"#;
    let cases = [
        ("POST /v1/publish HTTP/1.1", r#"{"topic":"kept","data":1}"#),
        ("POST /v1/publish HTTP/1.1", broadcast),
        ("POST /v1/request?topic=a HTTP/1.1", "{}"),
        ("POST /v1/poll?topic=kept HTTP/1.1", ""),
        ("GET /v1/sse?topic=kept HTTP/1.1", ""),
        ("GET /v1/topics/kept HTTP/1.1", ""),
        ("GET /v1/topics HTTP/1.1", ""),
        ("GET /v1/history/kept HTTP/1.1", ""),
    ];
    for (head, body) in cases {
        let (status, answer) = node.request(head, body);
        assert_eq!((status, code_of(&answer)), (503, json!(OUT_OF_MEMORY)), "{head}: {answer}");
    }
    assert_eq!(node.request("GET /health HTTP/1.1", "").0, 200);
    assert_eq!(node.request("GET /metrics HTTP/1.1", "").0, 200);
    assert!(node.socket_at("/v1/ws", &[]).is_err(), "no new session");
    memory.set_used(0);
    assert_eq!(node.request(cases[0].0, cases[0].1).0, 200);
}

#[test]
fn the_topics_of_a_broadcast_that_find_no_room_are_refused_each() {
    let memory = Memory::fixed(BUDGET);
    let node = node(&memory);
    // Room for the request as it is decoded, but not for what is kept.
    let body = json!({"topics": ["a", "b", "c"], "text": "x"});
    memory.set_used(BUDGET as u64 - 200);
    let answer = node.publish(&body);
    let results = answer["results"].as_array().expect("a list");
    let codes: Vec<&Value> = results.iter().map(|result| &result["code"]).collect();
    assert_eq!(codes, [OUT_OF_MEMORY; 3]);
}

#[test]
fn a_body_for_which_no_room_is_left_is_refused_as_it_arrives() {
    let memory = Memory::fixed(BUDGET);
    let node = Node::start_in(&memory, "[engine]\nshards = 1");
    for (head, piece) in
        [("Content-Length: 3000000", ""), ("Transfer-Encoding: chunked", "10000\r\n")]
    {
        memory.set_used(0);
        let mut stream = TcpStream::connect(node.address()).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a valid time");
        let head = format!("POST /v1/publish HTTP/1.1\r\nHost: localhost\r\n{head}\r\n\r\n{piece}");
        stream.write_all(head.as_bytes()).expect("open");
        // The server has read the head once it answers something else.
        assert_eq!(node.request("GET /health HTTP/1.1", "").0, 200);
        memory.set_used(BUDGET as u64);
        let mut answer = String::new();
        stream.write_all(&[b'x'; 50_000]).expect("open");
        stream.read_to_string(&mut answer).expect("an answer to the end");
        assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("4106"), "{answer}");
    }
}

#[test]
fn an_announced_body_that_cannot_fit_is_refused_before_it_arrives() {
    let memory = Memory::fixed(BUDGET);
    let node = node(&memory);
    memory.set_used(BUDGET as u64 - 2_000_000);
    let mut stream = TcpStream::connect(node.address()).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a valid time");
    let head = "POST /v1/publish HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3000000\r\n\r\n";
    stream.write_all(head.as_bytes()).expect("open");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer to the end");
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("4106"), "{answer}");
}

#[test]
fn a_message_that_arrives_in_part_is_let_go_of() {
    let memory = Memory::fixed(BUDGET);
    let node = node(&memory);
    let mut peer = node.socket();
    memory.set_used(BUDGET as u64);
    // The head of a masked text frame of 1,000,000 bytes, and a part of it.
    let mut part = vec![0x81, 0xFF, 0, 0, 0, 0, 0, 0x0F, 0x42, 0x40, 0, 0, 0, 0];
    part.resize(40_000, b' ');
    peer.write_bytes(&part);
    assert_eq!(peer.hear_end().0, OUT_OF_MEMORY);
}

#[test]
fn an_answer_for_which_no_room_is_left_is_refused() {
    let memory = Memory::fixed(BUDGET);
    let node = node(&memory);
    let (mut handler, mut asker) = (node.socket(), node.socket());
    handler.ask(&json!({"id": 1, "type": "handle", "topic": "asked"}));
    asker.say(&json!({"id": 2, "type": "request", "topic": "asked", "data": 1}));
    let asked = handler.hear();
    memory.set_used(BUDGET as u64 - 1_000);
    handler
        .say(&json!({"type": "respond", "request": asked["request"], "text": "r".repeat(1_000)}));
    let refused = asker.hear();
    assert_eq!((&refused["id"], &refused["code"]), (&json!(2), &json!(OUT_OF_MEMORY)));
}

#[test]
fn a_reader_goes_on_reading() {
    let memory = Memory::fixed(BUDGET);
    let node = node(&memory);
    let mut peer = node.socket();
    peer.ask(&json!({"type": "subscribe", "topic": "a"}));
    for number in 0..10 {
        memory.set_used(0);
        node.publish(&json!({"topic": "a", "data": number}));
        memory.set_used(BUDGET as u64);
        assert_eq!(peer.hear()["data"], number);
    }
}
