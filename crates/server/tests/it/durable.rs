//! Durable topics of a whole node: across restarts, beyond memory, over HTTP.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::node::{Node, wait_until};

/// A directory that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("tidegate-{name}-{}", std::process::id())))
    }

    /// A node with a store here; memory holds only few publications.
    fn node(&self, shards: u32) -> Node {
        Node::start(&format!(
            "[engine]\nshards = {shards}\n[store]\npath = \"{}\"\n[[topics]]\nselector = \"d/#\"\n\
             ack = \"disk\"\nhistory_count = 2000\nmemory_count = 5\n",
            self.0.display()
        ))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // It may never have been made.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn get(node: &Node, path: &str) -> Value {
    let (status, body) = node.request(&format!("GET {path} HTTP/1.1"), "");
    assert_eq!(status, 200, "{path}: {body}");
    serde_json::from_str(&body).expect("JSON")
}

fn sequences(page: &Value) -> Vec<u64> {
    let publications = page["publications"].as_array().expect("a list").iter();
    publications.map(|one| one["sequence"].as_u64().expect("a number")).collect()
}

#[test]
fn a_restarted_node_keeps_epoch_sequence_value_and_patterns() {
    let folder = Folder::new("restart");
    let node = folder.node(2);
    let mut published = Value::Null;
    for number in 1..=10 {
        published = node.publish(&json!({"topic": "d/a", "data": number}));
    }
    assert_eq!((&published["level"], &published["sequence"]), (&json!("disk"), &json!(10)));
    node.publish(&json!({"topic": "memory", "data": 1}));
    drop(node);
    // As many shards as before or not: the topics find their homes.
    let node = folder.node(3);
    let value = get(&node, "/v1/topics/d/a");
    assert_eq!((&value["epoch"], &value["data"]), (&published["epoch"], &json!(10)));
    let listed = get(&node, "/v1/topics?selector=%23");
    assert_eq!(listed["topics"].as_array().map(Vec::len), Some(1), "{listed}");
    let mut peer = node.socket();
    let from = json!({"epoch": published["epoch"], "sequence": 7});
    let answer = peer.ask(&json!({"type": "subscribe", "topic": "d/a", "from": from}));
    assert_eq!(answer["topics"][0]["recovered"], true);
    let heard: Vec<Value> = (0..3).map(|_| peer.hear()["data"].clone()).collect();
    assert_eq!(heard, [8, 9, 10]);
    let next = node.publish(&json!({"topic": "d/a", "data": 11}));
    assert_eq!((&next["sequence"], &next["epoch"]), (&json!(11), &published["epoch"]));
    assert_eq!(peer.hear()["data"], 11);
}

#[test]
fn a_resume_reaches_back_to_the_disk() {
    for shards in [1, 3] {
        let folder = Folder::new(&format!("resume-{shards}"));
        let node = folder.node(shards);
        let mut epoch = Value::Null;
        let batch: Vec<Value> =
            (1..=1_000).map(|number| json!({"topic": "d/a", "data": number})).collect();
        for part in batch.chunks(100) {
            let answer = node.publish(&json!({ "publications": part }));
            epoch = answer["results"][0]["epoch"].clone();
        }
        let mut peers: Vec<_> = (0..3).map(|_| node.socket()).collect();
        for (peer, sequence) in peers.iter_mut().zip([0u64, 300, 990]) {
            let from = json!({"epoch": epoch, "sequence": sequence});
            let answer = peer.ask(&json!({"type": "subscribe", "topic": "d/a", "from": from}));
            assert_eq!(answer["topics"][0]["recovered"], true, "{answer}");
        }
        node.publish(&json!({"topic": "d/a", "data": 1_001}));
        for (peer, sequence) in peers.iter_mut().zip([0u64, 300, 990]) {
            for expected in sequence + 1..=1_001 {
                let heard = peer.hear();
                assert_eq!(heard["sequence"], expected, "{heard}");
                assert_eq!(heard["data"], expected);
            }
        }
    }
}

#[test]
fn large_publications_come_whole_from_the_disk_to_a_reader_that_pauses() {
    let folder = Folder::new("large");
    let node = folder.node(2);
    let text = |number: usize| format!("{number}").repeat(300_000);
    for number in 1..=9 {
        node.publish(&json!({"topic": "d/large", "data": text(number)}));
    }
    let mut peer = node.socket();
    let answer = peer.ask(&json!({"type": "subscribe", "topic": "d/large", "from": "all"}));
    assert_eq!(answer["topics"][0]["start"], 0, "{answer}");
    // Its connection fills up in the middle of a publication that only the disk has.
    wait_until("the reader's connection is full", || node.metric("tidegate_stalled_sessions") == 1);
    for number in 1..=9 {
        let heard = peer.hear();
        assert_eq!(heard["sequence"], number);
        assert!(heard["data"] == text(number), "publication {number} is another one");
    }
}

#[test]
fn history_is_paged_in_both_directions() {
    let folder = Folder::new("history");
    let node = folder.node(2);
    for part in 0..5 {
        let batch: Vec<Value> =
            (1..=50).map(|n| json!({"topic": "d/h", "data": part * 50 + n})).collect();
        node.publish(&json!({ "publications": batch }));
    }
    let page = get(&node, "/v1/history/d/h?after=10&limit=3");
    assert_eq!((sequences(&page), &page["next_after"]), (vec![11, 12, 13], &json!(13)));
    let page = get(&node, "/v1/history/d/h?last=4");
    assert_eq!((sequences(&page), &page["head"]), (vec![247, 248, 249, 250], &json!(250)));
    let page = get(&node, "/v1/history/d/h?before=101&limit=3&order=desc");
    assert_eq!((sequences(&page), &page["next_before"]), (vec![100, 99, 98], &json!(98)));
    let time =
        get(&node, "/v1/history/d/h?after=199&limit=1")["publications"][0]["time_ms"].clone();
    let page = get(&node, &format!("/v1/history/d/h?since={time}&limit=300"));
    assert!(sequences(&page).contains(&200), "{time}");
    assert_eq!(sequences(&get(&node, "/v1/history/unheard")), [0u64; 0]);
    let mut peer = node.socket();
    let page =
        peer.ask(&json!({"id": 3, "type": "history", "topic": "d/h", "after": 10, "limit": 3}));
    assert_eq!((sequences(&page), &page["id"]), (vec![11, 12, 13], &json!(3)));
    let page = peer.ask(&json!({"type": "history", "topic": "d/h", "last": 2}));
    assert_eq!((&page["publications"][1]["data"], &page["head"]), (&json!(250), &json!(250)));
    let (status, body) = node.request("GET /v1/history/d/h?after=1&last=2 HTTP/1.1", "");
    assert_eq!(status, 400, "{body}");
}

#[test]
fn a_publication_may_expect_the_newest_sequence() {
    let folder = Folder::new("expect");
    let node = folder.node(2);
    for name in ["d/x", "m/x"] {
        let first = node.publish(&json!({"topic": name, "data": 1, "expect": 0}));
        assert_eq!(first["sequence"], 1);
        let body = json!({"topic": name, "data": 2, "expect": 0}).to_string();
        let (status, body) = node.request("POST /v1/publish HTTP/1.1", &body);
        assert_eq!(status, 409, "{body}");
        assert!(body.contains("4217"), "{body}");
        let mut peer = node.socket();
        let publish = json!({"id": 1, "type": "publish", "topic": name, "data": 2, "expect": 1});
        assert_eq!(peer.ask(&publish)["sequence"], 2);
        assert_eq!(peer.ask(&publish)["code"], 4217);
    }
}

#[test]
fn a_disk_policy_needs_a_store() {
    let text = "[[topics]]\nselector = \"d/#\"\nack = \"disk\"";
    let error = tidegate_server::config::parse(text, "t.toml").expect_err("no store");
    assert!(error.to_string().contains("add [store]"), "{error}");
}

#[test]
fn a_named_subscriber_goes_on_where_it_acknowledged() {
    let folder = Folder::new("named");
    let node = folder.node(3);
    for number in 1..=10 {
        node.publish(&json!({"topic": "d/n", "data": number}));
    }
    let wish =
        json!({"id": 1, "type": "subscribe", "topics": ["d/+"], "name": "desk", "from": "all"});
    let mut peer = node.socket();
    peer.ask(&wish);
    let announced = peer.hear();
    let epoch = announced["epoch"].clone();
    for number in 1..=4 {
        assert_eq!(peer.hear()["data"], number);
    }
    let acknowledge = |topic: &str, sequence: u64| {
        let positions = json!({topic: {"epoch": epoch, "sequence": sequence}});
        json!({"id": 2, "type": "acknowledge", "name": "desk", "positions": positions})
    };
    // Two at once, of several topics, and one that comes late: none of them is lost.
    peer.say(&acknowledge("d/n", 4));
    peer.say(&acknowledge("d/other", 7));
    peer.say(&acknowledge("d/n", 3));
    let mut answers = 0;
    while answers < 3 {
        let heard = peer.hear();
        answers += usize::from(heard["type"] == "acknowledged");
        assert_ne!(heard["type"], "refused", "{heard}");
    }
    drop((peer, node));
    let node = folder.node(2);
    let value = get(&node, "/v1/topics/$subscribers/anonymous/desk");
    assert_eq!(value["data"]["d/n"]["sequence"], 4, "{value}");
    assert_eq!(value["data"]["d/other"]["sequence"], 7);
    let mut peer = node.socket();
    peer.ask(&wish);
    let resumed = peer.hear();
    assert_eq!((&resumed["start"], &resumed["recovered"]), (&json!(4), &json!(true)));
    for number in 5..=10 {
        assert_eq!(peer.hear()["data"], number);
    }
    // What the client says itself goes before what is remembered.
    let mut peer = node.socket();
    let positions = json!({"d/n": {"epoch": epoch, "sequence": 9}});
    peer.ask(
        &json!({"type": "subscribe", "topics": ["d/+"], "name": "desk", "positions": positions}),
    );
    assert_eq!(peer.hear()["start"], 9);
}

#[test]
fn positions_are_refused_where_they_cannot_be_kept() {
    let node = Node::start("[engine]\nshards = 1\n");
    let mut peer = node.socket();
    let positions = json!({"a": {"epoch": "e", "sequence": 1}});
    let wish = json!({"id": 1, "type": "acknowledge", "name": "n", "positions": positions});
    let answer = peer.ask(&wish);
    assert_eq!((&answer["type"], &answer["code"]), (&json!("refused"), &json!(4218)), "{answer}");
    let answer = peer.ask(&json!({"id": 1, "type": "subscribe", "topic": "a", "name": "n"}));
    assert_eq!(answer["code"], 4218, "{answer}");
    for wrong in [
        json!({"id": 1, "type": "acknowledge", "name": "a/b", "positions": positions}),
        json!({"id": 1, "type": "acknowledge", "positions": positions}),
        json!({"id": 1, "type": "acknowledge", "name": "n"}),
    ] {
        assert_eq!(peer.ask(&wrong)["code"], 4200, "{wrong}");
    }
    let folder = Folder::new("positions");
    let path = folder.0.display().to_string();
    let node = Node::start(&format!(
        "[engine]\nshards = 1\n[store]\npath = \"{path}\"\n[limits]\nsubscriber_positions_max = 1\n"
    ));
    let mut peer = node.socket();
    assert_eq!(peer.ask(&wish)["type"], "acknowledged");
    let positions = json!({"b": {"epoch": "e", "sequence": 1}});
    let wish = json!({"id": 2, "type": "acknowledge", "name": "n", "positions": positions});
    assert_eq!(peer.ask(&wish)["code"], 4219);
}
