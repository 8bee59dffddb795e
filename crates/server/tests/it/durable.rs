//! Durable topics of a whole node: across restarts, beyond memory, over HTTP.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::node::Node;

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
