//! What one connection may send and leave unread: nothing of it may take the server's stack, its memory, or the
//! turn of others.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use crate::node::Node;

fn connect(node: &Node) -> TcpStream {
    let stream = TcpStream::connect(node.address()).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a valid time");
    stream
}

/// Reads one answer whose length is told; answers its status and body.
fn read_answer(stream: &mut impl BufRead) -> (u16, String) {
    let mut line = String::new();
    stream.read_line(&mut line).expect("an answer");
    let status = line.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a status");
    let mut length = 0;
    while line != "\r\n" {
        line.clear();
        stream.read_line(&mut line).expect("a whole head");
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().expect("a number");
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).expect("a whole body");
    (
        status,
        String::from_utf8(body).unwrap_or_else(|error| panic!("no text: {}", error.utf8_error())),
    )
}

/// Requests that the shard answers by itself, with what they say.
fn pings(count: usize) -> String {
    let ping = |number: usize| {
        let body = number.to_string();
        let length = body.len();
        let head = "POST /v1/request?topic=$server/ping HTTP/1.1\r\nHost: localhost";
        format!("{head}\r\nContent-Length: {length}\r\n\r\n{body}")
    };
    (0..count).map(ping).collect()
}

#[test]
fn pipelined_requests_are_answered_in_order_however_many() {
    let node = Node::start("[engine]\nshards = 1");
    for count in [1_000, 100_000] {
        let stream = connect(&node);
        let mut writer = stream.try_clone().expect("open");
        let writing = std::thread::spawn(move || writer.write_all(pings(count).as_bytes()));
        let mut reader = BufReader::new(stream);
        for number in 0..count {
            assert_eq!(read_answer(&mut reader), (200, number.to_string()));
        }
        writing.join().expect("no panic").expect("open");
    }
}

#[test]
fn who_sends_nothing_more_is_answered_all_that_was_asked() {
    const COUNT: usize = 3_000;
    for shards in [1, 2] {
        let node = Node::start(&format!("[engine]\nshards = {shards}"));
        // What the shard answers itself, and what the API does.
        let health = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(COUNT);
        for (text, is_ping) in [(pings(COUNT), true), (health, false)] {
            let stream = connect(&node);
            let mut writer = stream.try_clone().expect("open");
            let writing = std::thread::spawn(move || {
                writer.write_all(text.as_bytes()).expect("open");
                writer.shutdown(Shutdown::Write).expect("open");
            });
            let mut reader = BufReader::new(stream);
            for number in 0..COUNT {
                let (status, body) = read_answer(&mut reader);
                assert_eq!(status, 200);
                assert!(!is_ping || body == number.to_string(), "{body} is no answer to {number}");
            }
            assert_eq!(reader.read(&mut [0]).expect("open"), 0, "the server ends it then");
            writing.join().expect("no panic");
        }
        // Of a request that is not whole nothing is to be answered.
        let mut stream = connect(&node);
        stream.write_all(b"GET /health HTTP/1.1\r\nHost").expect("open");
        stream.shutdown(Shutdown::Write).expect("open");
        assert_eq!(stream.read(&mut [0]).expect("open"), 0);
    }
}

#[test]
fn pipelined_requests_of_every_kind_keep_their_order() {
    let node = Node::start("[engine]\nshards = 2");
    let kinds = [
        ("GET /v1/devices/challenge", "", 200),
        ("GET /health", "", 200),
        ("POST /v1/commands", "{}", 400),
        ("PUT /v1/sse", "", 405),
        ("POST /v1/publish", r#"{"topic":"t","data":1}"#, 200),
        ("POST /v1/request?topic=$server/ping", "7", 200),
        ("GET /v1/nothing", "", 404),
    ];
    let mut text = String::new();
    for _ in 0..200 {
        for (head, body, _) in kinds {
            let length = body.len();
            text += &format!(
                "{head} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}"
            );
        }
    }
    let stream = connect(&node);
    let mut writer = stream.try_clone().expect("open");
    let writing = std::thread::spawn(move || writer.write_all(text.as_bytes()));
    let mut reader = BufReader::new(stream);
    for round in 0..200 {
        for (head, _, status) in kinds {
            assert_eq!(read_answer(&mut reader).0, status, "{head} in round {round}");
        }
    }
    writing.join().expect("no panic").expect("open");
}

#[test]
fn a_long_answer_is_made_as_it_is_taken() {
    const ANSWERS_BYTES_MAX: u64 = 256 << 10;
    const TEXT_BYTES: usize = 24 << 20;
    let limits =
        "payload_bytes_max = 33554432\nbody_bytes_max = 67108864\nmessage_bytes_max = 67108864";
    let node = Node::start(&format!(
        "[engine]\nshards = 1\n[limits]\n{limits}\n[[topics]]\nselector = \"#\"\nhistory_bytes = 67108864"
    ));
    let text = "long \u{e4}\n".repeat(TEXT_BYTES / 8);
    node.publish(&serde_json::json!({"topic": "long", "text": text}));
    for path in ["/v1/topics/long", "/v1/history/long"] {
        let mut stream = connect(&node);
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("open");
        stream.peek(&mut [0]).expect("an answer");
        // It comes after that: all of the answer would wait by now, had it been made at once.
        node.request("GET /metrics HTTP/1.1", "");
        let (status, body) = read_answer(&mut BufReader::new(stream));
        let body: serde_json::Value = serde_json::from_str(&body).expect("JSON");
        let told = body.get("publications").map_or(&body, |page| &page[0]);
        assert!(status == 200 && told["text"].as_str() == Some(&text), "{status}: not the text");
        let peak = node.metric("tidegate_answers_peak_bytes");
        assert!(peak <= ANSWERS_BYTES_MAX + (1 << 10), "{path}: {peak} bytes waited");
        assert!(peak > 0, "nothing was counted");
    }
}
