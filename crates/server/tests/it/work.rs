//! What each HTTP request costs grows with its size, not with the square of it, and none takes a turn of a shard for itself:
//! steps are counted, in the shards and in the API, not time. The commands of sessions are `sim/tests/flow.rs` and
//! `hub/tests/it/bounds.rs`.

use serde_json::{Value, json};

use crate::node::{Node, wait_until};

/// The most steps of a turn: what is taken of commands and mail, the largest thing that is begun last, and what goes on besides.
const STEPS_OF_A_TURN: u64 = 50_000 + 50_000;

/// How often each request is tried; the least of its costs counts.
const TRIES: usize = 5;

/// A node with 20,000 topics, one of them with 2,000 publications, and two large values.
fn node() -> Node {
    let limits = "page_len_max = 20000\nbatch_len_max = 20000\nhistory_page_len_max = 2000\nanswers_bytes_max = 4194304";
    let node = Node::start(&format!(
        "[engine]\nshards = 2\n[limits]\n{limits}\n[[topics]]\nselector = \"history\"\nhistory_count = 2000\n"
    ));
    let topics: Vec<String> = (0..20_000).map(|number| format!("many/{number}")).collect();
    let all = node.publish(&json!({"topics": topics, "data": 1}));
    assert_eq!(all["results"].as_array().map(Vec::len), Some(20_000));
    let one = json!({"topic": "history", "data": "x".repeat(50)});
    node.publish(&json!({"publications": vec![one; 2_000]}));
    for bytes in [LARGE, 2 * LARGE] {
        node.publish(&json!({"topic": format!("large/{bytes}"), "text": "x".repeat(bytes)}));
    }
    node
}

/// Bytes of a large payload; twice as many are the largest that may be.
const LARGE: usize = 1 << 19;

fn post(node: &Node, path: &str, body: &str) -> String {
    let (status, answer) = node.request(&format!("POST {path} HTTP/1.1"), body);
    assert!((200..300).contains(&status), "{status} {answer}");
    answer
}

fn get(node: &Node, path: &str) -> Value {
    let (status, answer) = node.request(&format!("GET {path} HTTP/1.1"), "");
    assert_eq!(status, 200, "{answer}");
    serde_json::from_str(&answer).expect("JSON")
}

fn len_of(answer: &Value, list: &str) -> usize {
    answer[list].as_array().map_or(0, Vec::len)
}

fn a_batch_is_published(node: &Node, count: usize) {
    let publication = |number: usize| json!({"topic": format!("many/{number}"), "data": number});
    let batch: Vec<Value> = (0..count).map(publication).collect();
    let answer = post(node, "/v1/publish", &json!({ "publications": batch }).to_string());
    assert_eq!(answer.matches("\"sequence\"").count(), count);
}

fn a_payload_is_published_to_many(node: &Node, count: usize) {
    let topics: Vec<String> = (0..count).map(|number| format!("many/{number}")).collect();
    let answer = post(node, "/v1/publish", &json!({"topics": topics, "data": 1}).to_string());
    assert_eq!(answer.matches("\"sequence\"").count(), count);
}

fn a_large_payload_is_published(node: &Node, bytes: usize) {
    post(
        node,
        "/v1/publish",
        &json!({"topic": "large/new", "text": "x".repeat(bytes)}).to_string(),
    );
}

fn a_history_is_read(node: &Node, count: usize) {
    let answer = get(node, &format!("/v1/history/history?limit={count}"));
    assert_eq!(len_of(&answer, "publications"), count);
}

fn topics_are_listed(node: &Node, count: usize) {
    let answer = get(node, &format!("/v1/topics?selector=many/%23&limit={count}"));
    assert_eq!(len_of(&answer, "topics"), count);
}

fn a_table_is_read(node: &Node, count: usize) {
    let answer = get(node, &format!("/v1/topics?selector=many/%23&values=true&limit={count}"));
    assert_eq!(answer["topics"].as_array().map(Vec::len), Some(count));
    assert!(answer["topics"][count - 1]["data"].is_number());
}

fn a_body_is_put(node: &Node, bytes: usize) {
    let (status, answer) = node.request("PUT /v1/topics/large/put HTTP/1.1", &"x".repeat(bytes));
    assert_eq!(status, 200, "{answer}");
}

fn a_raw_value_is_read(node: &Node, bytes: usize) {
    let (status, body) = node.request(&format!("GET /v1/topics/large/{bytes}?raw HTTP/1.1"), "");
    assert_eq!((status, body.len()), (200, bytes));
}

fn a_value_is_read(node: &Node, bytes: usize) {
    let answer = get(node, &format!("/v1/topics/large/{bytes}"));
    assert_eq!(answer["text"].as_str().map(str::len), Some(bytes));
}

fn a_request_is_answered(node: &Node, bytes: usize) {
    let answer = post(node, "/v1/request?topic=$server/ping", &"x".repeat(bytes));
    assert_eq!(answer.len(), bytes);
}

fn a_poll_is_answered(node: &Node, count: usize) {
    let (mut told, mut path) = (0, format!("/v1/poll?topic=history&from=last:{count}"));
    for batch in 1.. {
        let answer = post(node, &path, "");
        told += answer.matches("\"publication\"").count();
        if told >= count {
            break;
        }
        if let Some((_, rest)) = answer.split_once("\"key\":\"") {
            let key = rest.split('"').next().expect("a key");
            path = format!("/v1/poll?session={key}");
        }
        let session = path.split("&batch").next().expect("a path").to_owned();
        path = format!("{session}&batch={batch}");
    }
    assert_eq!(told, count);
}

/// Commands of one body, of which nothing is told and nothing goes to another shard.
fn commands_are_carried_out(node: &Node, count: usize) {
    let answer = post(node, "/v1/poll", "");
    let key = answer.split("\"key\":\"").nth(1).and_then(|rest| rest.split('"').next());
    let command = "{\"type\":\"respond\",\"request\":1,\"data\":1}\n";
    let before = node.metric("tidegate_commands_total");
    let path = format!("/v1/commands?session={}", key.expect("a key"));
    post(node, &path, &command.repeat(count));
    wait_until("all commands are carried out", || {
        node.metric("tidegate_commands_total") - before == count as u64
    });
}

#[test]
fn what_a_request_costs_grows_with_its_size() {
    type Row = (&'static str, fn(&Node, usize), usize, u64);
    // With the size, and the steps that each of it may take.
    let rows: [Row; 12] = [
        ("publish a batch", a_batch_is_published, 10_000, 60),
        ("publish to many", a_payload_is_published_to_many, 10_000, 60),
        ("publish much", a_large_payload_is_published, LARGE, 1),
        ("read a history", a_history_is_read, 1_000, 60),
        ("list topics", topics_are_listed, 10_000, 60),
        ("read a table", a_table_is_read, 10_000, 60),
        ("put a body", a_body_is_put, LARGE, 1),
        ("read a raw value", a_raw_value_is_read, LARGE, 1),
        ("read a value", a_value_is_read, LARGE, 1),
        ("ask", a_request_is_answered, LARGE, 1),
        ("poll", a_poll_is_answered, 1_000, 60),
        ("send commands", commands_are_carried_out, 10_000, 60),
    ];
    let node = node();
    // Asking for the counts is counted too, and little.
    let steps = || {
        let of_shards = node.metric("tidegate_work_total");
        of_shards + node.metric("tidegate_api_work_total")
    };
    let mut broken = Vec::new();
    for (name, act, size, steps_each) in rows {
        let mut taken = [0; 2];
        for (times, taken) in [1, 2].into_iter().zip(&mut taken) {
            // Timing only adds: what a poll leaves of what was gathered, say, the next one gathers again.
            let tries = (0..TRIES).map(|_| {
                let before = steps();
                act(&node, times * size);
                steps() - before
            });
            *taken = tries.min().expect("at least one");
        }
        let [once, twice] = taken;
        println!("{name}: {once}, {twice}");
        let is_bounded = once <= steps_each * size as u64 && once >= size as u64 / 64;
        if twice as f64 > 2.3 * once as f64 || !is_bounded {
            broken.push(format!("{name}: {once} steps for {size}, {twice} for twice as many"));
        }
    }
    let peak = node.metric("tidegate_work_per_turn_peak");
    println!("{peak} steps in a turn at the most, of both shards together");
    assert!(broken.is_empty(), "{broken:#?}");
    assert!(peak <= 2 * STEPS_OF_A_TURN, "{peak} steps in a turn");
}
