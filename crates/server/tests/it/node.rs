//! A whole node on real sockets, spoken to by a WebSocket client that we did not write and by
//! hand-typed HTTP.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tidegate_server::config::parse;
use tidegate_server::{Memory, Server};
use tungstenite::client::IntoClientRequest;
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::{Message, WebSocket};

const PATIENCE: Duration = Duration::from_secs(60);

pub struct Node(Option<Server>);

impl Node {
    /// A server with this configuration on a free port.
    pub fn start(config: &str) -> Self {
        Self::start_at(SocketAddr::from(([127, 0, 0, 1], 0)), config)
    }

    /// The same at an address.
    pub fn start_at(address: SocketAddr, config: &str) -> Self {
        let mut config = parse(config, "test.toml").expect("a valid configuration");
        config.listen = address;
        Self(Some(Server::start(config).expect("a free port")))
    }

    /// The same on a free port, with what it may use of memory.
    pub fn start_in(memory: &Memory, config: &str) -> Self {
        let mut config = parse(config, "test.toml").expect("a valid configuration");
        config.listen = SocketAddr::from(([127, 0, 0, 1], 0));
        Self(Some(Server::start_in(config, memory.clone()).expect("a free port")))
    }

    pub fn address(&self) -> SocketAddr {
        self.0.as_ref().expect("running").address()
    }

    pub fn request(&self, head: &str, body: &str) -> (u16, String) {
        request(self.address(), head, body)
    }

    pub fn publish(&self, body: &Value) -> Value {
        let (status, body) = self.request("POST /v1/publish HTTP/1.1", &body.to_string());
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).expect("JSON")
    }

    /// What a counter or gauge says now, over all shards.
    pub fn metric(&self, name: &str) -> u64 {
        let (_, text) = self.request("GET /metrics HTTP/1.1", "");
        let lines = text.lines().filter(|line| line.split(['{', ' ']).next() == Some(name));
        let values = lines.filter_map(|line| line.rsplit(' ').next());
        values.map(|value| value.parse::<u64>().expect("a whole number")).sum()
    }

    pub fn socket(&self) -> Peer {
        self.socket_with(&[]).expect("it shakes hands")
    }

    fn socket_with(&self, fields: &[(&'static str, &str)]) -> Result<Peer, tungstenite::Error> {
        self.socket_at("/v1/ws", fields)
    }

    pub fn socket_at(
        &self,
        path: &str,
        fields: &[(&'static str, &str)],
    ) -> Result<Peer, tungstenite::Error> {
        let stream = TcpStream::connect(self.address()).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a valid time");
        let mut request = format!("ws://{}{path}", self.address()).into_client_request()?;
        for (name, value) in fields {
            request.headers_mut().insert(*name, value.parse().expect("a valid field"));
        }
        match tungstenite::client(request, stream) {
            Ok((socket, _)) => Ok(Peer(socket)),
            Err(tungstenite::HandshakeError::Failure(error)) => Err(error),
            Err(other) => panic!("{other}"),
        }
    }
}

/// Asks again and again until it is so; `what` is what should come about.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Sends a whole request; answers the status and the body.
pub fn request(address: SocketAddr, head: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a valid time");
    let length = body.len();
    let text = format!(
        "{head}\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(text.as_bytes()).expect("open");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer to the end");
    let status = answer.split(' ').nth(1).and_then(|word| word.parse().ok());
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
    (status.expect("a status"), body.expect("a body"))
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(server) = self.0.take() {
            server.stop();
            let ended = server.wait();
            assert!(std::thread::panicking() || ended.is_ok(), "{ended:?}");
        }
    }
}

pub struct Peer(pub WebSocket<TcpStream>);

impl Peer {
    pub fn say(&mut self, command: &Value) {
        self.0.send(Message::text(command.to_string())).expect("open");
    }

    /// The same for several at once: they arrive together.
    pub fn say_all(&mut self, commands: &[&Value]) {
        for command in commands {
            self.0.write(Message::text(command.to_string())).expect("open");
        }
        self.0.flush().expect("open");
    }

    pub fn hear(&mut self) -> Value {
        loop {
            match self.0.read().expect("open") {
                Message::Text(text) => return serde_json::from_str(&text).expect("JSON"),
                Message::Ping(_) | Message::Pong(_) => {}
                other => panic!("unexpected {other:?}"),
            }
        }
    }

    pub fn ask(&mut self, command: &Value) -> Value {
        self.say(command);
        self.hear()
    }

    /// Sends bytes that are no whole message.
    pub fn write_bytes(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).expect("open");
    }

    /// Reads to the end: the code of `closing`, and that of the close frame.
    pub fn hear_end(&mut self) -> (u64, u16) {
        let mut told = 0;
        loop {
            match self.0.read().expect("a proper end") {
                Message::Text(text) => {
                    let event: Value = serde_json::from_str(&text).expect("JSON");
                    if event["type"] == "closing" {
                        told = event["code"].as_u64().expect("a number");
                    }
                }
                Message::Close(frame) => {
                    let code = frame.map_or(CloseCode::Status, |frame| frame.code);
                    return (told, code.into());
                }
                _ => {}
            }
        }
    }
}

/// Runs a test on one shard, on four, and on four that share a descriptor table.
pub fn on_all_layouts(test: impl Fn(&Node)) {
    for engine in ["shards = 1", "shards = 4", "shards = 4\nprivate_fd_tables = false"] {
        test(&Node::start(&format!("[engine]\n{engine}")));
    }
}

#[test]
fn a_subscriber_gets_the_snapshot_then_publications() {
    on_all_layouts(|node| {
        node.publish(&json!({"topic": "a/b", "data": {"x": 1}}));
        let mut peer = node.socket();
        let subscribed = peer.ask(&json!({"id": 1, "type": "subscribe", "topic": "a/b"}));
        assert_eq!((&subscribed["type"], &subscribed["id"]), (&json!("subscribed"), &json!(1)));
        assert_eq!(subscribed["topics"][0]["head"], 1);
        let snapshot = peer.hear();
        assert_eq!((&snapshot["sequence"], &snapshot["data"]), (&json!(1), &json!({"x": 1})));
        for number in 2..20 {
            let published = node.publish(&json!({"topic": "a/b", "text": "t"}));
            assert_eq!(published["sequence"], number);
            let heard = peer.hear();
            assert_eq!((&heard["sequence"], &heard["text"]), (&json!(number), &json!("t")));
        }
    });
}

#[test]
fn a_session_ends_whose_last_words_come_together_with_its_end() {
    let node = Node::start("[engine]\nshards = 1");
    for _ in 0..20 {
        let mut peer = node.socket();
        peer.ask(&json!({"id": 1, "type": "handle", "topic": "asked"}));
        let stream = peer.0.get_mut();
        // A masked text frame: `{"type":"ping"}`, while the shard may still be asleep.
        let mut last = vec![0x81, 0x80 | 15, 0, 0, 0, 0];
        last.extend_from_slice(b"{\"type\":\"ping\"}");
        stream.write_all(&last).expect("open");
        stream.shutdown(std::net::Shutdown::Write).expect("open");
        wait_until("the session is gone", || node.metric("tidegate_sessions") == 0);
    }
}

#[test]
fn a_pattern_finds_topics_that_come_later() {
    on_all_layouts(|node| {
        node.publish(&json!({"topic": "p/early", "data": 0}));
        let mut peer = node.socket();
        peer.ask(&json!({"id": 1, "type": "subscribe", "topic": "p/+"}));
        assert_eq!(peer.hear()["topic"], "p/early");
        assert_eq!(peer.hear()["type"], "publication");
        for name in ["p/x", "p/y", "p/z"] {
            let batch = json!({"publications": [
                {"topic": "q/other", "data": 1}, {"topic": name, "data": 1}, {"topic": name, "data": 2},
            ]});
            assert_eq!(node.publish(&batch)["results"].as_array().map(Vec::len), Some(3));
            let heard = [peer.hear(), peer.hear(), peer.hear()];
            assert_eq!((&heard[0]["type"], &heard[0]["topic"]), (&json!("topic"), &json!(name)));
            assert_eq!((&heard[1]["data"], &heard[2]["data"]), (&json!(1), &json!(2)));
        }
    });
}

#[test]
fn a_peer_resumes_from_its_position_and_hears_of_gaps() {
    let node = Node::start("[engine]\nshards = 2\n[[topics]]\nselector = \"#\"\nhistory_count = 5");
    let mut epoch = Value::Null;
    for number in 1..=10 {
        epoch = node.publish(&json!({"topic": "r", "data": number}))["epoch"].clone();
    }
    let mut peer = node.socket();
    let from = json!({"epoch": epoch, "sequence": 7});
    let answer = peer.ask(&json!({"type": "subscribe", "topic": "r", "from": from}));
    assert_eq!(answer["topics"][0]["recovered"], true);
    let heard: Vec<Value> = (0..3).map(|_| peer.hear()["sequence"].clone()).collect();
    assert_eq!(heard, [8, 9, 10]);
    let from = json!({"epoch": epoch, "sequence": 2});
    let answer = peer.ask(&json!({"type": "subscribe", "topic": "r", "from": from}));
    assert_eq!(answer["topics"][0]["recovered"], false);
    let gap = peer.hear();
    assert_eq!((&gap["type"], &gap["from"], &gap["to"]), (&json!("gap"), &json!(3), &json!(5)));
    assert_eq!(peer.hear()["sequence"], 6);
}

#[test]
fn publishing_over_websocket_is_acknowledged_with_the_position() {
    on_all_layouts(|node| {
        let mut peer = node.socket();
        let publish = json!({"id": 5, "type": "publish", "topic": "w", "data": [1], "key": "k"});
        let published = peer.ask(&publish);
        assert_eq!((&published["type"], &published["sequence"]), (&json!("published"), &json!(1)));
        assert_eq!(peer.ask(&publish)["sequence"], 1, "the key counts once");
        assert_eq!(peer.ask(&json!({"id": 6, "type": "ping"}))["type"], "pong");
    });
}

#[test]
fn bad_commands_are_refused_and_the_conversation_goes_on() {
    let node = Node::start("[limits]\nsubscriptions_per_session_max = 2\npayload_bytes_max = 10");
    let mut peer = node.socket();
    let cases = [
        (json!({"id": 1, "type": "dance"}), 4201),
        (json!({"id": 1, "type": "subscribe", "topic": "a//b"}), 4203),
        (json!({"id": 1, "type": "subscribe", "topics": ["a", "b", "c"]}), 4207),
        (json!({"id": 1, "type": "unsubscribe", "topic": "a"}), 4216),
        (json!({"id": 1, "type": "publish", "topic": "a", "text": "01234567890"}), 4205),
        (json!({"id": 1, "type": "publish", "topic": "$server/x", "data": 1}), 4303),
        (json!({"id": 1, "type": "hello"}), 4200),
    ];
    for (command, code) in cases {
        let refused = peer.ask(&command);
        assert_eq!((&refused["type"], &refused["code"]), (&json!("refused"), &json!(code)));
        assert_eq!(refused["id"], 1, "{command}");
    }
    assert_eq!(peer.ask(&json!({"type": "ping"}))["type"], "pong");
}

#[test]
fn broken_frames_end_only_their_own_connection() {
    let node = Node::start("[limits]\nmessage_bytes_max = 1000");
    let mut bystander = node.socket();
    bystander.ask(&json!({"type": "subscribe", "topic": "a"}));
    let mut large = node.socket();
    large.0.send(Message::text("x".repeat(1001))).expect("open");
    assert_eq!(large.hear_end(), (4206, 1009));
    let mut garbled = node.socket();
    garbled.0.get_mut().write_all(&[0x81, 0x81, 0, 0, 0, 0, 0xFF]).expect("open");
    assert_eq!(garbled.hear_end(), (4209, 1007));
    let mut reserved = node.socket();
    reserved.0.get_mut().write_all(&[0xF1, 0x80, 0, 0, 0, 0]).expect("open");
    assert_eq!(reserved.hear_end(), (4208, 1002));
    node.publish(&json!({"topic": "a", "data": 1}));
    assert_eq!(bystander.hear()["data"], 1);
}

#[test]
fn silent_and_slow_peers_are_told_and_closed() {
    let node = Node::start(
        "[limits]\nrequest_ms = 1000\nsilence_ms = 1000\nping_after_ms = 60000\nkeep_alive_ms = 1000\n\
         [diagnostics]\necho = true",
    );
    let mut silent = node.socket();
    assert_eq!(silent.hear_end(), (4103, 4103));
    // Where nothing is said but what comes back, the close frame alone tells why.
    let mut echo = node.socket_at("/diagnostics/echo", &[]).expect("it opens");
    assert_eq!(echo.hear_end(), (0, 4103));
    let mut slow = TcpStream::connect(node.address()).expect("it listens");
    slow.set_read_timeout(Some(PATIENCE)).expect("a valid time");
    slow.write_all(b"GET /hea").expect("open");
    let mut answer = String::new();
    slow.read_to_string(&mut answer).expect("an answer to the end");
    assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("4211"), "{answer}");
}

#[test]
fn http_answers_are_coded() {
    let node = Node::start(
        "[engine]\nshards = 3\n[access]\nanonymous = \"read\"\n[[access.tokens]]\ntoken = \"t\"\nname = \"feeder\"\npublish = [\"p/#\"]\nsubscribe = [\"#\"]",
    );
    let cases = [
        ("GET /nowhere HTTP/1.1", "", 404, 4212),
        ("DELETE /health HTTP/1.1", "", 405, 4213),
        ("GET /v1/topics/a//b HTTP/1.1", "", 400, 4202),
        ("GET /v1/topics/unheard HTTP/1.1", "", 404, 4212),
        ("GET /v1/topics?selector=a/%23/b HTTP/1.1", "", 400, 4203),
        ("POST /v1/publish HTTP/1.1", "{", 403, 4301),
        ("POST /v1/publish HTTP/1.1\r\nAuthorization: Bearer t", "{", 400, 4210),
        ("POST /v1/publish HTTP/1.1\r\nAuthorization: Bearer x", "{}", 401, 4300),
        ("GET /health HTTP/1.1\r\nOrigin: http://evil.example", "", 403, 4302),
        ("GET /v1/ws HTTP/1.1", "", 400, 4210),
    ];
    for (head, body, status, code) in cases {
        let body = if body == "{" && code == 4301 { r#"{"topic":"p/a","data":1}"# } else { body };
        let (got, answer) = node.request(head, body);
        let value: Value = serde_json::from_str(&answer).expect("JSON");
        assert_eq!((got, &value["code"]), (status, &json!(code)), "{head}: {answer}");
    }
    let (status, answer) = node.request(
        "POST /v1/publish HTTP/1.1\r\nAuthorization: Bearer t",
        r#"{"publications":[{"topic":"p/b","data":{"y":  2}},{"topic":"q","data":1},{"topic":"p//","data":1}]}"#,
    );
    let results: Value = serde_json::from_str(&answer).expect("JSON");
    assert_eq!((status, &results["results"][0]["sequence"]), (200, &json!(1)));
    assert_eq!(
        (&results["results"][1]["code"], &results["results"][2]["code"]),
        (&json!(4301), &json!(4202))
    );
    let (_, value) = node.request("GET /v1/topics/p/b HTTP/1.1", "");
    assert!(value.contains(r#""data":{"y":  2}"#), "byte for byte: {value}");
    assert_eq!(node.request("GET /ready HTTP/1.1", "").0, 200);
    assert!(node.request("GET /metrics HTTP/1.1", "").1.contains("tidegate_publications_total"));
}

#[test]
fn a_history_over_http_passes_json_on_byte_for_byte() {
    let node = Node::start("");
    let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
    let payloads = [
        "123456789012345678901234567890",
        "1.10",
        r#"{"z":1,"a":2,  "z":3}"#,
        "1e999",
        r#""\u00e9\/""#,
        &deep,
    ];
    for payload in payloads {
        let body = format!(r#"{{"topic":"bytes","data":{payload}}}"#);
        assert_eq!(node.request("POST /v1/publish HTTP/1.1", &body).0, 200, "{payload}");
    }
    for path in ["/v1/history/bytes", "/v1/history/bytes?last=6&order=desc"] {
        let (_, page) = node.request(&format!("GET {path} HTTP/1.1"), "");
        for payload in payloads {
            assert!(page.contains(&format!(r#""data":{payload}}}"#)), "{payload} in {page}");
        }
    }
}

#[test]
fn listings_page_through_all_shards() {
    let node = Node::start("[engine]\nshards = 3");
    let topics: Vec<String> = (0..25).map(|number| format!("list/{number:02}")).collect();
    node.publish(&json!({"topics": topics, "data": 1}));
    let (mut after, mut found) = (String::new(), Vec::new());
    loop {
        let path = format!("GET /v1/topics?selector=list/%23&limit=10{after} HTTP/1.1");
        let page: Value = serde_json::from_str(&node.request(&path, "").1).expect("JSON");
        let names = page["topics"].as_array().expect("a list").iter();
        found.extend(names.map(|topic| topic["topic"].as_str().expect("a name").to_owned()));
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert_eq!(found, topics);
}

#[test]
fn tokens_and_origins_are_checked_at_the_door() {
    let node = Node::start(
        "[access]\nanonymous = \"none\"\norigins = [\"https://ok.example\"]\n[[access.tokens]]\ntoken = \"t\"\nname = \"n\"\nsubscribe = [\"a/#\"]",
    );
    let status = |result: Result<Peer, tungstenite::Error>| match result {
        Ok(_) => 101,
        Err(tungstenite::Error::Http(answer)) => answer.status().as_u16(),
        Err(other) => panic!("{other}"),
    };
    assert_eq!(status(node.socket_with(&[("origin", "https://evil.example")])), 403);
    assert_eq!(status(node.socket_with(&[("origin", "https://ok.example")])), 101);
    assert_eq!(status(node.socket_with(&[("authorization", "Bearer no")])), 401);
    assert_eq!(status(node.socket_with(&[("sec-websocket-protocol", "chat")])), 400);
    let mut nobody = node.socket();
    assert_eq!(nobody.ask(&json!({"type": "subscribe", "topic": "a/b"}))["code"], 4301);
    let mut known = node.socket();
    assert_eq!(known.ask(&json!({"type": "hello", "token": "t"}))["type"], "welcome");
    assert_eq!(known.ask(&json!({"type": "subscribe", "topic": "a/b"}))["type"], "subscribed");
    assert_eq!(known.ask(&json!({"type": "subscribe", "topic": "#"}))["code"], 4301);
    assert_eq!(known.ask(&json!({"type": "publish", "topic": "a", "data": 1}))["code"], 4301);
}

#[test]
fn a_full_server_says_so_and_still_answers_for_its_health() {
    let node = Node::start("[engine]\nshards = 1\n[limits]\nconnections_per_shard_max = 2");
    let mut peers = [node.socket(), node.socket()];
    let Err(tungstenite::Error::Http(answer)) = node.socket_with(&[]) else {
        panic!("a third session")
    };
    let body = answer.body().as_deref().unwrap_or_default();
    assert!(String::from_utf8_lossy(body).contains("4100") || body.is_empty(), "{answer:?}");
    assert_eq!(answer.status(), 503);
    assert_eq!(node.request("GET /health HTTP/1.1", "").0, 200);
    let [first, second] = &mut peers;
    assert_eq!(first.ask(&json!({"type": "ping"}))["type"], "pong");
    second.0.close(None).expect("open");
    assert_eq!(second.hear_end().1, 1000);
    node.socket();
}

#[test]
fn two_hundred_subscribers_get_the_same_stream() {
    let node = Node::start("[engine]\nshards = 2");
    let mut peers: Vec<Peer> = (0..200).map(|_| node.socket()).collect();
    for peer in &mut peers {
        peer.ask(&json!({"type": "hello", "batch": true}));
        peer.ask(&json!({"type": "subscribe", "topics": ["s/1", "s/2"]}));
    }
    for number in 0..50 {
        node.publish(&json!({"topics": ["s/1", "s/2"], "data": number}));
    }
    for peer in &mut peers {
        let mut seen = [0, 0];
        while seen != [50, 50] {
            let heard = peer.hear();
            for record in heard.as_array().expect("a batch") {
                let which = usize::from(record["topic"] == "s/2");
                seen[which] += 1;
                assert_eq!(record["sequence"], seen[which]);
            }
        }
    }
}

#[test]
fn a_stopping_server_says_so() {
    let node = Node::start("");
    let mut peer = node.socket();
    peer.ask(&json!({"type": "ping"}));
    node.0.as_ref().expect("running").stop();
    assert_eq!(peer.hear_end(), (4000, 4000));
}
