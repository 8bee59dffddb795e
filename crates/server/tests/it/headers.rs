//! Headers, time and principal of publications: whichever way they come and go. docs/protocol.md#headers.

use std::path::PathBuf;

use model::{HeaderValue, Limits};
use protocol::native::{Extras, ServerRecord, binary};
use serde_json::{Value, json};
use tungstenite::Message;

use crate::node::{Node, Peer};

/// A directory that goes with the test.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // It may never have been made.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Folder {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("tidegate-headers-{name}-{}", std::process::id())))
    }

    /// Topics in memory; those below `d` are on disk, and those of `p` say who published.
    fn node(&self, shards: u32) -> Node {
        Node::start(&format!(
            "[engine]\nshards = {shards}\n[store]\npath = \"{}\"\n[limits]\nfragment_bytes = 64\n\
             [access]\nanonymous = \"all\"\n[[access.tokens]]\ntoken = \"secret-of-ada\"\nname = \"ada\"\n\
             publish = [\"#\"]\nsubscribe = [\"#\"]\n[[topics]]\nselector = \"d/p/#\"\nack = \"disk\"\n\
             record_principal = true\n[[topics]]\nselector = \"d/#\"\nack = \"disk\"\n[[topics]]\n\
             selector = \"p/#\"\nrecord_principal = true\n",
            self.0.display()
        ))
    }
}

fn all_kinds() -> Value {
    json!({"unit": "für \"x\"", "n": 7, "yes": true, "no": false, "raw": {"base64": "AP8="}})
}

fn subscribed(node: &Node, subscribe: &Value) -> Peer {
    let mut peer = node.socket();
    assert_eq!(peer.ask(subscribe)["type"], "subscribed");
    peer
}

#[test]
fn headers_are_told_in_step_from_history_over_http_and_after_a_restart() {
    let folder = Folder::new("ways");
    let mut node = folder.node(2);
    for topic in ["m", "d/a"] {
        let mut early =
            subscribed(&node, &json!({"type": "subscribe", "topic": topic, "from": "now"}));
        let publish = json!({"type": "publish", "topic": topic, "data": 1, "headers": all_kinds()});
        node.socket().say(&publish);
        assert_eq!(early.hear()["headers"], all_kinds(), "from a session");
        node.publish(&json!({"topic": topic, "text": "x", "headers": all_kinds()}));
        assert_eq!(early.hear()["headers"], all_kinds(), "over HTTP");
        node.publish(&json!({"topics": [topic], "text": "y".repeat(200), "headers": all_kinds()}));
        assert_eq!(early.hear()["headers"], all_kinds(), "of a payload that is shared");
        node.publish(&json!({"topic": topic, "text": "without", "headers": {}}));
        let plain = early.hear();
        assert_eq!((&plain["text"], plain.get("headers")), (&json!("without"), None));
    }
    for is_again in [false, true] {
        for topic in if is_again { &["d/a"][..] } else { &["m", "d/a"] } {
            let all = json!({"type": "subscribe", "topic": topic, "from": "all"});
            let mut late = subscribed(&node, &all);
            let told: Vec<Value> = (0..4).map(|_| late.hear()["headers"].clone()).collect();
            assert_eq!(told, [all_kinds(), all_kinds(), all_kinds(), Value::Null], "{topic}");
            let page = late.ask(&json!({"type": "history", "topic": topic, "last": 2}));
            assert_eq!(page["publications"][0]["headers"], all_kinds());
            assert_eq!(page["publications"][1].get("headers"), None);
            let (_, page) = node.request(&format!("GET /v1/history/{topic} HTTP/1.1"), "");
            let page: Value = serde_json::from_str(&page).expect("JSON");
            assert_eq!(page["publications"][2]["headers"], all_kinds());
        }
        drop(node);
        node = folder.node(3);
    }
}

#[test]
fn put_and_get_have_them_as_fields() {
    let folder = Folder::new("fields");
    let node = folder.node(1);
    let put = "PUT /v1/topics/m HTTP/1.1\r\nTidegate-Header-Unit: %\"f%c3%bcr\"\r\n\
               Tidegate-Header-n: 1.50\r\nTidegate-Header-raw: :AP8=:";
    let (status, body) = node.request(put, "1");
    assert_eq!(status, 200, "{body}");
    let (_, body) = node.request("GET /v1/topics/m HTTP/1.1", "");
    assert!(
        body.contains(r#""headers":{"unit":"für","n":1.50,"raw":{"base64":"AP8="}}"#),
        "{body}"
    );
    let (_, body) = node.request("GET /v1/topics?selector=m&values=true HTTP/1.1", "");
    assert!(body.contains(r#""n":1.50"#), "{body}");
    for (field, code) in [
        ("Tidegate-Header-a: 1, 2", 4250),
        ("Tidegate-Header-a: 1\r\nTidegate-Header-A: 2", 4251),
        ("Tidegate-Header-$source: x", 4252),
    ] {
        let (status, body) = node.request(&format!("PUT /v1/topics/m HTTP/1.1\r\n{field}"), "1");
        assert!(status == 400 && body.contains(&code.to_string()), "{field}: {status} {body}");
    }
}

#[test]
fn what_breaks_a_rule_is_refused_with_its_code() {
    let folder = Folder::new("rules");
    let node = folder.node(1);
    let many: serde_json::Map<String, Value> =
        (0..33).map(|number| (format!("h{number}"), json!(1))).collect();
    let mut peer = node.socket();
    for (headers, code) in [
        (json!({"a": null}), 4250),
        (json!({"a b": 1}), 4250),
        (json!({"a": "x\r\ny"}), 4250),
        (json!({"$principal": "root"}), 4252),
        (Value::Object(many), 4253),
        (json!({"a": "x".repeat(5_000)}), 4253),
    ] {
        let publish =
            json!({"id": 1, "type": "publish", "topic": "m", "data": 1, "headers": headers});
        assert_eq!(peer.ask(&publish)["code"], code, "{headers}");
        let (status, body) = node.request("POST /v1/publish HTTP/1.1", &publish.to_string());
        assert!(status >= 400 && body.contains(&code.to_string()), "{headers}: {body}");
    }
    let twice = r#"{"topic":"m","data":1,"headers":{"a":1,"a":2}}"#;
    assert!(node.request("POST /v1/publish HTTP/1.1", twice).1.contains("4251"));
}

#[test]
fn a_filter_decides_on_them() {
    let folder = Folder::new("filter");
    let node = folder.node(1);
    let filter = "headers.unit == 'EUR'";
    let mut peer = subscribed(&node, &json!({"type": "subscribe", "topic": "m", "filter": filter}));
    for (number, headers) in
        [json!({}), json!({"unit": "USD"}), json!({"unit": "EUR"})].iter().enumerate()
    {
        node.publish(&json!({"topic": "m", "data": number, "headers": headers}));
    }
    assert_eq!(peer.hear()["data"], 2);
}

#[test]
fn time_and_principal_are_told_to_whoever_asks_and_only_where_the_policy_records_them() {
    let folder = Folder::new("stamps");
    let node = folder.node(2);
    let asks = |topic: &str| json!({"type": "subscribe", "topic": topic, "from": "all", "time": true, "principal": true});
    let topics = ["m", "p/a", "d/p/a"];
    let mut asking: Vec<Peer> =
        topics.iter().map(|topic| subscribed(&node, &asks(topic))).collect();
    for topic in topics {
        let plain = json!({"type": "subscribe", "topic": topic, "from": "now"});
        let mut other = subscribed(&node, &plain);
        let mut ada = node.socket();
        ada.ask(&json!({"type": "hello", "token": "secret-of-ada"}));
        // A header of that name is the publisher's word, and no other.
        ada.say(&json!({"type": "publish", "topic": topic, "data": 1, "headers": {"principal": "root"}}));
        let told = other.hear();
        assert_eq!((told.get("time_ms"), told.get("principal")), (None, None), "{told}");
        assert_eq!(told["headers"]["principal"], "root");
        let head = "POST /v1/publish HTTP/1.1\r\nAuthorization: Bearer secret-of-ada";
        let (status, _) = node.request(head, &json!({"topic": topic, "data": 2}).to_string());
        assert_eq!(status, 200);
        assert_eq!(other.hear().get("principal"), None);
    }
    let late = topics.iter().map(|topic| subscribed(&node, &asks(topic)));
    let late: Vec<Peer> = late.collect();
    for readers in [&mut asking, &mut { late }] {
        for (peer, topic) in readers.iter_mut().zip(topics) {
            for data in [1, 2] {
                let told = peer.hear();
                assert_eq!(told["data"], data, "{told}");
                assert!(told["time_ms"].as_u64() > Some(1_600_000_000_000), "{told}");
                let principal = if topic == "m" { Value::Null } else { json!("ada") };
                assert_eq!(told["principal"], principal, "{topic}");
            }
            let page = peer.ask(&json!({"type": "history", "topic": topic, "last": 1}));
            let recorded = page["publications"][0].get("principal").cloned();
            assert_eq!(recorded, (topic != "m").then(|| json!("ada")));
        }
    }
}

/// What a binary session is told of a topic: of each publication its extras, whole and as a first piece.
fn told_in_binary(
    node: &Node,
    features: &Value,
    topic: &str,
    count: usize,
) -> Vec<Extras<'static>> {
    let mut peer =
        node.socket_at("/v1/ws", &[("sec-websocket-protocol", "tidegate.v1")]).expect("it opens");
    let subscribe = json!({"type": "subscribe", "topic": topic, "from": "all", "time": true});
    for command in [json!({"type": "hello", "fragments": true, "features": features}), subscribe] {
        let mut record = Vec::new();
        let text = command.to_string();
        record.extend([0, text.len() as u8 & 0x7F | 0x80, (text.len() >> 7) as u8]);
        record.extend(text.as_bytes());
        peer.0.send(Message::binary(record)).expect("open");
    }
    let mut told = Vec::new();
    while told.len() < count {
        let Message::Binary(bytes) = peer.0.read().expect("open") else { continue };
        for record in binary::decode_server_message(&bytes, &Limits::default()).expect("records") {
            let extras = match record {
                ServerRecord::Publication { extras, .. } => extras,
                ServerRecord::Fragment { extras, offset: 0, .. } => extras,
                _ => continue,
            };
            told.push(Extras {
                headers: extras.headers.map(|headers| headers.into_owned()),
                time_ms: extras.time_ms,
                ..Extras::default()
            });
        }
    }
    told
}

#[test]
fn binary_sessions_are_told_them_if_they_list_the_feature_and_the_older_forms_if_not() {
    let folder = Folder::new("binary");
    let node = folder.node(1);
    for text in ["short".to_owned(), "long ".repeat(100)] {
        node.publish(&json!({"topic": "m", "text": text, "headers": all_kinds()}));
    }
    let named = json!(["extended", "fragments"]);
    for extras in told_in_binary(&node, &named, "m", 2) {
        let headers = extras.headers.expect("headers");
        assert_eq!((headers.len(), headers.get("n")), (5, Some(HeaderValue::Number("7"))));
        assert!(extras.time_ms.is_some());
    }
    for features in [json!(["fragments"]), Value::Null] {
        let told = told_in_binary(&node, &features, "m", 2);
        assert_eq!(told, [Extras::default(), Extras::default()], "{features}");
    }
}
