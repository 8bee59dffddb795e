//! Sequences with holes, as in a broker's stream, over JSON, binary records and HTTP. docs/protocol.md#what-is-missing.

use model::{Limits, Sequence};
use protocol::native::{PreviousRef, SequenceRef, ServerRecord, binary, json as native};
use serde_json::{Value, json};
use tungstenite::Message;

use crate::node::{Node, Peer};

/// A node that numbers topics in memory with holes.
fn node(more: &str) -> Node {
    Node::start(&format!("[engine]\nshards = 1\n[diagnostics]\nsequence_holes = true\n{more}"))
}

/// Publishes so many; answers their sequences.
fn publish(node: &Node, topic: &str, count: usize) -> Vec<u64> {
    let one = |number| node.publish(&json!({"topic": topic, "data": number}));
    let sequence = |published: Value| published["sequence"].as_u64().expect("a number");
    (0..count).map(|number| sequence(one(number))).collect()
}

/// The `previous` of something, which may be left out where it is one less.
fn previous(told: &Value) -> u64 {
    let dense = told["sequence"].as_u64().expect("a number") - 1;
    told.get("previous").map_or(dense, |it| it.as_u64().expect("a number"))
}

#[test]
fn each_publication_says_what_was_before_it_and_nothing_is_missing() {
    let node = node("");
    let before = publish(&node, "a/b", 3);
    assert!(before.windows(2).any(|pair| pair[1] > pair[0] + 1), "{before:?} has a hole");
    let mut peer = node.socket();
    let subscribed = peer.ask(&json!({"id": 1, "type": "subscribe", "topic": "a/b"}));
    assert_eq!(subscribed["topics"][0]["head"], before[2]);
    assert_eq!(subscribed["topics"][0]["start"], before[1]);
    let mut last = before[1];
    let after = publish(&node, "a/b", 20);
    for sequence in before[2..].iter().chain(&after) {
        let told = peer.hear();
        assert_eq!(told["sequence"], *sequence, "{told}");
        assert_eq!(previous(&told), last, "{told}");
        let is_told = told.get("previous").is_some();
        assert_eq!(is_told, last + 1 != *sequence, "{told} says it where it is not one less");
        last = *sequence;
    }
}

#[test]
fn a_reader_goes_on_from_between_two_sequences_and_is_told_a_gap_for_what_is_gone() {
    let node = node(
        "[limits]\nrecent_deliveries_max = 2\n[[topics]]\nselector = \"#\"\nhistory_count = 3\n",
    );
    let all = publish(&node, "a/b", 9);
    let kept = &all[all.len() - 3..];
    let ask = |sequence: u64| {
        let mut peer = node.socket();
        let epoch = node.publish(&json!({"topic": "other", "data": 1}))["epoch"].clone();
        let from = json!({"epoch": epoch, "sequence": sequence});
        let asked = json!({"id": 1, "type": "subscribe", "topic": "a/b", "from": from});
        let subscribed = peer.ask(&asked);
        let mut told = vec![subscribed["topics"][0]["recovered"].clone()];
        while told.last().is_none_or(|it: &Value| it["sequence"] != all[8]) {
            told.push(peer.hear());
        }
        told
    };
    // Right before the oldest that is kept, in the hole where there is one.
    let before_kept = ask(kept[0] - 1);
    assert_eq!((&before_kept[0], before_kept.len()), (&json!(true), 4), "{before_kept:?}");
    let first = ask(all[0]);
    assert_eq!((&first[0], &first[1]["type"]), (&json!(false), &json!("gap")), "{first:?}");
    assert_eq!((&first[1]["from"], &first[1]["to"]), (&json!(all[0] + 1), &json!(all[5])));
    assert_eq!(first[2]["sequence"], kept[0], "{first:?}");
}

#[test]
fn pages_count_publications_and_expect_compares_with_the_newest() {
    let node = node("");
    let all = publish(&node, "a/b", 9);
    let page = |query: &str| {
        let head = format!("GET /v1/history/a/b?{query} HTTP/1.1");
        let (status, body) = node.request(&head, "");
        assert_eq!(status, 200, "{body}");
        let page: Value = serde_json::from_str(&body).expect("JSON");
        let told = page["publications"].as_array().expect("a list").clone();
        let sequence = |it: &Value| it["sequence"].as_u64().expect("a number");
        let sequences: Vec<u64> = told.iter().map(sequence).collect();
        let before: Vec<u64> = told.iter().map(previous).collect();
        (sequences, before, page.get("gap").cloned())
    };
    assert_eq!(page("last=4"), (all[5..].to_vec(), all[4..8].to_vec(), None));
    let before = format!("before={}&limit=3", all[5]);
    assert_eq!(page(&before), (all[2..5].to_vec(), all[1..4].to_vec(), None));
    assert_eq!(page("last=100").0, all);
    assert_eq!(page(&format!("after={}", all[1] - 1)).0, all[1..]);
    let expect = |sequence: u64| {
        let body = json!({"topic": "a/b", "data": 1, "expect": sequence}).to_string();
        node.request("POST /v1/publish HTTP/1.1", &body).0
    };
    assert_eq!((expect(all[8] - 1), expect(all[8] + 1)), (409, 409));
    assert_eq!(expect(all[8]), 200);
}

/// The sequence, what was before it, and the tag of each of so many publications in binary.
fn hear_binary(peer: &mut Peer, mut last: u64, count: usize) -> Vec<(u8, u64, u64)> {
    let mut told = Vec::new();
    while told.len() < count {
        let Message::Binary(bytes) = peer.0.read().expect("open") else { continue };
        let records = binary::decode_server_message(&bytes, &Limits::default());
        for record in records.expect("valid records") {
            let ServerRecord::Publication { sequence, extras, .. } = record else { continue };
            let known = Sequence::new(last).expect("small");
            let sequence = match sequence {
                SequenceRef::Full(sequence) => sequence,
                short => short.resolve(known).expect("a sequence"),
            };
            let is_next = matches!(extras.previous, PreviousRef::LastTold);
            let previous = extras.previous.resolve(sequence, known).get();
            told.push((if is_next { 0x14 } else { bytes[0] & 0xF0 }, sequence.get(), previous));
            last = sequence.get();
        }
    }
    told
}

#[test]
fn a_binary_client_is_told_in_short_records_if_it_knows_them() {
    let node = node("features = [\"batch\", \"extended\"]\n");
    let before = publish(&node, "a/b", 1);
    for (features, is_extended) in [(json!(["extended"]), true), (json!([]), false)] {
        let fields = [("sec-websocket-protocol", "tidegate.v1")];
        let mut peer = node.socket_at("/v1/ws", &fields).expect("it shakes hands");
        let say = |peer: &mut Peer, command: &Value| {
            let decoded = native::decode_command(&command.to_string(), &Limits::default());
            let (Ok((id, command)), mut bytes) = (decoded, Vec::new()) else { panic!("{command}") };
            binary::append_command(id, &command, &mut bytes);
            peer.0.send(Message::binary(bytes)).expect("open");
        };
        say(&mut peer, &json!({"id": 1, "type": "hello", "features": features}));
        say(&mut peer, &json!({"id": 2, "type": "subscribe", "topic": "a/b", "from": "now"}));
        let head = || match node.request("GET /v1/topics/a/b HTTP/1.1", "") {
            (200, body) => serde_json::from_str::<Value>(&body).expect("JSON")["sequence"].clone(),
            other => panic!("{other:?}"),
        };
        let mut last = head().as_u64().expect("a number");
        assert!(last >= before[0]);
        // Only once it is answered does it read what follows.
        let is_answer = |message: Message| match message {
            Message::Binary(bytes) => String::from_utf8_lossy(&bytes).contains("\"subscribed\""),
            _ => false,
        };
        while !is_answer(peer.0.read().expect("open")) {}
        let all = publish(&node, "a/b", 12);
        for ((tag, sequence, previous), expected) in
            hear_binary(&mut peer, last, 12).into_iter().zip(all)
        {
            assert_eq!(sequence, expected);
            let is_dense = last + 1 == sequence;
            match (is_extended, is_dense) {
                (true, true) | (false, true) => assert_eq!((tag, previous), (0x10, last)),
                (true, false) => assert_eq!((tag, previous), (0x14, last)),
                // The older records say nothing of it.
                (false, false) => assert_eq!(tag, 0x20),
            }
            last = sequence;
        }
    }
}
