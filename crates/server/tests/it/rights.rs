//! Every verb, over every transport, asked by everybody: who may, and who is told that he may not.

use std::collections::BTreeSet;

use model::{Command, CommandId, Limits};
use protocol::native::{binary, json as native};
use serde_json::{Value, json};
use tungstenite::Message;

use crate::http_sessions::{Stream, lines};
use crate::node::{Node, Peer};

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    /// Without a token where one is needed.
    Nobody,
    /// Without a token where readers need none.
    Reader,
    /// With a token that may everything that is asked here.
    Entitled,
    /// With a token that may nothing.
    Powerless,
}

const EVERYBODY: [Who; 4] = [Who::Nobody, Who::Reader, Who::Entitled, Who::Powerless];

impl Who {
    fn token(self) -> Option<&'static str> {
        match self {
            Self::Nobody | Self::Reader => None,
            Self::Entitled => Some("entitled"),
            Self::Powerless => Some("powerless"),
        }
    }
}

/// What a verb takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    /// Nothing.
    Nothing,
    /// That one is somebody.
    Name,
    /// A right to read.
    Read,
    /// A right that readers have not.
    More,
    /// A key of an application; a token is none.
    Key,
}

impl Takes {
    fn is_granted(self, who: Who) -> bool {
        match self {
            Self::Nothing => true,
            Self::Name => who != Who::Nobody,
            Self::Read => matches!(who, Who::Reader | Who::Entitled),
            Self::More => who == Who::Entitled,
            Self::Key => false,
        }
    }
}

/// The commands, each with what it takes. A position's topic that may not be read is among them.
fn commands() -> Vec<(Value, Takes)> {
    let positions = json!({"a/b": {"epoch": "e", "sequence": 1}});
    vec![
        (json!({"type": "hello"}), Takes::Nothing),
        (json!({"type": "subscribe", "topic": "a/b"}), Takes::Read),
        (json!({"type": "subscribe", "topic": "a/b", "name": "n"}), Takes::Read),
        (json!({"type": "unsubscribe", "topic": "a/b"}), Takes::Nothing),
        (json!({"type": "publish", "topic": "a/b", "data": 1}), Takes::More),
        (json!({"type": "history", "topic": "a/b"}), Takes::Read),
        (json!({"type": "acknowledge", "name": "n", "positions": positions}), Takes::Read),
        (json!({"type": "handle", "topic": "a/b"}), Takes::More),
        (json!({"type": "unhandle", "topic": "a/b"}), Takes::Nothing),
        (json!({"type": "request", "topic": "a/c", "data": 1}), Takes::More),
        (json!({"type": "request", "topic": "$server/ping", "data": 1}), Takes::Name),
        (json!({"type": "respond", "request": 1, "data": 1}), Takes::Nothing),
        (json!({"type": "attach", "device": "meters/d1"}), Takes::More),
        (json!({"type": "attach", "device": "meters/d1", "authorization": "Bearer x"}), Takes::Key),
        (json!({"type": "detach", "device": "meters/d1"}), Takes::Nothing),
        (json!({"type": "close"}), Takes::Nothing),
        (json!({"type": "ping"}), Takes::Nothing),
    ]
}

/// What is asked over HTTP: method, path, body, what it takes.
const REQUESTS: &[(&str, &str, &str, Takes)] = &[
    ("GET", "/", "", Takes::Nothing),
    ("GET", "/demo", "", Takes::Nothing),
    ("GET", "/favicon.ico", "", Takes::Nothing),
    ("GET", "/page/app.js", "", Takes::Nothing),
    ("GET", "/health", "", Takes::Nothing),
    ("GET", "/ready", "", Takes::Nothing),
    ("GET", "/metrics", "", Takes::Read),
    ("GET", "/diagnostics/hiccups", "", Takes::Read),
    ("POST", "/v1/publish", "{\"topic\":\"a/b\",\"data\":1}", Takes::More),
    ("GET", "/v1/topics?selector=a/%23", "", Takes::Read),
    ("GET", "/v1/topics?selector=a/%23&values=true", "", Takes::Read),
    ("GET", "/v1/topics/a/b", "", Takes::Read),
    ("GET", "/v1/topics/a/b?raw", "", Takes::Read),
    ("PUT", "/v1/topics/a/b", "1", Takes::More),
    ("GET", "/v1/history/a/b", "", Takes::Read),
    ("GET", "/v1/slow", "", Takes::Read),
    ("GET", "/v1/sessions", "", Takes::More),
    ("POST", "/v1/request?topic=a/c", "1", Takes::More),
    ("POST", "/v1/request?topic=$server/ping", "1", Takes::Name),
    ("GET", "/v1/sse?topic=a/b", "", Takes::Read),
    ("GET", "/v1/stream?topic=a/b", "", Takes::Read),
    ("GET", "/v1/poll?topic=a/b", "", Takes::Read),
    ("POST", "/v1/sse", "", Takes::Name),
    ("POST", "/v1/stream", "", Takes::Name),
    ("POST", "/v1/poll", "", Takes::Name),
    // Whoever has a session's key was told it.
    ("POST", "/v1/commands?session=1.2.3.4", "", Takes::Nothing),
    ("GET", "/v1/devices?application=meters", "", Takes::Key),
    ("GET", "/v1/devices/challenge", "", Takes::Nothing),
    ("GET", "/v1/devices/d1?application=meters", "", Takes::Key),
    ("POST", "/v1/devices/d1/key?application=meters", "", Takes::Key),
    ("POST", "/v1/devices/d1/send?application=meters", "1", Takes::Key),
    ("POST", "/v1/devices/attach?application=meters&device=d1", "", Takes::Key),
    ("GET", "/v1/applications/meters/stats", "", Takes::Key),
];

/// The WebSockets. Through `/v1/ws` one comes in, to present a token in `hello`.
const SOCKETS: &[(&str, Takes)] = &[
    ("/v1/ws", Takes::Nothing),
    ("/diagnostics/echo", Takes::Name),
    ("/v1/devices/d1/ws?application=meters", Takes::Key),
];

fn node_for(who: Who, folder: &std::path::Path) -> Node {
    let anonymous = if who == Who::Reader { "read" } else { "none" };
    let all = "[\"a/#\", \"devices/#\", \"#\", \"$server/#\"]";
    Node::start(&format!(
        "[engine]\nshards = 2\n[store]\npath = \"{}\"\n[diagnostics]\necho = true\nhiccups = true\n\
         [access]\nanonymous = \"{anonymous}\"\n\
         [[access.tokens]]\ntoken = \"entitled\"\nname = \"e\"\nsubscribe = {all}\npublish = {all}\nhandle = {all}\n\
         [[access.tokens]]\ntoken = \"powerless\"\nname = \"p\"\n\
         [[applications]]\nid = \"meters\"\n[[applications.keys]]\nid = \"k\"\n\
         key = \"device-key-0123456789\"\nroles = [\"admin\"]\n",
        folder.display()
    ))
}

/// Runs a test for everybody, on a node where he is that.
fn for_everybody(name: &str, test: impl Fn(&Node, Who)) {
    for who in EVERYBODY {
        let unique = format!("tidegate-rights-{name}-{who:?}-{}", std::process::id());
        let folder = std::env::temp_dir().join(unique);
        test(&node_for(who, &folder), who);
        std::fs::remove_dir_all(&folder).expect("it was made");
    }
}

/// Whether an answer is about rights.
fn is_refusal(code: &Value) -> bool {
    code.as_u64().is_some_and(|code| (4300..4400).contains(&code))
}

fn check(what: &str, transport: &str, who: Who, takes: Takes, code: &Value) {
    assert_eq!(is_refusal(code), !takes.is_granted(who), "{who:?}, {transport}: {what}: {code}");
}

fn with_id(command: &Value) -> Value {
    let mut command = command.clone();
    command["id"] = 7.into();
    command
}

#[test]
fn every_command_has_a_row() {
    let decode =
        |command: &Value| match native::decode_command(&command.to_string(), &Limits::default()) {
            Ok((_, command)) => command.kind(),
            Err(undecoded) => panic!("{command}: {undecoded:?}"),
        };
    let kinds: BTreeSet<&str> = commands().iter().map(|(command, _)| decode(command)).collect();
    assert_eq!(kinds, Command::KINDS.into());
}

#[test]
fn every_path_has_a_row() {
    let rows =
        REQUESTS.iter().map(|(method, path, ..)| (*method, path.split('?').next().unwrap_or("")));
    let rows: Vec<(&str, &str)> = rows.collect();
    let is_like = |pattern: &str, path: &str| match pattern.split_once('{') {
        Some((start, rest)) => {
            let end = rest.split_once('}').map_or("", |(_, end)| end);
            path.len() > start.len() && path.starts_with(start) && path.ends_with(end)
        }
        None => pattern == path,
    };
    for (method, pattern) in tidegate_server::paths() {
        let is_socket =
            SOCKETS.iter().any(|(path, _)| is_like(pattern, path.split('?').next().unwrap_or("")));
        let has_row = rows.iter().any(|(known, path)| *known == method && is_like(pattern, path));
        assert!(if method == "WebSocket" { is_socket } else { has_row }, "{method} {pattern}");
    }
}

#[test]
fn every_command_asks_a_right_over_websocket() {
    for_everybody("json", |node, who| {
        for (command, takes) in commands() {
            let mut peer = node.socket();
            if let Some(token) = who.token() {
                peer.ask(&json!({"type": "hello", "token": token}));
            }
            let code = match command["type"].as_str() {
                // Its answer is the end; a second greeting is refused for another reason.
                Some("close") => {
                    peer.say(&command);
                    json!(peer.hear_end().0)
                }
                _ => {
                    peer.say(&with_id(&command));
                    answer_to_7(|| peer.hear())
                }
            };
            check(&command.to_string(), "JSON", who, takes, &code);
        }
    });
}

/// The code of the answer to the command 7, among what is heard.
fn answer_to_7(mut hear: impl FnMut() -> Value) -> Value {
    loop {
        let heard = hear();
        let records = heard.as_array().cloned().unwrap_or_else(|| vec![heard]);
        if let Some(answer) = records.iter().find(|record| record["id"] == 7) {
            return answer["code"].clone();
        }
    }
}

#[test]
fn every_command_asks_a_right_in_binary() {
    for_everybody("binary", |node, who| {
        for (command, takes) in commands() {
            let fields = [("sec-websocket-protocol", "tidegate.v1")];
            let mut peer = node.socket_at("/v1/ws", &fields).expect("it shakes hands");
            if let Some(token) = who.token() {
                say_binary(&mut peer, &json!({"id": 1, "type": "hello", "token": token}));
                hear_binary(&mut peer);
            }
            let is_close = command["type"] == "close";
            say_binary(&mut peer, &if is_close { command.clone() } else { with_id(&command) });
            let code = if is_close { json!(peer.hear_end().0) } else { hear_binary_7(&mut peer) };
            check(&command.to_string(), "binary", who, takes, &code);
        }
    });
}

fn say_binary(peer: &mut Peer, command: &Value) {
    let decoded = native::decode_command(&command.to_string(), &Limits::default());
    let Ok((id, command)) = decoded else { panic!("{command}") };
    let mut bytes = Vec::new();
    binary::append_command(id.or(Some(CommandId(7))), &command, &mut bytes);
    peer.0.send(Message::binary(bytes)).expect("open");
}

fn hear_binary(peer: &mut Peer) -> String {
    loop {
        if let Message::Binary(bytes) = peer.0.read().expect("open") {
            return String::from_utf8_lossy(&bytes).into_owned();
        }
    }
}

/// The code of the answer to the command 7, which is JSON in a record, or a record of its own for a publication.
fn hear_binary_7(peer: &mut Peer) -> Value {
    loop {
        let heard = hear_binary(peer);
        match heard.split_once('{') {
            Some((_, rest)) if heard.contains("\"id\":7") => {
                let json = format!("{{{rest}");
                let mut values = serde_json::Deserializer::from_str(&json).into_iter::<Value>();
                return values.next().expect("a value").expect("JSON")["code"].clone();
            }
            Some(_) => {}
            None => return Value::Null,
        }
    }
}

#[test]
fn every_command_asks_a_right_over_plain_http() {
    for_everybody("streams", |node, who| {
        let fields =
            who.token().map_or(String::new(), |token| format!("Authorization: Bearer {token}\r\n"));
        for path in ["/v1/stream", "/v1/sse"] {
            for (command, takes) in commands() {
                if who == Who::Nobody {
                    let (status, _) =
                        node.request(&format!("POST {path} HTTP/1.1"), &command.to_string());
                    assert_eq!(status, 401, "{path}");
                    continue;
                }
                let mut stream = Stream::open(node, &format!("POST {path} HTTP/1.1"), &fields, "");
                let key = stream.record_of("welcome").1["key"].as_str().expect("a key").to_owned();
                let target = format!("POST /v1/commands?session={key} HTTP/1.1");
                // Both at once: after `close` nothing is answered, after a ping what it came after is.
                let body = format!("{}\n{{\"id\":8,\"type\":\"ping\"}}", with_id(&command));
                assert_eq!(node.request(&target, &body).0, 202);
                let code = match command["type"].as_str() {
                    Some("close") => Value::Null,
                    _ => answer_to_7(|| stream.record().1),
                };
                check(&command.to_string(), path, who, takes, &code);
            }
        }
    });
}

#[test]
fn every_command_asks_a_right_in_polls() {
    for_everybody("polls", |node, who| {
        let fields =
            who.token().map_or(String::new(), |token| format!("\r\nAuthorization: Bearer {token}"));
        for (command, takes) in commands() {
            if command["type"] == "close" {
                continue;
            }
            let (status, body) =
                node.request(&format!("POST /v1/poll HTTP/1.1{fields}"), "{\"type\":\"ping\"}");
            assert_eq!(status == 401, who == Who::Nobody, "{body}");
            let Some(key) = lines(&body)[0]["key"].as_str().map(str::to_owned) else { continue };
            let (mut batch, mut body) = (1, with_id(&command).to_string());
            let code = loop {
                let target = format!("POST /v1/poll?session={key}&batch={batch} HTTP/1.1");
                let (status, answer) = node.request(&target, &body);
                assert_eq!(status, 200, "{answer}");
                let found = lines(&answer).into_iter().find(|record| record["id"] == 7);
                if let Some(answer) = found {
                    break answer["code"].clone();
                }
                (batch, body) = (batch + 1, String::new());
            };
            check(&command.to_string(), "poll", who, takes, &code);
        }
    });
}

#[test]
fn every_path_asks_a_right() {
    for_everybody("paths", |node, who| {
        let fields =
            who.token().map_or(String::new(), |token| format!("\r\nAuthorization: Bearer {token}"));
        for (method, path, body, takes) in REQUESTS {
            let is_stream = ["/v1/sse", "/v1/stream"].iter().any(|start| path.starts_with(start));
            let code = match takes.is_granted(who) {
                // A response that goes on is not read to its end.
                true if is_stream => {
                    Stream::open(node, &format!("{method} {path} HTTP/1.1{fields}"), "", body);
                    Value::Null
                }
                _ => {
                    let (_, answer) =
                        node.request(&format!("{method} {path} HTTP/1.1{fields}"), body);
                    let answer: Value = serde_json::from_str(&answer).unwrap_or_default();
                    answer["code"].clone()
                }
            };
            check(&format!("{method} {path}"), "HTTP", who, *takes, &code);
        }
        let bearer = who.token().map(|token| format!("Bearer {token}"));
        for (path, takes) in SOCKETS {
            let fields: Vec<_> = bearer.iter().map(|it| ("authorization", it.as_str())).collect();
            let opened = node.socket_at(path, &fields);
            let code = if opened.is_ok() { Value::Null } else { json!(4301) };
            check(path, "WebSocket", who, *takes, &code);
        }
    });
}

#[test]
fn what_may_not_be_read_is_not_acknowledged_either() {
    let folder =
        std::env::temp_dir().join(format!("tidegate-rights-topics-{}", std::process::id()));
    let node = Node::start(&format!(
        "[store]\npath = \"{}\"\n[access]\nanonymous = \"none\"\n[[access.tokens]]\ntoken = \"t\"\nname = \"n\"\n\
         subscribe = [\"a/#\"]\n[limits]\nsubscriber_names_max = 2\n[engine]\nshards = 1\n",
        folder.display()
    ));
    let acknowledge = |name: &str, topic: &str, epoch: &str| {
        json!({"id": 7, "type": "acknowledge", "name": name,
               "positions": {"a/b": {"epoch": "e", "sequence": 1}, topic: {"epoch": epoch, "sequence": 1}}})
    };
    let mut peer = node.socket();
    assert_eq!(peer.ask(&acknowledge("n", "a/c", "e"))["code"], 4301, "nobody");
    peer.ask(&json!({"type": "hello", "token": "t"}));
    let mut peer = node.socket();
    peer.ask(&json!({"type": "hello", "token": "t"}));
    assert_eq!(peer.ask(&acknowledge("n", "b/c", "e"))["code"], 4301, "one topic of two");
    assert_eq!(peer.ask(&acknowledge("n", "a/c", &"e".repeat(65)))["code"], 4200, "a long epoch");
    for (name, answer) in
        [("n1", "acknowledged"), ("n2", "acknowledged"), ("n3", "refused"), ("n2", "acknowledged")]
    {
        let heard = peer.ask(&acknowledge(name, "a/c", "e"));
        assert_eq!(heard["type"], answer, "{name}: {heard}");
        assert!(answer == "acknowledged" || heard["code"] == 4114, "{heard}");
    }
    drop((peer, node));
    std::fs::remove_dir_all(&folder).expect("it was made");
}

#[test]
fn names_that_acknowledge_nothing_for_long_make_room_also_after_a_restart() {
    let folder = std::env::temp_dir().join(format!("tidegate-rights-age-{}", std::process::id()));
    let start = |age_ms: u64| {
        Node::start(&format!(
            "[store]\npath = \"{}\"\n[limits]\nsubscriber_names_max = 1\nsubscriber_age_ms = {age_ms}\n\
             [engine]\nshards = 1\n",
            folder.display()
        ))
    };
    let acknowledge = |name: &str| json!({"id": 7, "type": "acknowledge", "name": name, "positions": {"a/b": {"epoch": "e", "sequence": 1}}});
    let node = start(60_000);
    assert_eq!(node.socket().ask(&acknowledge("old"))["type"], "acknowledged");
    drop(node);
    let node = start(60_000);
    assert_eq!(node.socket().ask(&acknowledge("new"))["code"], 4114, "known from the disk");
    drop(node);
    let node = start(1);
    assert_eq!(node.socket().ask(&acknowledge("new"))["type"], "acknowledged");
    let forgotten = node.request("GET /v1/topics/$subscribers/anonymous/old HTTP/1.1", "").1;
    assert!(forgotten.contains("\"data\":{}"), "{forgotten}");
    drop(node);
    let node = start(60_000);
    assert_eq!(node.socket().ask(&acknowledge("other"))["code"], 4114, "only `new` counts");
    assert_eq!(node.socket().ask(&acknowledge("new"))["type"], "acknowledged");
    drop(node);
    std::fs::remove_dir_all(&folder).expect("it was made");
}
