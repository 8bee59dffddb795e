//! `GET /v1/sessions`: who is connected, page by page.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::http_sessions::Stream;
use crate::node::{Node, Peer, wait_until};

/// The pages of the list, one after the other, until there is no next.
fn pages(node: &Node, limit: usize) -> Vec<Vec<Value>> {
    let (mut pages, mut after) = (Vec::new(), String::new());
    loop {
        let (status, text) =
            node.request(&format!("GET /v1/sessions?limit={limit}{after} HTTP/1.1"), "");
        assert_eq!(status, 200, "{text}");
        let page: Value = serde_json::from_str(&text).expect("JSON");
        pages.push(page["sessions"].as_array().expect("a list").clone());
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return pages,
        }
        assert!(pages.len() < 1_000, "it has an end");
    }
}

fn names(pages: &[Vec<Value>]) -> Vec<String> {
    let name = |session: &Value| session["session"].as_str().expect("a name").to_owned();
    pages.iter().flatten().map(name).collect()
}

#[test]
fn every_session_is_in_one_page_however_it_travels() {
    let node = Node::start("[engine]\nshards = 2\n");
    let hello = |number: usize| json!({"type": "hello", "client": format!("c{number}")});
    let mut peers: Vec<Peer> = (0..40).map(|_| node.socket()).collect();
    for (number, peer) in peers.iter_mut().enumerate() {
        peer.ask(&hello(number));
    }
    peers[0].ask(&json!({"type": "subscribe", "topics": ["a/b", "c/#"]}));
    peers[0].ask(
        &json!({"type": "subscribe", "topic": "d", "conflation": "always", "interval_ms": 50}),
    );
    let _events = Stream::open(&node, "GET /v1/sse?topic=a/b HTTP/1.1", "", "");
    let _lines = Stream::open(&node, "GET /v1/stream?topic=a/b HTTP/1.1", "", "");
    assert_eq!(node.request("POST /v1/poll HTTP/1.1", "").0, 200);
    for limit in [1, 7, 20, 43, 100] {
        let pages = pages(&node, limit);
        let names = names(&pages);
        let unique: BTreeSet<&String> = names.iter().collect();
        assert_eq!((names.len(), unique.len()), (43, 43), "{limit}: {names:?}");
        assert!(pages.iter().all(|page| page.len() <= limit), "{limit}");
    }
    let all: Vec<Value> = pages(&node, 100).concat();
    let of_transport = |name: &str| all.iter().filter(|it| it["transport"] == name).count();
    let counted = ["websocket", "sse", "stream", "poll"].map(of_transport);
    assert_eq!(counted, [40, 1, 1, 1], "{all:?}");
    let first = all.iter().find(|it| it["client"] == "c0").expect("the first");
    assert_eq!((&first["peer"], &first["principal"]), (&json!("127.0.0.1"), &json!("anonymous")));
    assert_eq!(first["subscriptions"], 2, "two ways to be told: {first}");
    wait_until("all are in step", || {
        pages(&node, 100).concat().iter().all(|it| it["in_step"] == true)
    });
    drop(peers);
    wait_until("they are gone", || names(&pages(&node, 100)).len() == 3);
}

#[test]
fn what_is_no_place_in_the_list_is_refused() {
    let node = Node::start("");
    for after in ["x", "0-", "-1", "0-99999999999"] {
        let (status, text) = node.request(&format!("GET /v1/sessions?after={after} HTTP/1.1"), "");
        assert!(status == 400 && text.contains("4210"), "{after}: {text}");
    }
    let beyond = node.request("GET /v1/sessions?after=70000-3 HTTP/1.1", "");
    assert_eq!(beyond, (200, "{\"sessions\":[]}".to_owned()));
}
