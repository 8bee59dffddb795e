//! `PUT /v1/topics/{topic}`, conditions, raw values and tables, as HTTP clients meet them.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::node::Node;

/// An answer: its status, its head and its body.
struct Answered {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Answered {
    fn field(&self, name: &str) -> Option<&str> {
        let start = format!("{name}: ");
        self.head.lines().find_map(|line| line.strip_prefix(start.as_str()))
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// Sends a request of a method, a target, fields and a body.
fn ask(node: &Node, request: &str, fields: &[&str], body: &[u8]) -> Answered {
    let mut stream = TcpStream::connect(node.address()).expect("it listens");
    let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
    let length = body.len();
    let head = format!(
        "{request} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n{fields}\r\n"
    );
    stream.write_all(&[head.as_bytes(), body].concat()).expect("open");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer to the end");
    let end = answer.windows(4).position(|some| some == b"\r\n\r\n").expect("a whole head");
    let head = String::from_utf8(answer[..end].to_vec()).expect("text");
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a status");
    Answered { status, head, body: answer[end + 4..].to_vec() }
}

fn put(node: &Node, topic: &str, fields: &[&str], body: &[u8]) -> Answered {
    ask(node, &format!("PUT /v1/topics/{topic}"), fields, body)
}

fn get(node: &Node, target: &str, fields: &[&str]) -> Answered {
    ask(node, &format!("GET /v1/topics/{target}"), fields, b"")
}

#[test]
fn a_body_that_is_put_is_published_and_read_back_as_it_was() {
    let node = Node::start("[engine]\nshards = 2\n");
    for (topic, media, body, kind, wanted) in [
        ("j", "application/json", &b"{\"a\": 1.10}"[..], "application/json", "data"),
        ("t", "text/html", b"<script>alert(1)</script>", "text/plain; charset=utf-8", "text"),
        ("b", "image/svg+xml", b"\x00\xff", "application/octet-stream", "base64"),
        ("empty", "text/plain", b"", "text/plain; charset=utf-8", "text"),
    ] {
        let content_type = format!("Content-Type: {media}");
        let answer = put(&node, topic, &[&content_type], body);
        assert_eq!(answer.status, 200, "{}", answer.head);
        let (said, tag) = (answer.json(), answer.field("etag").expect("a tag").to_owned());
        assert_eq!((&said["topic"], &said["level"]), (&json!(topic), &json!("memory")));
        let position = format!("\"{}:1\"", said["epoch"].as_str().expect("an epoch"));
        assert_eq!(tag, position);
        let envelope = get(&node, topic, &[]);
        assert!(envelope.json().get(wanted).is_some(), "{}", envelope.json());
        assert_eq!(envelope.field("etag"), Some(&*tag));
        let raw = get(&node, &format!("{topic}?raw"), &[]);
        assert_eq!((raw.status, &*raw.body), (200, body), "{topic}");
        assert_eq!(raw.field("content-type"), Some(kind));
        assert_eq!(raw.field("x-content-type-options"), Some("nosniff"));
        assert_eq!(raw.field("content-security-policy"), Some("sandbox"));
        assert_eq!(raw.field("content-disposition"), (wanted == "base64").then_some("attachment"));
        assert_eq!(
            (raw.field("etag"), raw.field("cache-control")),
            (Some(&*tag), Some("no-cache"))
        );
        let headed = ask(&node, &format!("HEAD /v1/topics/{topic}?raw=true"), &[], b"");
        assert_eq!(headed.field("content-length"), Some(&*body.len().to_string()));
        assert_eq!((headed.field("etag"), headed.body.len()), (Some(&*tag), 0));
    }
    assert_eq!(get(&node, "j?raw=false", &[]).json()["sequence"], 1);
    assert_eq!(get(&node, "j?raw=perhaps", &[]).json()["code"], 4210);
    assert_eq!(get(&node, "none?raw", &[]).json()["code"], 4212);
    // As curl sends what it is told nothing about.
    put(&node, "c", &["Content-Type: application/x-www-form-urlencoded"], b"hello");
    assert_eq!(get(&node, "c", &[]).json()["text"], "hello");
}

#[test]
fn conditions_and_keys_hold() {
    let node =
        Node::start("[engine]\nshards = 2\n[[topics]]\nselector = \"gone\"\nretain = false\n");
    let first = put(&node, "a", &["If-None-Match: *"], b"1");
    let tag = first.field("etag").expect("a tag").to_owned();
    assert_eq!(first.status, 200);
    let again = put(&node, "a", &["If-None-Match: *"], b"2");
    assert_eq!((again.status, &again.json()["code"]), (412, &json!(4235)), "there is something");
    let matching = format!("If-Match: {tag}");
    let key = "Idempotency-Key: \"k 1\"";
    let second = put(&node, "a", &[&matching, key], b"2");
    assert_eq!((second.status, &second.json()["sequence"]), (200, &json!(2)));
    let repeated = put(&node, "a", &[&matching, "Idempotency-Key: k 1"], b"2");
    assert_eq!(repeated.json(), second.json(), "a repeated request is answered like the first");
    assert_eq!(repeated.field("etag"), second.field("etag"));
    let late = put(&node, "a", &[&matching], b"3");
    assert_eq!((late.status, &late.json()["code"]), (412, &json!(4235)));
    for (condition, status) in [
        ("If-Match: \"another:2\"", 412),
        ("If-Match: W/\"another:2\"", 412),
        ("If-Match: *", 400),
        ("If-None-Match: \"x\"", 400),
    ] {
        assert_eq!(put(&node, "a", &[condition], b"3").status, status, "{condition}");
    }
    // Of a topic without a value: nothing matches, and `*` is about what was ever published.
    assert_eq!(put(&node, "new", &[&matching], b"1").status, 412);
    assert_eq!(put(&node, "gone", &["If-None-Match: *"], b"1").status, 200);
    assert_eq!(get(&node, "gone", &["If-None-Match: *"]).json()["code"], 4212);
    assert_eq!(put(&node, "gone", &["If-None-Match: *"], b"2").status, 412);
    let newest = second.field("etag").expect("a tag");
    for target in ["a", "a?raw"] {
        for list in [newest.to_owned(), format!("\"x\", W/{newest}"), "*".to_owned()] {
            let answer = get(&node, target, &[&format!("If-None-Match: {list}")]);
            assert_eq!((answer.status, answer.body.len()), (304, 0), "{list}: {}", answer.head);
            assert_eq!(answer.field("etag"), Some(newest), "{}", answer.head);
        }
        assert_eq!(get(&node, target, &[&format!("If-None-Match: {tag}")]).status, 200);
        assert_eq!(get(&node, target, &[&matching]).status, 412);
    }
}

#[test]
fn paths_name_topics_as_urls_write_them() {
    let node = Node::start("[engine]\nshards = 2\n");
    for (path, topic) in [
        ("a/b", "a/b"),
        ("a%2Fb", "a/b"),
        ("gr%C3%BC%C3%9Fe", "grüße"),
        ("a%20b", "a b"),
        ("100%2525", "100%25"),
        ("a.b/..c", "a.b/..c"),
        ("q%3Fraw", "q?raw"),
        // What is no escape stands for itself.
        ("a%", "a%"),
    ] {
        let answer = put(&node, path, &[], b"x");
        assert_eq!(answer.json()["topic"], topic, "{path}: {}", answer.json());
    }
    for path in ["a//b", "a/", "/a", "a%2F%2Fb", "a%23", "a+b", "a%2B", "%00", "%ff"] {
        let answer = put(&node, path, &[], b"x");
        let code = &answer.json()["code"];
        assert!(answer.status == 400 || answer.status == 404, "{path}: {}", answer.head);
        assert!(*code == 4202 || *code == 4212, "{path}: {}", answer.json());
    }
    assert_eq!(put(&node, "$server/x", &[], b"x").json()["code"], 4303);
}

#[test]
fn what_is_too_large_or_not_to_be_done_is_told() {
    let node = Node::start(
        "[limits]\npayload_bytes_max = 100\nbody_bytes_max = 1000\n[access]\norigins = [\"https://a.example\"]\n",
    );
    let larger = put(&node, "a", &[], &[b'x'; 101]);
    assert_eq!((larger.status, &larger.json()["code"]), (413, &json!(4205)));
    assert_eq!(put(&node, "a", &[], &[b'x'; 1_001]).status, 413);
    let deleted = ask(&node, "DELETE /v1/topics/a", &[], b"");
    assert_eq!((deleted.status, &deleted.json()["code"]), (405, &json!(4213)));
    assert_eq!(deleted.field("allow").map(|allow| allow.contains("PUT")), Some(true));
    for (origin, status, is_named) in [
        ("https://a.example", 204, true),
        ("http://localhost", 204, false),
        ("https://b.example", 403, false),
    ] {
        let fields = [&*format!("Origin: {origin}"), "Access-Control-Request-Method: PUT"];
        let preflight = ask(&node, "OPTIONS /v1/topics/a", &fields, b"");
        assert_eq!(preflight.status, status, "{origin}");
        let named = preflight.field("access-control-allow-methods").unwrap_or("");
        assert_eq!(
            named.contains("PUT") && named.contains("DELETE"),
            is_named,
            "{origin}: {named}"
        );
        for method in ["PUT", "DELETE"] {
            let answer = ask(&node, &format!("{method} /v1/topics/a"), &fields[..1], b"1");
            let is_refused = answer.json()["code"] == 4302;
            assert_eq!(is_refused, status == 403, "{origin}: {method}");
        }
    }
    let answer = get(&node, "a", &["Origin: https://a.example"]);
    assert_eq!(answer.json()["text"], "1", "of those who may");
    assert_eq!(answer.json()["sequence"], 2);
    assert_eq!(answer.field("access-control-expose-headers"), Some("etag"));
}

#[test]
fn a_table_comes_in_pages_of_bounded_count_and_bytes() {
    let node = Node::start(
        "[engine]\nshards = 3\n[limits]\ntable_bytes_max = 1000\n[[topics]]\nselector = \"t/none\"\nretain = false\n",
    );
    for number in 0..40 {
        node.publish(
            &json!({"topic": format!("t/{number:02}"), "data": {"n": number, "x": "x".repeat(50)}}),
        );
    }
    node.publish(&json!({"topic": "t/large", "text": "\n".repeat(5_000)}));
    node.publish(&json!({"topic": "t/none", "data": 1}));
    node.publish(&json!({"topic": "u", "data": 1}));
    let (mut all, mut after, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let (status, text) = node.request(
            &format!("GET /v1/topics?selector=t/%23&values=true&limit=25{after} HTTP/1.1"),
            "",
        );
        let page: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(status, 200, "{page}");
        let rows = page["topics"].as_array().expect("rows");
        assert!(rows.len() == 1 || text.len() < 2_500, "{} bytes", text.len());
        all.extend(rows.iter().cloned());
        pages += 1;
        match page["next"].as_str() {
            None => break,
            Some(next) => after = format!("&after={next}"),
        }
    }
    let mut wanted: Vec<String> = (0..40).map(|number| format!("t/{number:02}")).collect();
    wanted.extend(["t/large".to_owned(), "t/none".to_owned()]);
    let names: Vec<&str> = all.iter().filter_map(|row| row["topic"].as_str()).collect();
    assert!(names == wanted, "each once, by name: {names:?}");
    assert_eq!((&all[7]["data"]["n"], &all[7]["sequence"]), (&json!(7), &json!(1)));
    assert!(all[7]["time_ms"].is_u64());
    assert_eq!(all[40]["text"].as_str().map(str::len), Some(5_000));
    assert_eq!((all[41].get("data"), &all[41]["sequence"]), (None, &json!(1)));
    assert!((4..12).contains(&pages), "{pages} pages");
    let refused = ask(&node, "GET /v1/topics?limit=many", &[], b"");
    assert_eq!((refused.status, &refused.json()["code"]), (400, &json!(4210)));
}
