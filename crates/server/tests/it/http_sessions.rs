//! Sessions over plain HTTP, spoken by hand.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

use crate::node::{Node, on_all_layouts, wait_until};

/// A response that goes on.
pub struct Stream(BufReader<TcpStream>);

impl Stream {
    pub fn open(node: &Node, head: &str, fields: &str, body: &str) -> Self {
        let mut stream = TcpStream::connect(node.address()).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a valid time");
        let length = body.len();
        let text =
            format!("{head}\r\nHost: localhost\r\n{fields}Content-Length: {length}\r\n\r\n{body}");
        stream.write_all(text.as_bytes()).expect("open");
        let mut stream = Self(BufReader::new(stream));
        let mut line = stream.line();
        assert!(line.contains(" 200 "), "{line}");
        while !line.is_empty() {
            line = stream.line();
        }
        stream
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("a line in time");
        line.trim_end_matches(['\r', '\n']).to_owned()
    }

    /// The next line that holds a record, and the id after it, if it is of an event that has one.
    pub fn record(&mut self) -> (Option<String>, Value) {
        loop {
            let line = self.line();
            let data = line.strip_prefix("data: ");
            let record = data.unwrap_or(&line);
            if record.starts_with('{') {
                let id = data.and_then(|_| self.line().strip_prefix("id: ").map(str::to_owned));
                return (id, serde_json::from_str(record).expect("JSON"));
            }
        }
    }

    pub fn record_of(&mut self, kind: &str) -> (Option<String>, Value) {
        loop {
            let (id, record) = self.record();
            if record["type"] == kind {
                return (id, record);
            }
        }
    }
}

pub fn lines(body: &str) -> Vec<Value> {
    let records = body.lines().filter(|line| !line.is_empty());
    records.map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn events_of_one_topic_resume_exactly() {
    on_all_layouts(|node| {
        let mut stream = Stream::open(node, "GET /v1/sse?topic=a/b&padding=2048 HTTP/1.1", "", "");
        assert_eq!(stream.record().1["type"], "welcome");
        assert_eq!(stream.record().1["type"], "subscribed");
        for number in 1..=5 {
            node.publish(&json!({"topic":"a/b","data":{"n":number}}));
        }
        let (id, first) = stream.record();
        assert_eq!((&first["sequence"], &first["data"]), (&json!(1), &json!({"n":1})));
        drop(stream);
        let field = format!("Last-Event-ID: {}\r\n", id.expect("a publication has an id"));
        let mut stream = Stream::open(node, "GET /v1/sse?topic=a/b HTTP/1.1", &field, "");
        assert_eq!(stream.record_of("subscribed").1["topics"][0]["recovered"], true);
        for number in 2..=5 {
            assert_eq!(stream.record().1["sequence"], number);
        }
    });
}

#[test]
fn events_of_a_pattern_resume_by_time() {
    on_all_layouts(|node| {
        for number in 1..=3 {
            node.publish(&json!({"topic":format!("m/{number}"),"data":number}));
        }
        let mut stream = Stream::open(node, "GET /v1/sse?topic=m/%2B HTTP/1.1", "", "");
        let mut ids: Vec<String> =
            (0..3).filter_map(|_| stream.record_of("publication").0).collect();
        let id = ids.pop().expect("an id");
        assert!(id.starts_with("r."), "it reads topics afresh: {id}");
        node.publish(&json!({"topic":"m/1","data":"live"}));
        let id = stream.record_of("publication").0.expect("an id");
        drop(stream);
        node.publish(&json!({"topic":"m/2","data":"again"}));
        let head = format!("GET /v1/sse?topic=m/%2B&last_event_id={id} HTTP/1.1");
        let mut stream = Stream::open(node, &head, "", "");
        let found = (0..4).any(|_| stream.record_of("publication").1["data"] == "again");
        assert!(found, "what was published meanwhile comes");
        // An id of another life of the numbering: what was before it cannot be had.
        let (_, time) = id.rsplit_once('@').expect("a time");
        // So it is with an id of before, or of a later version.
        for id in [format!("t.other@{time}"), format!("other@{time}"), "x.later".to_owned()] {
            let head = format!("GET /v1/sse?topic=m/%2B&last_event_id={id} HTTP/1.1");
            let mut stream = Stream::open(node, &head, "", "");
            assert_eq!(stream.record_of("gap").1["reason"], "epoch", "{id}");
        }
        // Of which topic this place is nobody knows.
        let epoch = id.trim_start_matches("t.").split('@').next().expect("an epoch");
        let head = format!("GET /v1/sse?topic=m/%2B&last_event_id=p.{epoch}:1 HTTP/1.1");
        let mut stream = Stream::open(node, &head, "", "");
        assert_eq!(stream.record_of("gap").1["reason"], "epoch");
    });
}

#[test]
fn a_reader_that_is_cut_before_its_first_publication_goes_on_from_where_it_subscribed() {
    on_all_layouts(|node| {
        node.publish(&json!({"topic":"n/1","data":"old"}));
        for query in ["topic=n/1", "topic=n/1&topic=n/2", "topic=n/%2B"] {
            let head = format!("GET /v1/sse?{query}&from=now HTTP/1.1");
            let mut stream = Stream::open(node, &head, "", "");
            let id = stream.record_of("subscribed").0.expect("it tells where it is");
            drop(stream);
            node.publish(&json!({"topic":"n/1","data":query}));
            let field = format!("Last-Event-ID: {id}\r\n");
            let mut stream = Stream::open(node, &head, &field, "");
            let is_found = (0..4).any(|_| stream.record_of("publication").1["data"] == query);
            assert!(is_found, "{query}: what was published meanwhile comes");
        }
    });
}

#[test]
fn only_what_the_query_subscribed_to_has_ids() {
    on_all_layouts(|node| {
        let mut stream = Stream::open(node, "GET /v1/sse?topic=q/1&from=now HTTP/1.1", "", "");
        let key = stream.record_of("welcome").1["key"].as_str().expect("a key").to_owned();
        assert!(stream.record_of("subscribed").0.is_some());
        let target = format!("POST /v1/commands?session={key} HTTP/1.1");
        node.request(&target, r#"{"type":"subscribe","topic":"q/2"}"#);
        assert_eq!(stream.record_of("subscribed").0, None);
        node.publish(&json!({"topic":"q/2","data":2}));
        let (id, other) = stream.record_of("publication");
        assert_eq!((id, &other["data"]), (None, &json!(2)), "it says nothing of the one topic");
        node.publish(&json!({"topic":"q/1","data":1}));
        assert!(stream.record_of("publication").0.is_some_and(|id| id.ends_with(":1")));
    });
}

#[test]
fn commands_come_in_requests_of_their_own() {
    on_all_layouts(|node| {
        let mut stream = Stream::open(
            node,
            "POST /v1/stream HTTP/1.1",
            "",
            "{\"id\":1,\"type\":\"hello\"}\n{\"id\":2,\"type\":\"subscribe\",\"topic\":\"x\"}",
        );
        let welcome = stream.record().1;
        assert_eq!(welcome["id"], 1);
        assert_eq!(stream.record().1["id"], 2);
        let key = welcome["key"].as_str().expect("a key");
        let target = format!("POST /v1/commands?session={key} HTTP/1.1");
        let publish =
            r#"[{"id":3,"type":"publish","topic":"x","text":"hi"},{"id":4,"type":"dance"}]"#;
        assert_eq!(node.request(&target, publish), (202, r#"{"accepted":2}"#.to_owned()));
        let mut kinds: Vec<Value> = (0..3).map(|_| stream.record().1["type"].clone()).collect();
        kinds.sort_by_key(ToString::to_string);
        assert_eq!(kinds, ["publication", "published", "refused"]);
        drop(stream);
        wait_until("the session ended with its response", || {
            node.request(&target, "{\"type\":\"ping\"}").0 == 404
        });
        let (status, body) = node.request("POST /v1/commands?session=0.0.0.00 HTTP/1.1", "");
        assert!(status == 404 && body.contains("4002"), "{body}");
    });
}

#[test]
fn an_answer_to_a_poll_that_was_lost_is_given_again() {
    on_all_layouts(|node| {
        let poll = |query: &str| {
            let (status, body) = node.request(&format!("GET /v1/poll?{query} HTTP/1.1"), "");
            assert_eq!(status, 200, "{body}");
            lines(&body)
        };
        let opened = poll("topic=p");
        let key = opened[0]["key"].as_str().expect("a key").to_owned();
        assert_eq!(opened[1]["type"], "subscribed", "{opened:?}");
        assert_eq!(opened.last().expect("lines")["batch"], 1);
        node.publish(&json!({"topic":"p","data":1}));
        let first = poll(&format!("session={key}&batch=1"));
        assert_eq!((&first[0]["data"], &first[1]["batch"]), (&json!(1), &json!(2)));
        assert_eq!(poll(&format!("session={key}&batch=1")), first, "the answer was lost");
        node.publish(&json!({"topic":"p","data":2}));
        assert_eq!(poll(&format!("session={key}&batch=2"))[0]["data"], 2);
        let (status, _) = node.request(&format!("GET /v1/poll?session={key}&batch=9 HTTP/1.1"), "");
        assert_eq!(status, 404);
    });
}

#[test]
fn who_polls_no_more_is_gone_and_a_poll_does_not_wait_for_ever() {
    // Time is told in seconds: with a shorter silence a session could be gone between two polls in a row.
    let node = Node::start("[limits]\npoll_ms = 1\npoll_silence_ms = 2000\n");
    let (_, body) = node.request("GET /v1/poll?topic=p HTTP/1.1", "");
    let key = lines(&body)[0]["key"].as_str().expect("a key").to_owned();
    let (status, body) = node.request(&format!("GET /v1/poll?session={key}&batch=1 HTTP/1.1"), "");
    assert_eq!((status, lines(&body)), (200, vec![json!({"type":"polled","batch":2})]));
    // Commands, unlike polls, do not keep a session: none at all is a way to look whether it is there.
    let commands = format!("POST /v1/commands?session={key} HTTP/1.1");
    assert_eq!(node.request(&commands, "").0, 202, "it stays for a while");
    wait_until("the session is gone", || node.request(&commands, "").0 == 404);
    let (status, body) = node.request(&format!("GET /v1/poll?session={key}&batch=2 HTTP/1.1"), "");
    assert!(status == 404 && body.contains("4002"), "{body}");
}

#[test]
fn responses_show_signs_of_life_and_are_rolled() {
    let node = Node::start("[limits]\nstream_keep_alive_ms = 1000\nstream_ms_max = 3000\n");
    let mut stream = Stream::open(&node, "GET /v1/sse?topic=q HTTP/1.0", "", "");
    let mut rest = String::new();
    stream.0.read_to_string(&mut rest).expect("HTTP/1.0 ends with the connection");
    assert!(rest.contains("\n:\n\n"), "{rest}");
    assert!(rest.contains("\"code\":4003") && rest.contains("\"retry_after_ms\":0"), "{rest}");
    assert!(rest.ends_with("}\n\n"), "{rest}");
}

#[test]
fn bad_openings_are_refused_with_their_codes() {
    let node = Node::start(
        "[access]\nanonymous = \"none\"\norigins = [\"https://a.example\"]\n[[access.tokens]]\ntoken = \"t\"\nname = \"n\"\n\
         subscribe = [\"a/#\"]\n",
    );
    let check = |head: &str, status: u16, code: u16| {
        let (found, body) = node.request(head, "");
        assert!(
            found == status && body.contains(&format!("\"code\":{code}")),
            "{head}: {found} {body}"
        );
    };
    check("GET /v1/sse?topic=a/b HTTP/1.1", 401, 4300);
    check("GET /v1/sse?topic=a/b&token=x HTTP/1.1", 401, 4300);
    check("GET /v1/sse?topic=b&token=t HTTP/1.1", 403, 4301);
    check("GET /v1/stream?topic=a//b&token=t HTTP/1.1", 400, 4203);
    check("GET /v1/poll?topic=a&filter=x%20==&token=t HTTP/1.1", 400, 4220);
    check("PUT /v1/sse?topic=a HTTP/1.1", 405, 4213);
    check("GET /v1/commands HTTP/1.1", 405, 4213);
    check("GET /v1/sse?topic=a HTTP/1.1\r\nOrigin: https://b.example", 403, 4302);
    let allowed = "Origin: https://a.example\r\n";
    let mut stream = TcpStream::connect(node.address()).expect("it listens");
    let head = format!("GET /v1/sse?topic=a&token=t HTTP/1.1\r\nHost: x\r\n{allowed}\r\n");
    stream.write_all(head.as_bytes()).expect("open");
    let mut answer = [0; 400];
    stream.read_exact(&mut answer).expect("a head");
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.contains("access-control-allow-origin: https://a.example"), "{answer}");
}
