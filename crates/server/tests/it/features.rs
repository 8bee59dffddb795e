//! Features: nothing goes to a peer that did not name what it belongs to. docs/protocol.md#features.

use std::collections::BTreeSet;

use model::Features;
use serde_json::{Value, json};

use crate::node::{Node, Peer};

/// All features, each with the commands that take it.
fn features() -> Vec<(&'static str, Vec<Value>)> {
    let positions = json!({"t/small": {"epoch": "e", "sequence": 0}});
    vec![
        ("batch", vec![]),
        ("deltas", vec![]),
        (
            "devices",
            vec![
                json!({"type": "attach", "device": "meters/d1", "authorization": "Bearer device-key-0123456789"}),
                json!({"type": "detach", "device": "meters/d1"}),
            ],
        ),
        ("extended", vec![]),
        ("fragments", vec![]),
        ("history", vec![json!({"type": "history", "topic": "t/small", "last": 1})]),
        (
            "ids",
            vec![
                json!({"type": "subscribe", "topic": "t/small", "subscription": 7}),
                json!({"type": "unsubscribe", "subscription": 7}),
            ],
        ),
        (
            "requests",
            vec![
                json!({"type": "handle", "topic": "asked"}),
                json!({"type": "request", "topic": "asked", "data": 1}),
                json!({"type": "respond", "request": 77, "data": 1}),
                json!({"type": "unhandle", "topic": "asked"}),
            ],
        ),
        (
            "subscribers",
            vec![
                json!({"type": "subscribe", "topic": "named", "name": "desk"}),
                json!({"type": "acknowledge", "name": "desk", "positions": positions}),
            ],
        ),
    ]
}

/// A folder that is gone when the test is over.
struct Folder(std::path::PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left of a failed test is in nobody's way.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn node(name: &str, diagnostics: &str) -> (Node, Folder) {
    let unique = format!("tidegate-features-{name}-{}", std::process::id());
    let folder = Folder(std::env::temp_dir().join(unique));
    let config = format!(
        "[engine]\nshards = 1\n[store]\npath = \"{}\"\n[limits]\nfragment_bytes = 1024\n\
         [[applications]]\nid = \"meters\"\n[[applications.keys]]\nid = \"k\"\n\
         key = \"device-key-0123456789\"\nroles = [\"device\"]\n[diagnostics]\n{diagnostics}\n",
        folder.0.display()
    );
    (Node::start(&config), folder)
}

/// Belongs to binary sessions alone, which `headers.rs` looks at.
const BINARY_ONLY: &str = "extended";

/// What a server has unless its configuration says otherwise.
fn served() -> Features {
    Features::ALL
}

/// The names of features that show in JSON.
fn shown_in_json() -> impl Iterator<Item = &'static str> {
    features().into_iter().map(|(name, _)| name).filter(|name| *name != BINARY_ONLY)
}

/// What a session was sent.
#[derive(Default)]
struct Heard {
    types: BTreeSet<String>,
    has_lists: bool,
    has_numbers: bool,
    /// The codes of refusals, by the command's number.
    codes: Vec<(u64, u64)>,
}

impl Heard {
    fn take(&mut self, event: &Value) {
        self.has_numbers |= event["type"] == "publication" && event["number"].is_u64();
        self.types.insert(event["type"].as_str().expect("a type").to_owned());
        if let (Some(id), Some(code)) = (event["id"].as_u64(), event["code"].as_u64()) {
            self.codes.push((id, code));
        }
    }

    /// Takes what comes until these commands are answered.
    fn take_until_answered(&mut self, peer: &mut Peer, mut unanswered: BTreeSet<u64>) {
        while !unanswered.is_empty() {
            let heard = peer.hear();
            self.has_lists |= heard.is_array();
            for event in heard.as_array().cloned().unwrap_or_else(|| vec![heard]) {
                event["id"].as_u64().map(|id| unanswered.remove(&id));
                self.take(&event);
            }
        }
    }

    /// Whether anything of a feature came.
    fn has(&self, feature: &str) -> bool {
        match feature {
            "batch" => self.has_lists,
            "deltas" => self.types.contains("delta"),
            "devices" => self.types.contains("attached"),
            "fragments" => self.types.contains("fragment"),
            "history" => self.types.contains("history"),
            "ids" => self.has_numbers,
            "requests" => self.types.contains("handling") && self.types.contains("request"),
            "subscribers" => self.types.contains("acknowledged"),
            other => panic!("`{other}` has no row"),
        }
    }
}

/// Does all there is to do after a `hello`; answers what came.
fn tour(node: &Node, hello: &Value) -> Heard {
    let (mut peer, mut heard) = (node.socket(), Heard::default());
    peer.say(hello);
    peer.say(&json!({"id": 90, "type": "subscribe", "topic": "t/#", "from": "now", "delta": "json-patch"}));
    let commands = features().into_iter().flat_map(|(_, commands)| commands);
    let mut unanswered = BTreeSet::from([80, 90]);
    for (id, mut command) in (1..).zip(commands) {
        // Nobody answers what nobody hears.
        if command["type"] != "request" {
            unanswered.insert(id);
        }
        command["id"] = id.into();
        peer.say(&command);
    }
    heard.take_until_answered(&mut peer, unanswered);
    let value = |number: u32| json!({"long": "value ".repeat(40), "number": number});
    let publication = |number| json!({"topic": "t/small", "data": value(number)});
    let large = json!({"topic": "t/large", "text": "x".repeat(5_000)});
    let rounds = [
        vec![publication(1)],
        vec![publication(2)],
        vec![publication(3)],
        vec![publication(4), publication(5), large],
    ];
    for publications in rounds {
        node.publish(&json!({"publications": publications}));
        peer.say(&json!({"id": 99, "type": "ping"}));
        heard.take_until_answered(&mut peer, BTreeSet::from([99]));
    }
    heard
}

/// A `hello` that wants all that can be wanted, and names all features but one.
fn hello_without(lacking: &str) -> Value {
    let named: Vec<&str> =
        features().iter().map(|(name, _)| *name).filter(|name| *name != lacking).collect();
    json!({"id": 80, "type": "hello", "batch": true, "fragments": true, "features": named})
}

/// The numbers of the commands that take a feature. A device is asked with requests.
fn numbers_of(wanted: &str) -> Vec<u64> {
    let all =
        features().into_iter().flat_map(|(name, commands)| commands.into_iter().map(move |_| name));
    let takes = |name: &str| name == wanted || (name == "devices" && wanted == "requests");
    (1..).zip(all).filter(|(_, name)| takes(name)).map(|(number, _)| number).collect()
}

#[test]
fn a_session_is_sent_nothing_of_a_feature_that_its_hello_does_not_name() {
    let (node, _folder) = node("hello", "");
    let all: Vec<&str> = features().iter().map(|(name, _)| *name).collect();
    assert!(served().names().eq(all.iter().copied()), "each has a row");
    let heard = tour(&node, &hello_without("nothing"));
    for feature in shown_in_json() {
        assert!(heard.has(feature), "`{feature}` was named: {:?} {:?}", heard.types, heard.codes);
    }
    for lacking in shown_in_json() {
        let heard = tour(&node, &hello_without(lacking));
        assert!(!heard.has(lacking), "`{lacking}` was not named: {:?}", heard.types);
        let refused = heard.codes.iter().filter(|(_, code)| *code == 4236).map(|(id, _)| *id);
        assert_eq!(refused.collect::<Vec<_>>(), numbers_of(lacking), "without `{lacking}`");
    }
}

#[test]
fn a_server_with_fewer_features_names_and_does_only_those() {
    for lacking in shown_in_json() {
        let named: Vec<&str> = served().names().filter(|name| *name != lacking).collect();
        let (node, _folder) = node(lacking, &format!("features = {named:?}"));
        let welcome = node.socket().ask(&json!({"type": "hello"}));
        assert_eq!(welcome["features"], json!(named));
        let heard = tour(&node, &hello_without("nothing"));
        assert!(!heard.has(lacking), "the server has no `{lacking}`: {:?}", heard.types);
        let refused = heard.codes.iter().filter(|(_, code)| *code == 4201).map(|(id, _)| *id);
        assert_eq!(refused.collect::<Vec<_>>(), numbers_of(lacking), "without `{lacking}`");
        assert!(!heard.codes.iter().any(|(_, code)| *code == 4236));
    }
}
