//! What each HTTP request and each command costs grows with its size, not with the square of it, and none takes a turn of a shard
//! for itself: steps are counted, in the shards and in the API, not time. Many commands together are `sim/tests/flow`, those
//! beside many others `hub/tests/it/bounds.rs`.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use model::{Command, Limits};
use protocol::native::json as native;
use serde_json::{Value, json};

use crate::http_sessions::Stream;
use crate::node::{Node, Peer, request, wait_until};

/// The most steps of a turn: what is taken of commands and mail, the largest thing that is begun last, and what goes on besides.
const STEPS_OF_A_TURN: u64 = 50_000 + 50_000;

/// How often each request is tried; the least of its costs counts.
const TRIES: usize = 5;

const KEY: &str = "administrator-key-0123456789";

/// A node with 20,000 topics, one of them with 8,000 publications, two large values, and 1,000 devices of a session, which is
/// kept open.
fn node() -> (Node, Peer) {
    let limits = "page_len_max = 20000\nbatch_len_max = 20000\nhistory_page_len_max = 2000\nanswers_bytes_max = 4194304\n\
        subscriptions_per_session_max = 20000\nhandlers_per_session_max = 20000\ndevices_per_session_max = 1000\n\
        subscriber_positions_max = 20000\noverlap_steps_max = 1000000\n";
    let node = Node::start(&format!(
        "[engine]\nshards = 2\n[diagnostics]\necho = true\nhiccups = true\n[limits]\n{limits}\
         [[topics]]\nselector = \"history\"\nhistory_count = 8000\n\
         [[applications]]\nid = \"meters\"\n[[applications.keys]]\nid = \"k\"\nkey = \"{KEY}\"\nroles = [\"admin\"]\n"
    ));
    let topics: Vec<String> = (0..20_000).map(|number| format!("many/{number}")).collect();
    let all = node.publish(&json!({"topics": topics, "data": 1}));
    assert_eq!(all["results"].as_array().map(Vec::len), Some(20_000));
    let one = json!({"topic": "history", "data": "x".repeat(50)});
    node.publish(&json!({"publications": vec![one; 8_000]}));
    for bytes in [LARGE, 2 * LARGE] {
        node.publish(&json!({"topic": format!("large/{bytes}"), "text": "x".repeat(bytes)}));
    }
    let mut gateway = node.socket();
    let authorization = format!("Bearer {KEY}");
    for number in 0..1_000 {
        let device = format!("meters/d{number:04}");
        let attach = json!({"type": "attach", "device": device, "authorization": authorization});
        assert_eq!(gateway.ask(&attach)["type"], "attached");
    }
    (node, gateway)
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
    is_polled(node, "POST", count);
}

fn a_history_is_polled(node: &Node, count: usize) {
    is_polled(node, "GET", count);
}

fn is_polled(node: &Node, method: &str, count: usize) {
    let (mut told, mut path) = (0, format!("/v1/poll?topic=history&from=last:{count}"));
    for batch in 1.. {
        let (status, answer) = node.request(&format!("{method} {path} HTTP/1.1"), "");
        assert_eq!(status, 200, "{answer}");
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

/// Reads a response that goes on, until it told so many publications of a history.
fn told_by(node: &Node, method: &str, path: &str, count: usize) {
    let head = format!("{method} {path}?topic=history&from=last:{count} HTTP/1.1");
    let mut stream = Stream::open(node, &head, "", "");
    (0..count).for_each(|_| drop(stream.record_of("publication")));
}

fn a_stream_of_events_is_told(node: &Node, count: usize) {
    told_by(node, "GET", "/v1/sse", count);
}

fn a_stream_of_events_is_told_to_a_post(node: &Node, count: usize) {
    told_by(node, "POST", "/v1/sse", count);
}

fn a_stream_of_lines_is_told(node: &Node, count: usize) {
    told_by(node, "GET", "/v1/stream", count);
}

fn a_stream_of_lines_is_told_to_a_post(node: &Node, count: usize) {
    told_by(node, "POST", "/v1/stream", count);
}

/// The same request with many bytes in its head.
fn with_a_long_head(node: &Node, method: &str, path: &str, bytes: usize) {
    let field = format!("x-long: {}", "x".repeat(bytes));
    let head = format!("{method} {path} HTTP/1.1\r\nAuthorization: Bearer {KEY}\r\n{field}");
    let (status, answer) = request(node.address(), &head, "");
    assert!(status < 500 && status != 431, "{method} {path}: {status} {answer}");
}

/// Nobody is slow: those who are, are `hub/tests/it/bounds.rs`.
fn the_slow_are_listed(node: &Node, count: usize) {
    let answer = get(node, &format!("/v1/slow?limit={count}"));
    assert!(answer["slow"].is_array(), "{answer}");
}

/// The sessions are those of sockets that are open meanwhile.
fn sessions_are_listed(node: &Node, count: usize) {
    let peers: Vec<Peer> = (0..count).map(|_| node.socket()).collect();
    let answer = get(node, &format!("/v1/sessions?limit={count}"));
    assert!(len_of(&answer, "sessions") > 0 && peers.len() == count, "{answer}");
}

fn of_application(node: &Node, line: &str, body: &str) -> (u16, String) {
    request(node.address(), &format!("{line} HTTP/1.1\r\nAuthorization: Bearer {KEY}"), body)
}

fn devices_are_listed(node: &Node, count: usize) {
    let (status, answer) =
        of_application(node, &format!("GET /v1/devices?application=meters&limit={count}"), "");
    assert_eq!((status, answer.matches("\"device\"").count()), (200, count), "{answer}");
}

/// What is sent to a device that is not there is refused once it is here.
fn a_device_is_sent_much(node: &Node, bytes: usize) {
    let line = "POST /v1/devices/never/send?application=meters";
    assert_eq!(of_application(node, line, &"x".repeat(bytes)).0, 404);
}

/// Events of a device that attaches with a request that stays open.
fn a_device_tells_events(node: &Node, count: usize) {
    let mut stream = TcpStream::connect(node.address()).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a valid time");
    let head = format!(
        "POST /v1/devices/attach?application=meters&device=own HTTP/1.1\r\nHost: localhost\r\n\
         Authorization: Bearer {KEY}\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).expect("open");
    let events = "2\r\nE1\r\n".repeat(count);
    stream.write_all(format!("{events}1\r\nD\r\n0\r\n\r\n").as_bytes()).expect("open");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it ends");
    assert!(answer.contains(" 200 "), "{answer}");
}

/// Messages for a device that is not there, each with its answer.
fn a_device_is_asked_by_a_websocket(node: &Node, count: usize) {
    let authorization = format!("Bearer {KEY}");
    let path = "/v1/devices/never/ws?application=meters";
    let mut peer = node.socket_at(path, &[("authorization", &authorization)]).expect("it opens");
    let message = json!(1);
    for _ in 0..count / 50 {
        peer.say_all(&[&message; 50]);
        (0..50).for_each(|_| assert_eq!(peer.hear()["code"], 4223));
    }
}

fn a_message_is_echoed(node: &Node, bytes: usize) {
    let mut peer = node.socket_at("/diagnostics/echo", &[]).expect("it opens");
    let message = json!("x".repeat(bytes));
    assert_eq!(peer.ask(&message), message);
}

/// Each kind of command at a size: what has to be said before, and the command, whose answer has the id 7.
fn command_of(kind: &str, size: usize) -> (Vec<Value>, Value) {
    let names = |start: &str| (0..size).map(|it| format!("{start}/{it}")).collect::<Vec<_>>();
    let positions = |names: Vec<String>| -> Value {
        let position = json!({"epoch": "e", "sequence": 1});
        names
            .into_iter()
            .map(|name| (name, position.clone()))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    let text = "x".repeat(size);
    match kind {
        "hello" => (vec![], json!({"type": "hello", "client": text})),
        "subscribe" => {
            (vec![], json!({"type": "subscribe", "topics": names("new"), "from": "now"}))
        }
        "unsubscribe" => (
            vec![json!({"type": "subscribe", "topics": names("new"), "from": "now"})],
            json!({"type": "unsubscribe", "topics": names("new")}),
        ),
        "publish" => (vec![], json!({"type": "publish", "topic": "large/new", "text": text})),
        "history" => {
            (vec![], json!({"type": "history", "topic": "history", "last": size, "limit": size}))
        }
        "acknowledge" => (
            vec![],
            json!({"type": "acknowledge", "name": "n", "positions": positions(names("many"))}),
        ),
        "handle" => (vec![], json!({"type": "handle", "topics": names("handled")})),
        "unhandle" => (
            vec![json!({"type": "handle", "topics": names("handled")})],
            json!({"type": "unhandle", "topics": names("handled")}),
        ),
        "request" => (vec![], json!({"type": "request", "topic": "$server/ping", "text": text})),
        "respond" => (vec![], json!({"type": "respond", "request": 1, "text": text})),
        "attach" => {
            (vec![], json!({"type": "attach", "device": "meters/x", "authorization": text}))
        }
        "detach" => (vec![], json!({"type": "detach", "device": format!("meters/{text}")})),
        "ping" => (vec![], json!({"type": "ping", "unknown": text})),
        "close" => (vec![], json!({"type": "close", "unknown": text})),
        _ => panic!("no command: {kind}"),
    }
}

/// The commands with a size of each at which the second is near the largest that is taken, and the steps that each of it may take.
const COMMANDS: &[(&str, usize, u64)] = &[
    ("hello", LARGE, 1),
    ("subscribe", 5_000, 60),
    ("unsubscribe", 5_000, 60),
    ("publish", LARGE, 1),
    ("history", 500, 60),
    ("acknowledge", 500, 60),
    ("handle", 500, 60),
    ("unhandle", 500, 60),
    ("request", LARGE, 1),
    ("respond", LARGE, 1),
    ("attach", LARGE, 1),
    ("detach", LARGE, 1),
    ("close", LARGE, 1),
    ("ping", LARGE, 1),
];

/// Steps of a command, and of nothing else of its session.
fn steps_of_command(node: &Node, kind: &str, size: usize) -> u64 {
    let (first, mut command) = command_of(kind, size);
    let mut peer = node.socket();
    for said in first {
        peer.ask(&said);
    }
    command["id"] = 7.into();
    let (decoded, limits) = (command.to_string(), Limits::default());
    match native::decode_command(&decoded, &limits) {
        Ok((_, decoded)) => assert_eq!(decoded.kind(), kind),
        // Beyond what the limits of a command allow elsewhere: it is refused, for as little.
        Err(undecoded) => assert!(kind == "detach" || kind == "attach", "{kind}: {undecoded:?}"),
    }
    let before = steps(node);
    match kind {
        "close" => {
            peer.say(&command);
            peer.hear_end();
        }
        _ => {
            peer.say(&command);
            while peer.hear()["id"] != 7 {}
        }
    }
    steps(node) - before
}

fn a_session_sends_commands(node: &Node, count: usize) {
    let mut peer = node.socket();
    let command = json!({"type": "respond", "id": 1, "request": 1, "data": 1});
    for _ in 0..count / 50 {
        peer.say_all(&[&command; 50]);
        (0..50).for_each(|_| assert_eq!(peer.hear()["id"], 1));
    }
}

/// Steps so far. Asking for them is counted too, and little.
fn steps(node: &Node) -> u64 {
    node.metric("tidegate_work_steps_total") + node.metric("tidegate_api_work_steps_total")
}

/// A request, what does it at a size, that size, and the steps that each of it may take.
type Row = (&'static str, fn(&Node, usize), usize, u64);

const ROWS: &[Row] = &[
    ("POST /v1/publish", a_batch_is_published, 10_000, 60),
    ("POST /v1/publish", a_payload_is_published_to_many, 10_000, 60),
    ("POST /v1/publish", a_large_payload_is_published, LARGE, 1),
    ("GET /v1/history/{*topic}", a_history_is_read, 1_000, 60),
    ("GET /v1/topics", topics_are_listed, 10_000, 60),
    ("GET /v1/topics", a_table_is_read, 10_000, 60),
    ("GET /v1/topics/{*topic}", a_value_is_read, LARGE, 1),
    ("GET /v1/topics/{*topic}", a_raw_value_is_read, LARGE, 1),
    ("PUT /v1/topics/{*topic}", a_body_is_put, LARGE, 1),
    ("POST /v1/request", a_request_is_answered, LARGE, 1),
    ("GET /v1/poll", a_history_is_polled, 4_000, 60),
    ("POST /v1/poll", a_poll_is_answered, 4_000, 60),
    ("POST /v1/commands", commands_are_carried_out, 10_000, 60),
    ("GET /v1/sse", a_stream_of_events_is_told, 4_000, 60),
    ("POST /v1/sse", a_stream_of_events_is_told_to_a_post, 4_000, 60),
    ("GET /v1/stream", a_stream_of_lines_is_told, 4_000, 60),
    ("POST /v1/stream", a_stream_of_lines_is_told_to_a_post, 4_000, 60),
    ("GET /v1/slow", the_slow_are_listed, 50, 60),
    ("GET /v1/sessions", sessions_are_listed, 100, 600),
    ("GET /v1/devices", devices_are_listed, 500, 60),
    ("POST /v1/devices/{device}/send", a_device_is_sent_much, LARGE, 1),
    ("POST /v1/devices/attach", a_device_tells_events, 1_000, 100),
    ("WebSocket /v1/devices/{device}/ws", a_device_is_asked_by_a_websocket, 500, 200),
    ("WebSocket /diagnostics/echo", a_message_is_echoed, LARGE, 1),
    ("WebSocket /v1/ws", a_session_sends_commands, 5_000, 60),
];

/// Requests that take no more than their head says, with a path of each.
const HEADS: &[(&str, &str)] = &[
    ("GET /", "/"),
    ("GET /demo", "/demo"),
    ("GET /favicon.ico", "/favicon.ico"),
    ("GET /page/{*path}", "/page/app.js"),
    ("GET /health", "/health"),
    ("GET /ready", "/ready"),
    ("GET /metrics", "/metrics"),
    ("GET /diagnostics/hiccups", "/diagnostics/hiccups"),
    ("GET /v1/devices/challenge", "/v1/devices/challenge"),
    ("GET /v1/devices/{device}", "/v1/devices/d0001?application=meters"),
    ("POST /v1/devices/{device}/key", "/v1/devices/d0001/key?application=meters"),
    ("GET /v1/applications/{application}/stats", "/v1/applications/meters/stats"),
];

#[test]
fn every_path_and_every_command_has_a_row() {
    let rows = ROWS.iter().map(|(path, ..)| *path).chain(HEADS.iter().map(|(path, _)| *path));
    let rows: Vec<&str> = rows.collect();
    for (method, path) in tidegate_server::paths() {
        assert!(rows.contains(&format!("{method} {path}").as_str()), "{method} {path}");
    }
    let kinds: Vec<&str> = COMMANDS.iter().map(|(kind, ..)| *kind).collect();
    assert_eq!(kinds, Command::KINDS);
}

/// The least steps of some tries: timing only adds; what a poll leaves of what was gathered, say, the next one gathers again.
fn least(mut steps: impl FnMut() -> u64) -> u64 {
    (0..TRIES).map(|_| steps()).min().expect("at least one")
}

/// Rounds of tries in which a cost may show its least; a cost that grows too fast does so in all of them.
const ROUNDS: usize = 4;

/// What is wrong with what something costs at a size and at twice that.
fn check(name: &str, size: usize, steps_each: u64, cost: impl Fn(usize) -> u64) -> Option<String> {
    let (mut once, mut twice) = (u64::MAX, u64::MAX);
    for _ in 0..ROUNDS {
        let [this_once, this_twice] = [size, 2 * size].map(|size| least(|| cost(size)));
        (once, twice) = (once.min(this_once), twice.min(this_twice));
        let is_bounded = once <= steps_each * size as u64 + 500 && once >= size as u64 / 64;
        if is_bounded && twice as f64 <= 2.3 * once as f64 + 500.0 {
            println!("{name}: {once}, {twice}");
            return None;
        }
    }
    Some(format!("{name}: {once} steps for {size}, {twice} for twice as many"))
}

#[test]
fn what_a_request_costs_grows_with_its_size() {
    const HEAD_BYTES: usize = 7 << 10;
    let (node, _gateway) = node();
    let mut broken = Vec::new();
    for (name, act, size, steps_each) in ROWS {
        let cost = |size| {
            let before = steps(&node);
            act(&node, size);
            steps(&node) - before
        };
        broken.extend(check(name, *size, *steps_each, cost));
    }
    for (name, path) in HEADS {
        let method = name.split(' ').next().expect("a method");
        let cost = |size| {
            let before = steps(&node);
            with_a_long_head(&node, method, path, size);
            steps(&node) - before
        };
        broken.extend(check(name, HEAD_BYTES, 1, cost));
    }
    for (kind, size, steps_each) in COMMANDS {
        broken.extend(check(kind, *size, *steps_each, |size| steps_of_command(&node, kind, size)));
    }
    let peak = node.metric("tidegate_turn_peak_steps");
    println!("{peak} steps in a turn at the most, of both shards together");
    assert!(broken.is_empty(), "{broken:#?}");
    assert!(peak <= 2 * STEPS_OF_A_TURN, "{peak} steps in a turn");
}

/// What a scrape costs on a node with so many topics and sessions: steps, and lines.
fn scrape(count: usize) -> (u64, usize) {
    let node = Node::start("[engine]\nshards = 2\n");
    let topics: Vec<String> = (0..count).map(|number| format!("many/{number}")).collect();
    node.publish(&json!({"topics": topics, "data": 1}));
    let mut peers: Vec<Peer> = (0..count).map(|_| node.socket()).collect();
    for (number, peer) in peers.iter_mut().enumerate() {
        let topics = [format!("many/{number}"), format!("own/{number}/+")];
        peer.ask(&json!({"type": "subscribe", "topics": topics, "from": "now"}));
    }
    let (_, text) = node.request("GET /metrics HTTP/1.1", "");
    assert_eq!(node.metric("tidegate_sessions"), count as u64);
    let cost = least(|| {
        let before = steps(&node);
        steps(&node) - before
    });
    (cost, text.lines().count())
}

#[test]
fn a_scrape_costs_the_same_however_many_topics_and_sessions_there_are() {
    let [few, many] = [10, 1_000].map(scrape);
    println!("{few:?}, {many:?}");
    assert_eq!(few, many);
}
