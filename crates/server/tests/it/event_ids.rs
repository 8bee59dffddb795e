//! Readers with nothing but ids: connections that are cut anywhere, and readers that come back with the id of the
//! last event that they had whole, as browsers do.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use crate::node::{Node, on_all_layouts, wait_until};

/// What a reader of Server-Sent Events has, over all its connections.
#[derive(Clone, Default)]
struct Reader {
    last_id: String,
    /// Topics and numbers of publications.
    had: BTreeSet<(String, u64)>,
    gaps: Vec<Value>,
}

impl Reader {
    /// Takes in what arrived on a connection: whole events only.
    fn take(&mut self, text: &str) {
        let whole = text.rfind("\n\n").map_or("", |end| &text[..end]);
        for event in whole.split("\n\n") {
            let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
            if let Some(record) = field("data: ") {
                let record: Value = serde_json::from_str(record).expect("JSON");
                match record["type"].as_str() {
                    Some("publication") => {
                        let topic = record["topic"].as_str().expect("a topic").to_owned();
                        self.had.insert((topic, record["data"].as_u64().expect("a number")));
                    }
                    Some("gap") => self.gaps.push(record),
                    _ => {}
                }
            }
            if let Some(id) = field("id: ") {
                self.last_id = id.to_owned();
            }
        }
    }

    /// Opens a connection, and reads it as HTTP/1.0 until `is_enough` of what arrived.
    fn connect(&self, node: &Node, query: &str, is_enough: impl Fn(&str) -> bool) -> String {
        let mut stream = TcpStream::connect(node.address()).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a valid time");
        let id = match self.last_id.as_str() {
            "" => String::new(),
            id => format!("Last-Event-ID: {id}\r\n"),
        };
        let head = format!("GET /v1/sse?{query} HTTP/1.0\r\nHost: localhost\r\n{id}\r\n");
        stream.write_all(head.as_bytes()).expect("open");
        let (mut bytes, mut piece) = (Vec::new(), [0; 65_536]);
        loop {
            // Who waits in vain sees in what arrived what is missing.
            let count = stream.read(&mut piece).unwrap_or(0);
            bytes.extend_from_slice(&piece[..count]);
            let text = String::from_utf8_lossy(&bytes);
            let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
            if count == 0 || is_enough(body) {
                return body.to_owned();
            }
        }
    }
}

fn all_of(topics: &[&str], numbers: std::ops::RangeInclusive<u64>) -> BTreeSet<(String, u64)> {
    let numbers = |topic: &&str| {
        let topic = (*topic).to_owned();
        numbers.clone().map(move |number| (topic.clone(), number))
    };
    topics.iter().flat_map(numbers).collect()
}

/// Publishes so that what the topics have spans more time than clocks may differ by.
fn publish_old_and_new(node: &Node, topics: &[&str]) {
    let begun = SystemTime::now();
    for number in 1..=3 {
        for topic in topics {
            node.publish(&json!({"topic":topic,"data":number}));
        }
    }
    wait_until("those are old", || begun.elapsed().is_ok_and(|age| age.as_millis() > 2_500));
    for number in 4..=6 {
        for topic in topics {
            node.publish(&json!({"topic":topic,"data":number}));
        }
    }
}

/// Cuts a connection that catches up after every byte, comes back, and cuts again: nothing is missing.
fn check_cut_anywhere(node: &Node, topics: &[&str], query: &str) {
    publish_old_and_new(node, topics);
    let wanted = all_of(topics, 1..=6);
    let mut readers = vec![Reader::default()];
    let mut seen = BTreeSet::new();
    let mut checked = 0;
    while let Some(reader) = readers.pop() {
        let has_all = |text: &str| {
            let mut reader = reader.clone();
            reader.take(text);
            wanted.is_subset(&reader.had)
        };
        let text = reader.connect(node, query, has_all);
        let mut whole = reader.clone();
        whole.take(&text);
        let missing: Vec<_> = wanted.difference(&whole.had).collect();
        assert!(missing.is_empty(), "after `{}`: {missing:?} in {text}", reader.last_id);
        assert_eq!(whole.gaps, Vec::<Value>::new(), "after `{}`", reader.last_id);
        checked += 1;
        for cut in 0..text.len() {
            let mut cut_off = reader.clone();
            cut_off.take(&text[..cut]);
            // Of those with the same id, the one that had the least is the one that could lose something.
            if !has_all(&text[..cut]) && checked < 60 && seen.insert(cut_off.last_id.clone()) {
                readers.push(cut_off);
            }
        }
    }
    assert!(checked > wanted.len(), "cut at {checked} places");
}

#[test]
fn of_two_topics_nothing_is_lost_wherever_a_reader_that_catches_up_is_cut() {
    on_all_layouts(|node| {
        check_cut_anywhere(node, &["two/b", "two/a"], "topic=two/b&topic=two/a&from=all");
    });
}

#[test]
fn of_a_pattern_nothing_is_lost_wherever_a_reader_that_catches_up_is_cut() {
    on_all_layouts(|node| {
        check_cut_anywhere(node, &["p/a", "p/b", "p/c"], "topic=p/%2B&from=all");
    });
}
