//! A simulated node and sessions of it, which do what each test says.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use admin::{Question, ShardCounters};
use protocol::websocket::{Opcode, encode_masked};
use server::ShardMail;
use tidegate_sim::{Lie, Network, NodeDisk, SharedDisk, SimDisk};
use tokio::sync::oneshot;

/// A node without a network that tears, and what a test does with it.
pub struct Node(pub tidegate_sim::Node);

impl Deref for Node {
    type Target = tidegate_sim::Node;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Node {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl Node {
    pub fn start(count: usize, config: &str) -> Self {
        let config = Arc::new(server::config::parse(config, "test.toml").expect("valid"));
        Self(tidegate_sim::Node::start(count, config, Network::untorn(count), None))
    }

    /// The same on an empty disk, which works when it is told to.
    pub fn on_disk(count: usize, config: &str) -> (Self, SharedDisk) {
        let config = format!("{config}\n[store]\npath = \"simulated\"\n");
        let config = Arc::new(server::config::parse(&config, "test.toml").expect("valid"));
        let disk = SimDisk::with(Lie::None);
        let on = NodeDisk { disk: Arc::clone(&disk), held: 1 };
        let network = Network::untorn(count);
        (Self(tidegate_sim::Node::start(count, config, network, Some(on))), disk)
    }

    /// Lets so much time pass, a sweep's worth at a time.
    pub fn pass(&mut self, time: Duration) {
        let until = self.clocks.elapsed + time;
        while self.clocks.elapsed < until {
            let left = until - self.clocks.elapsed;
            self.clocks.elapsed += left.min(Duration::from_millis(500));
            self.turn();
        }
    }

    pub fn turn(&mut self) {
        self.turn_all();
    }

    pub fn turns(&mut self, count: usize) {
        (0..count).for_each(|_| self.turn());
    }

    /// What all shards counted; of the answers that waited for one connection the most.
    pub fn counters(&mut self) -> ShardCounters {
        let mut sum = ShardCounters::default();
        for shard in 0..self.mailboxes.len() {
            let (answer, mut counted) = oneshot::channel();
            let question = ShardMail::Question(Box::new(Question::Counters { answer }));
            assert!(self.mailboxes[shard].send(question).is_ok(), "a mailbox with room");
            self.turn();
            let (counted, _) = counted.try_recv().expect("answered in one turn");
            let peak = sum.answers_bytes_peak.max(counted.answers_bytes_peak);
            sum.add(&counted);
            sum.answers_bytes_peak = peak;
        }
        sum
    }

    pub fn connect(&mut self) -> u32 {
        self.network.borrow_mut().connect(0)
    }

    pub fn send(&mut self, link: u32, bytes: &[u8]) {
        self.network.borrow_mut().send(link, bytes);
    }

    pub fn receive(&mut self, link: u32) -> String {
        let bytes = self.network.borrow_mut().receive(link, usize::MAX);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    pub fn is_held(&self, link: u32) -> bool {
        self.network.borrow().is_open(link) || self.network.borrow().abandoned().contains(&link)
    }
}

pub const HANDSHAKE: &[u8] = b"GET /v1/ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n\
    Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

pub fn frame(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    encode_masked(Opcode::Text, text.as_bytes(), [0; 4], &mut out);
    out
}

/// How commands travel together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Carriage {
    /// Each a text frame of its own, all in one write.
    Frames,
    /// Control records of one binary message.
    Records,
    /// The body of one request, for a session whose response goes on.
    Stream,
    /// The same for one that is polled.
    Poll,
}

pub const CARRIAGES: [Carriage; 4] =
    [Carriage::Frames, Carriage::Records, Carriage::Stream, Carriage::Poll];

pub fn post(target: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("POST {target} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}").into()
}

/// A session over some carriage.
pub struct Session {
    pub carriage: Carriage,
    pub link: u32,
    pub key: String,
}

impl Session {
    pub fn open(node: &mut Node, carriage: Carriage) -> Self {
        let link = node.connect();
        let opening = match carriage {
            Carriage::Frames => HANDSHAKE.to_vec(),
            Carriage::Records => {
                let text = String::from_utf8_lossy(HANDSHAKE).into_owned();
                let offer = "\r\nSec-WebSocket-Protocol: tidegate.v1\r\n\r\n";
                text.replace("\r\n\r\n", offer).into()
            }
            Carriage::Stream => post("/v1/stream", ""),
            Carriage::Poll => post("/v1/poll", ""),
        };
        node.send(link, &opening);
        node.turns(4);
        let answer = node.receive(link);
        let key = answer.split_once("\"key\":\"").and_then(|(_, rest)| rest.split_once('"'));
        let key = key.map_or_else(String::new, |(key, _)| key.to_owned());
        assert!(answer.starts_with("HTTP/1.1 "), "{answer}");
        Self { carriage, link, key }
    }

    /// Sends commands together.
    pub fn say(&self, node: &mut Node, commands: &[String]) {
        match self.carriage {
            Carriage::Frames => {
                let frames: Vec<u8> = commands.iter().flat_map(|command| frame(command)).collect();
                node.send(self.link, &frames);
            }
            Carriage::Records => {
                let mut message = Vec::new();
                for command in commands {
                    assert!(command.len() < 1 << 14);
                    let len = command.len();
                    message.extend([0, len as u8 | 0x80, (len >> 7) as u8]);
                    message.extend_from_slice(command.as_bytes());
                }
                let mut bytes = Vec::new();
                encode_masked(Opcode::Binary, &message, [0; 4], &mut bytes);
                node.send(self.link, &bytes);
            }
            Carriage::Stream | Carriage::Poll => {
                let link = node.connect();
                let target = format!("/v1/commands?session={}", self.key);
                node.send(link, &post(&target, &commands.join("\n")));
                node.turns(4);
                let answer = node.receive(link);
                assert!(
                    answer.contains(&format!("{{\"accepted\":{}}}", commands.len())),
                    "{answer}"
                );
            }
        }
    }

    /// Reads all there is; for one that is polled, polls.
    pub fn read(&self, node: &mut Node, batch: u64) -> String {
        if self.carriage != Carriage::Poll {
            return node.receive(self.link);
        }
        let link = node.connect();
        let target = format!("/v1/poll?session={}&batch={batch}", self.key);
        node.send(link, &post(&target, ""));
        let mut answer = String::new();
        for _ in 0..3_000 {
            node.turn();
            answer += &node.receive(link);
            if answer.ends_with("}\n") {
                break;
            }
        }
        answer
    }
}

pub fn commands_of(row: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| row.replace('N', &(number + 100).to_string())).collect()
}

/// A node with a history of 200 kB, another of control characters, that take six times as much in JSON, 500 topics under one pattern, and a handler whose answer of 100 kB is remembered.
pub fn node_with_content(shards: usize) -> Node {
    let limits =
        "[limits]\nmemory_bytes_max = 0\n[[topics]]\nselector = \"+\"\nhistory_count = 20\n";
    let mut node = Node::start(shards, limits);
    let publisher = Session::open(&mut node, Carriage::Frames);
    let history = [("a", "x"), ("c", "\\u0001")].into_iter().flat_map(|(topic, character)| {
        let text = character.repeat(10_000);
        let command = format!(r#"{{"type":"publish","topic":"{topic}","text":"{text}"}}"#);
        std::iter::repeat_n(command, 20)
    });
    let many = (0..500).map(|at| format!(r#"{{"type":"publish","topic":"many/{at}","data":1}}"#));
    let commands: Vec<String> = history.chain(many).collect();
    publisher.say(&mut node, &commands);
    let large = format!(r#"{{"type":"publish","topic":"b","text":"{}"}}"#, "y".repeat(900_000));
    publisher.say(&mut node, &[large]);
    let handler = Session::open(&mut node, Carriage::Frames);
    handler.say(&mut node, &[r#"{"id":1,"type":"handle","topic":"r"}"#.into()]);
    node.turns(10);
    node.receive(handler.link);
    publisher
        .say(&mut node, &[r#"{"id":1,"type":"request","topic":"r","data":1,"key":"k"}"#.into()]);
    node.turns(10);
    let asked = node.receive(handler.link);
    let number = asked.split_once("\"request\":").and_then(|(_, rest)| rest.split_once(','));
    let (number, _) = number.expect("a request");
    let answer =
        format!(r#"{{"type":"respond","request":{number},"text":"{}"}}"#, "z".repeat(100_000));
    handler.say(&mut node, &[answer]);
    let mut told = String::new();
    for _ in 0..2_000 {
        node.turn();
        told += &node.receive(publisher.link);
        if told.contains("\"response\"") && told.ends_with('}') {
            break;
        }
    }
    assert!(told.contains("\"response\""), "{told}");
    node
}

/// The ids of the answers in what a session was told, in order.
pub fn ids_of(told: &str) -> Vec<u64> {
    let ids = told.split("\"id\":").skip(1);
    ids.filter_map(|rest| rest.split(|it: char| !it.is_ascii_digit()).next()?.parse().ok())
        .collect()
}
