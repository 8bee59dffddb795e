//! Durable topics of a whole node: across restarts, beyond memory, over HTTP.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::node::{Node, Peer, wait_until};

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
        node.publish(&json!({"topic": "d/other/one", "data": number}));
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
    peer.say(&acknowledge("d/other/one", 7));
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
    assert_eq!(value["data"]["d/other/one"]["sequence"], 7);
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
fn what_follows_a_subscribe_by_name_is_carried_out_after_it() {
    let folder = Folder::new("in-turn");
    let node = folder.node(4);
    let mut peer = node.socket();
    for number in 0..40 {
        let topic = format!("m/{number}");
        let named =
            json!({"id": 1, "type": "subscribe", "topic": topic, "name": format!("n{number}")});
        let subscribe = json!({"id": 2, "type": "subscribe", "topic": topic, "from": "all"});
        let unsubscribe = json!({"id": 3, "type": "unsubscribe", "topic": topic});
        peer.say_all(&[&named, &unsubscribe, &named, &subscribe, &unsubscribe]);
        let heard: Vec<Value> = (0..5).map(|_| peer.hear()).collect();
        let ids: Vec<_> = heard.iter().map(|it| it["id"].as_u64()).collect();
        assert_eq!(ids, [1, 3, 1, 2, 3].map(Some), "{heard:?}");
        assert!(heard.iter().all(|it| it["type"] != "refused"), "{heard:?}");
        node.publish(&json!({"topic": topic, "data": 1}));
    }
    assert_eq!(peer.ask(&json!({"id": 9, "type": "ping"}))["type"], "pong", "nothing was told");
}

#[test]
fn what_waits_for_a_subscribe_by_name_is_bounded() {
    let folder = Folder::new("behind");
    let node = Node::start(&format!(
        "[engine]\nshards = 4\n[limits]\nchanges_waiting_max = 2\n[store]\npath = \"{}\"\n",
        folder.0.display()
    ));
    let mut peer = node.socket();
    let mut refused = 0;
    for number in 0..40 {
        let named =
            json!({"id": 1, "type": "subscribe", "topic": "m", "name": format!("n{number}")});
        peer.say_all(&[&named, &json!({"id": 2, "type": "subscribe", "topics": ["a", "b"]})]);
        let answers = [peer.hear(), peer.hear()];
        refused += answers.iter().filter(|it| it["code"] == 4117).count();
    }
    assert!(refused > 0, "some of the names are at home elsewhere");
    assert_eq!(node.metric("tidegate_changes_waiting"), 0);
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

#[test]
fn a_key_that_is_too_long_is_refused_however_it_comes() {
    let node = Node::start("[limits]\nidempotency_key_bytes_max = 8\n");
    let mut peer = node.socket();
    for kind in ["publish", "request"] {
        let told =
            peer.ask(&json!({"type": kind, "id": 1, "topic": "a", "data": 1, "key": "123456789"}));
        assert_eq!((&told["type"], &told["code"]), (&json!("refused"), &json!(4230)), "{told}");
    }
    let told =
        peer.ask(&json!({"type": "publish", "id": 2, "topic": "a", "data": 1, "key": "12345678"}));
    assert_eq!(told["type"], "published", "{told}");
    let body = json!({"topic": "a", "data": 1, "key": "123456789"}).to_string();
    let asked = node.request("POST /v1/publish HTTP/1.1", &body);
    assert!(asked.0 == 400 && asked.1.contains("4230"), "{asked:?}");
    let asked = node.request("POST /v1/request?topic=a&key=123456789 HTTP/1.1", "1");
    assert!(asked.0 == 400 && asked.1.contains("4230"), "{asked:?}");
}

#[test]
fn a_position_beyond_the_newest_is_not_remembered() {
    let folder = Folder::new("beyond");
    let node = folder.node(3);
    let published: Vec<_> = (0..8)
        .map(|number| node.publish(&json!({"topic": format!("d/{number}"), "data": 1})))
        .collect();
    // Of every topic, wherever it and the connection are at home.
    for (number, published) in published.iter().enumerate() {
        let mut peer = node.socket();
        let mut acknowledge = |sequence: u64| {
            let position =
                json!({format!("d/{number}"): {"epoch": published["epoch"], "sequence": sequence}});
            let command =
                json!({"type": "acknowledge", "id": 1, "name": "worker", "positions": position});
            peer.ask(&command)
        };
        for beyond in [2, (1 << 53) - 1] {
            let told = acknowledge(beyond);
            assert_eq!((&told["type"], &told["code"]), (&json!("refused"), &json!(4231)), "{told}");
        }
        assert_eq!(acknowledge(1)["type"], "acknowledged");
    }
}

/// The next event of this kind.
fn hear_next(peer: &mut Peer, kind: &str) -> Value {
    loop {
        let heard = peer.hear();
        if heard["type"] == kind {
            return heard;
        }
    }
}

fn subscribe_at(peer: &mut Peer, topic: &str, epoch: &Value, sequence: u64) -> Value {
    let from = json!({"epoch": epoch, "sequence": sequence});
    peer.say(&json!({"id": 1, "type": "subscribe", "topic": topic, "from": from}));
    hear_next(peer, "subscribed")
}

#[test]
fn a_position_that_the_store_never_gave_begins_an_epoch_at_run_time_and_once() {
    for shards in [1, 3] {
        let folder = Folder::new(&format!("renewal-{shards}"));
        let node = folder.node(shards);
        let topics = ["d/a", "d/b", "d/c", "d/e"];
        let mut ended = Value::Null;
        for topic in topics {
            for number in 1..=3 {
                ended = node.publish(&json!({"topic": topic, "data": number}))["epoch"].clone();
            }
        }
        let mut readers: Vec<Peer> = (0..4).map(|_| node.socket()).collect();
        for reader in &mut readers {
            reader.say(&json!({"id": 1, "type": "subscribe", "topic": "d/#", "from": "now"}));
            hear_next(reader, "subscribed");
            reader.say(&json!({"id": 2, "type": "ping"}));
            hear_next(reader, "pong");
        }
        // A client that was further before the copy was put back.
        let mut witness = node.socket();
        subscribe_at(&mut witness, "d/a", &ended, 1_000);
        let mut begun = Value::Null;
        for reader in &mut readers {
            let gaps: Vec<Value> = topics.iter().map(|_| hear_next(reader, "gap")).collect();
            let mut told: Vec<&str> =
                gaps.iter().map(|gap| gap["topic"].as_str().expect("a name")).collect();
            told.sort_unstable();
            assert_eq!(told, topics);
            begun = gaps[0]["epoch"].clone();
            let is_right = |gap: &Value| {
                (&gap["reason"], &gap["to"], &gap["epoch"]) == (&json!("epoch"), &json!(3), &begun)
            };
            assert!(begun != ended && gaps.iter().all(is_right), "{gaps:?}");
        }
        // The witness was told first that its position means nothing.
        wait_until("the witness hears of the new epoch", || {
            hear_next(&mut witness, "gap")["epoch"] == begun
        });
        for topic in topics {
            let next = node.publish(&json!({"topic": topic, "data": "next"}));
            assert_eq!((&next["sequence"], &next["epoch"]), (&json!(4), &begun));
            for reader in &mut readers {
                let heard = hear_next(reader, "publication");
                let told = (&heard["topic"], &heard["sequence"], &heard["data"]);
                assert_eq!(told, (&json!(topic), &json!(4), &json!("next")));
            }
        }
        // Whoever was told the new epoch has it of this process: nobody can know better.
        let mut liar = node.socket();
        subscribe_at(&mut liar, "d/b", &begun, 1_000);
        wait_until("both were noticed", || node.metric("tidegate_positions_beyond_total") >= 2);
        let mut late = node.socket();
        let answer = subscribe_at(&mut late, "d/b", &begun, 4);
        assert_eq!(answer["topics"][0]["recovered"], true, "{answer}");
        let answer = subscribe_at(&mut late, "d/c", &ended, 3);
        assert_eq!(answer["topics"][0]["recovered"], false, "{answer}");
        drop(node);
        let node = folder.node(shards);
        assert_eq!(get(&node, "/v1/topics/d/a")["epoch"], begun, "it is on disk");
    }
}

#[test]
fn the_word_of_a_stranger_begins_no_epoch() {
    let folder = Folder::new("stranger");
    let node = Node::start(&format!(
        "[engine]\nshards = 1\n[store]\npath = \"{}\"\n[[topics]]\nselector = \"d/#\"\nack = \"disk\"\n\
         [access]\nanonymous = \"read\"\n[[access.tokens]]\ntoken = \"t\"\nname = \"feeder\"\npublish = [\"d/#\"]\n\
         subscribe = [\"d/#\"]",
        folder.0.display()
    ));
    let mut feeder = node.socket();
    feeder.ask(&json!({"type": "hello", "token": "t"}));
    let publish = json!({"id": 1, "type": "publish", "topic": "d/a", "data": 1});
    let first = feeder.ask(&publish);
    let mut stranger = node.socket();
    let answer = subscribe_at(&mut stranger, "d/a", &first["epoch"], 1_000);
    assert_eq!(answer["topics"][0]["recovered"], false, "{answer}");
    wait_until("it was noticed", || node.metric("tidegate_positions_beyond_total") == 1);
    subscribe_at(&mut feeder, "d/a", &first["epoch"], 1);
    feeder.say(&publish);
    let second = hear_next(&mut feeder, "published");
    assert_eq!((&second["sequence"], &second["epoch"]), (&json!(2), &first["epoch"]));
    // Who presents a token answers for it.
    subscribe_at(&mut feeder, "d/a", &first["epoch"], 1_000);
    wait_until("the epoch is another", || {
        feeder.say(&publish);
        hear_next(&mut feeder, "published")["epoch"] != first["epoch"]
    });
}
