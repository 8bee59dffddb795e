//! Single connections of a simulated node: the clock and the network do what each test says, so that what must
//! take long takes no time, and what must come together does.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use admin::{Question, ShardCounters};
use model::{Command, Limits};
use protocol::native::json;
use protocol::websocket::{Opcode, encode_masked};
use server::ShardMail;
use tidegate_sim::{Lie, Network, NodeDisk, Random, SharedDisk, SimDisk};
use tokio::sync::oneshot;

/// A node without a network that tears, and what a test does with it.
struct Node(tidegate_sim::Node);

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
    fn start(count: usize, config: &str) -> Self {
        let config = Arc::new(server::config::parse(config, "test.toml").expect("valid"));
        Self(tidegate_sim::Node::start(count, config, Network::untorn(count), None))
    }

    /// The same on an empty disk, which works when it is told to.
    fn on_disk(count: usize, config: &str) -> (Self, SharedDisk) {
        let config = format!("{config}\n[store]\npath = \"simulated\"\n");
        let config = Arc::new(server::config::parse(&config, "test.toml").expect("valid"));
        let disk = SimDisk::with(Lie::None);
        let on = NodeDisk { disk: Arc::clone(&disk), held: 1 };
        let network = Network::untorn(count);
        (Self(tidegate_sim::Node::start(count, config, network, Some(on))), disk)
    }

    /// Lets so much time pass, a sweep's worth at a time.
    fn pass(&mut self, time: Duration) {
        let until = self.clocks.elapsed + time;
        while self.clocks.elapsed < until {
            let left = until - self.clocks.elapsed;
            self.clocks.elapsed += left.min(Duration::from_millis(500));
            self.turn();
        }
    }

    fn turn(&mut self) {
        self.turn_all();
    }

    fn turns(&mut self, count: usize) {
        (0..count).for_each(|_| self.turn());
    }

    /// What all shards counted; of the answers that waited for one connection the most.
    fn counters(&mut self) -> ShardCounters {
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

    fn connect(&mut self) -> u32 {
        self.network.borrow_mut().connect(0)
    }

    fn send(&mut self, link: u32, bytes: &[u8]) {
        self.network.borrow_mut().send(link, bytes);
    }

    fn receive(&mut self, link: u32) -> String {
        let bytes = self.network.borrow_mut().receive(link, usize::MAX);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn is_held(&self, link: u32) -> bool {
        self.network.borrow().is_open(link) || self.network.borrow().abandoned().contains(&link)
    }
}

const HANDSHAKE: &[u8] = b"GET /v1/ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n\
    Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

fn frame(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    encode_masked(Opcode::Text, text.as_bytes(), [0; 4], &mut out);
    out
}

#[test]
fn data_and_the_end_of_a_connection_that_come_together_end_the_session() {
    let mut node = Node::start(1, "");
    let link = node.connect();
    node.send(link, HANDSHAKE);
    node.turn();
    assert!(node.receive(link).starts_with("HTTP/1.1 101"));
    node.send(link, &frame(r#"{"type":"ping"}"#));
    node.network.borrow_mut().drop_link(link);
    node.turn();
    assert!(!node.is_held(link), "nothing will tell of the end again");
}

#[test]
fn a_client_that_left_while_its_input_waits_is_let_go_of() {
    let mut node = node_with_content(1);
    let row = r#"{"id":N,"type":"history","topic":"a"}"#;
    for carriage in [Carriage::Frames, Carriage::Records] {
        let session = Session::open(&mut node, carriage);
        session.say(&mut node, &commands_of(row, 2_000));
        node.turns(10);
        assert_eq!(node.counters().inputs_waiting, 1, "its answers are not taken");
        node.network.borrow_mut().drop_link(session.link);
        node.turn();
        assert!(!node.is_held(session.link), "{carriage:?}: it waits for somebody who is gone");
        node.turn();
        assert_eq!(node.counters().inputs_waiting, 0);
    }
}

#[test]
fn a_request_after_a_long_rest_may_come_in_two_pieces() {
    let config = "[limits]\nrequest_ms = 10000\nkeep_alive_ms = 60000";
    let mut node = Node::start(1, config);
    let link = node.connect();
    let ping =
        "POST /v1/request?topic=$server/ping HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n1234";
    node.send(link, ping.as_bytes());
    node.turn();
    assert!(node.receive(link).starts_with("HTTP/1.1 200"));
    node.pass(Duration::from_secs(30));
    let (first, second) = ping.split_at(20);
    node.send(link, first.as_bytes());
    node.pass(Duration::from_secs(5));
    node.send(link, second.as_bytes());
    node.pass(Duration::from_secs(1));
    assert!(node.receive(link).starts_with("HTTP/1.1 200"));
    // The limit holds all the same.
    node.send(link, first.as_bytes());
    node.pass(Duration::from_secs(13));
    assert!(node.receive(link).starts_with("HTTP/1.1 408"));
    assert!(!node.is_held(link));
}

#[test]
fn strangers_are_counted_by_the_address_of_their_connection_on_all_shards_together() {
    let config = "[limits]\nconnections_per_address_max = 2";
    let mut node = Node::start(2, config);
    let (one, other) = ([203, 0, 113, 5].into(), [203, 0, 113, 6].into());
    let connect = |node: &mut Node, shard, address| {
        let link = node.network.borrow_mut().connect_from(shard, address);
        node.turn();
        link
    };
    let links = [connect(&mut node, 0, one), connect(&mut node, 1, one)];
    let refused = connect(&mut node, 1, one);
    let answer = node.receive(refused);
    assert!(answer.starts_with("HTTP/1.1 429") && answer.contains("4113"), "{answer}");
    assert!(!node.is_held(refused));
    let others = [connect(&mut node, 0, other), connect(&mut node, 1, [127, 0, 0, 1].into())];
    assert!(links.iter().chain(&others).all(|link| node.is_held(*link)));
    node.network.borrow_mut().drop_link(links[0]);
    node.send(links[0], b"");
    node.turn();
    let again = connect(&mut node, 1, one);
    assert!(node.is_held(again), "one went");
}

#[test]
fn a_websocket_that_presents_no_token_is_closed_when_its_time_is_up_and_not_before() {
    let config = "[access]\nanonymous = \"none\"\n[limits]\nauthenticate_ms = 10000";
    let mut node = Node::start(1, config);
    let link = node.connect();
    node.send(link, HANDSHAKE);
    node.turn();
    assert!(node.receive(link).starts_with("HTTP/1.1 101"));
    node.send(link, &frame(r#"{"type":"ping"}"#));
    node.pass(Duration::from_secs(9));
    assert!(node.receive(link).contains("pong") && node.is_held(link));
    node.pass(Duration::from_secs(3));
    assert!(node.receive(link).contains("4305") && !node.is_held(link));
}

/// How commands travel together.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Carriage {
    /// Each a text frame of its own, all in one write.
    Frames,
    /// Control records of one binary message.
    Records,
    /// The body of one request, for a session whose response goes on.
    Stream,
    /// The same for one that is polled.
    Poll,
}

const CARRIAGES: [Carriage; 4] =
    [Carriage::Frames, Carriage::Records, Carriage::Stream, Carriage::Poll];

fn post(target: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("POST {target} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}").into()
}

/// A session over some carriage.
struct Session {
    carriage: Carriage,
    link: u32,
    key: String,
}

impl Session {
    fn open(node: &mut Node, carriage: Carriage) -> Self {
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
    fn say(&self, node: &mut Node, commands: &[String]) {
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
    fn read(&self, node: &mut Node, batch: u64) -> String {
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

/// Which command it is. Whoever adds one adds it here, counts it, and gives it a row.
fn number_of(command: &Command) -> usize {
    match command {
        Command::Hello(_) => 0,
        Command::Subscribe(_) => 1,
        Command::Unsubscribe(_) => 2,
        Command::Publish(_) => 3,
        Command::History(_) => 4,
        Command::Acknowledge(_) => 5,
        Command::Handle(_) => 6,
        Command::Unhandle(_) => 7,
        Command::Request(_) => 8,
        Command::Respond(_) => 9,
        Command::Attach(_) => 10,
        Command::Detach(_) => 11,
        Command::Close => 12,
        Command::Ping => 13,
    }
}

const COMMANDS: usize = 14;

/// Every command at its most expensive; `N` is replaced by the number of the command.
const ROWS: &[&str] = &[
    r#"{"id":N,"type":"hello","client":"x"}"#,
    r#"{"id":N,"type":"subscribe","topic":"s/N"}"#,
    r#"{"id":N,"type":"subscribe","topic":"many/#","from":"now"}"#,
    r#"{"id":N,"type":"subscribe","topic":"+/N"}"#,
    r#"{"id":N,"type":"unsubscribe","topic":"never/subscribed/N"}"#,
    r#"{"id":N,"type":"publish","topic":"p/N","data":1}"#,
    r#"{"id":N,"type":"publish","topic":"p","data":1,"expect":77}"#,
    r#"{"id":N,"type":"history","topic":"a"}"#,
    r#"{"id":N,"type":"history","topic":"b","last":1}"#,
    r#"{"id":N,"type":"history","topic":"c"}"#,
    r#"{"id":N,"type":"acknowledge","name":"n","positions":{"a":{"epoch":"e","sequence":1}}}"#,
    r#"{"id":N,"type":"handle","topic":"h/N"}"#,
    r#"{"id":N,"type":"unhandle","topic":"never/handled/N"}"#,
    r#"{"id":N,"type":"request","topic":"r","data":1,"key":"k"}"#,
    r#"{"id":N,"type":"request","topic":"r","data":1,"key":"k","timeout_ms":100000}"#,
    r#"{"id":N,"type":"request","topic":"nobody","data":1}"#,
    r#"{"id":N,"type":"respond","request":N,"data":1}"#,
    r#"{"id":N,"type":"attach","device":"app/dN","authorization":"Bearer wrong"}"#,
    r#"{"id":N,"type":"detach","device":"app/dN"}"#,
    r#"{"id":N,"type":"close"}"#,
    r#"{"id":N,"type":"ping"}"#,
];

fn commands_of(row: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| row.replace('N', &(number + 100).to_string())).collect()
}

/// A node with a history of 200 kB, another of control characters, that take six times as much in JSON, 500 topics under one pattern, and a handler whose answer of 100 kB is remembered.
fn node_with_content(shards: usize) -> Node {
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

#[test]
fn work_and_answers_are_bounded_for_every_command() {
    let limits = Limits::default();
    let mut numbers: Vec<usize> = Vec::new();
    for row in ROWS {
        let text = &commands_of(row, 1)[0];
        let (_, command) = json::decode_command(text, &limits).expect("a valid row");
        numbers.push(number_of(&command));
    }
    numbers.dedup();
    assert_eq!(numbers, (0..COMMANDS).collect::<Vec<_>>(), "each command has rows");
    let mut broken = Vec::new();
    for shards in [1, 3] {
        for carriage in CARRIAGES {
            for count in [2_000, 4_000] {
                for row in ROWS {
                    let mut node = node_with_content(shards);
                    let wrong = check_unread(&mut node, carriage, row, count);
                    broken.extend(wrong.map(|wrong| format!("{shards} shards, {wrong}")));
                }
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// The bytes of answers that may wait for one connection after so many commands of a row.
fn bytes_max_of(row: &str, count: usize) -> usize {
    let limits = Limits::default();
    // A publication that alone is larger than the bound is told all the same.
    let one = if row.contains("\"b\"") { 900_000 } else { 0 };
    // A page has no more once it is full: the last publication may go beyond, here one of 10,000 escapes.
    let last = if row.contains("\"c\"") { 60_000 } else { 0 };
    // Requests are bounded by their number: the refusals of all that are under way may come at once.
    let is_request = row.contains("\"type\":\"request\"");
    let refused = if is_request { count.min(limits.requests_per_session_max) } else { 0 };
    limits.answers_bytes_max.max(one) + last + (16 << 10) + refused * 320
}

/// What is wrong with what waits for a connection that reads nothing of what its commands are answered.
fn check_unread(node: &mut Node, carriage: Carriage, row: &str, count: usize) -> Option<String> {
    let before = node.counters();
    let session = Session::open(node, carriage);
    session.say(node, &commands_of(row, count));
    node.turns(30);
    let counters = node.counters();
    // Each command was carried out once at most: there is nothing else that could have been done.
    let commands = counters.commands - before.commands;
    let peak = counters.answers_bytes_peak;
    let is_right = peak <= bytes_max_of(row, count) as u64 && commands <= count as u64 + 2;
    (!is_right).then(|| {
        format!("{carriage:?}, {count} of {row}: {commands} commands, {peak} bytes waited")
    })
}

/// The ids of the answers in what a session was told, in order.
fn ids_of(told: &str) -> Vec<u64> {
    let ids = told.split("\"id\":").skip(1);
    ids.filter_map(|rest| rest.split(|it: char| !it.is_ascii_digit()).next()?.parse().ok())
        .collect()
}

#[test]
fn commands_that_waited_are_all_carried_out_in_order_once_their_answers_are_read() {
    let rows = [
        r#"{"id":N,"type":"history","topic":"a","last":3}"#,
        r#"{"id":N,"type":"request","topic":"$server/ping","text":"0123456789"}"#,
        r#"{"id":N,"type":"subscribe","topic":"many/#","from":"now"}"#,
    ];
    for shards in [1, 3] {
        for carriage in CARRIAGES {
            for row in rows {
                let mut node = node_with_content(shards);
                let session = Session::open(&mut node, carriage);
                const COUNT: usize = 60;
                session.say(&mut node, &commands_of(row, COUNT));
                node.turns(10);
                let (mut told, mut batch) = (String::new(), 1);
                let last = (COUNT - 1 + 100) as u64;
                for _ in 0..100_000 {
                    if ids_of(&told).last() == Some(&last) {
                        break;
                    }
                    node.turn();
                    told += &session.read(&mut node, batch);
                    batch += 1;
                }
                let expected: Vec<u64> = (100..=last).collect();
                assert_eq!(ids_of(&told), expected, "{shards} shards, {carriage:?}, {row}");
            }
        }
    }
}

/// Steps of a turn in which commands of one write are carried out: what a turn may take, and what goes on beside that.
const STEPS_OF_A_TURN: u64 = 50_000 + 25_000;

#[test]
fn commands_that_come_together_share_the_steps_of_a_turn_with_others() {
    const COUNT: usize = 1_000;
    for carriage in CARRIAGES {
        let mut node = Node::start(1, "");
        let session = Session::open(&mut node, carriage);
        // Each of the others is compared with all of these.
        let names: Vec<String> = (0..1_500).map(|number| format!("\"n/{number}\"")).collect();
        let subscribe = |names: &[String]| {
            format!(r#"{{"id":1,"type":"subscribe","topics":[{}]}}"#, names.join(","))
        };
        let first: Vec<String> = names.chunks(500).map(subscribe).collect();
        session.say(&mut node, &first);
        node.turns(20);
        let before = node.counters();
        let row = r#"{"id":N,"type":"subscribe","topic":"other/N"}"#;
        session.say(&mut node, &commands_of(row, COUNT));
        // Mail has its turn all the same: this is answered in one.
        let early = node.counters();
        let carried_out = early.commands - before.commands;
        assert!((1..COUNT as u64).contains(&carried_out), "{carriage:?}: {carried_out} at once");
        let (mut told, mut batch) = (String::new(), 1);
        for _ in 0..5_000 {
            if ids_of(&told).last() == Some(&(COUNT as u64 + 99)) {
                break;
            }
            node.counters();
            told += &session.read(&mut node, batch);
            batch += 1;
        }
        let after = node.counters();
        assert_eq!(after.commands - before.commands, COUNT as u64, "{carriage:?}");
        let (steps, peak) = (after.work - before.work, after.work_per_turn_peak);
        assert!(steps > 1_000_000, "{carriage:?}: {steps} steps are no test");
        assert!(peak <= STEPS_OF_A_TURN, "{carriage:?}: {peak} steps in a turn");
    }
}

/// Lets the node do what it has to do, until it does nothing more.
fn settle(node: &mut Node) {
    let mut work = 0;
    for _ in 0..1_000 {
        node.turns(10);
        let before = std::mem::replace(&mut work, node.counters().work);
        if work - before <= 16 * node.mailboxes.len() as u64 {
            return;
        }
    }
    panic!("it comes to no rest");
}

/// Steps that it takes to answer fifty pings, each in a turn of its own.
fn steps_of_pings(node: &mut Node) -> u64 {
    let session = Session::open(node, Carriage::Frames);
    node.turns(4);
    let before = node.counters().work;
    for _ in 0..50 {
        session.say(node, &[r#"{"type":"ping"}"#.into()]);
        node.turn();
        assert!(session.read(node, 0).contains("pong"));
    }
    node.counters().work - before
}

#[test]
fn those_who_wait_cost_nothing_while_nothing_happens_to_them() {
    let row = r#"{"id":N,"type":"history","topic":"a"}"#;
    let steps = |carriage, waiting: usize| {
        let mut node = node_with_content(1);
        let sessions: Vec<Session> =
            (0..waiting).map(|_| Session::open(&mut node, carriage)).collect();
        for session in &sessions {
            session.say(&mut node, &commands_of(row, 4));
        }
        settle(&mut node);
        assert_eq!(node.counters().inputs_waiting, waiting as u64, "their answers are not taken");
        let steps = steps_of_pings(&mut node);
        let told: usize = sessions[0].read(&mut node, 1).len();
        for _ in 0..2_000 {
            sessions.iter().for_each(|session| drop(node.receive(session.link)));
            node.turn();
        }
        let left = node.counters().inputs_waiting;
        assert!(told > 0 && (left == 0 || carriage == Carriage::Poll), "{carriage:?}: {left} left");
        steps
    };
    for carriage in CARRIAGES {
        let [once, twice] = [100, 200].map(|waiting| steps(carriage, waiting));
        assert!(twice <= once + 50, "{carriage:?}: {once} steps beside 100, {twice} beside 200");
    }
}

#[test]
fn those_who_are_being_closed_cost_nothing_while_nothing_happens_to_them() {
    let steps = |closing: usize| {
        let mut node = node_with_content(1);
        let sessions: Vec<Session> =
            (0..closing).map(|_| Session::open(&mut node, Carriage::Frames)).collect();
        for session in &sessions {
            session.say(&mut node, &commands_of(r#"{"id":N,"type":"history","topic":"a"}"#, 1));
            session.say(&mut node, &[r#"{"type":"close"}"#.into()]);
        }
        settle(&mut node);
        let steps = steps_of_pings(&mut node);
        // One takes what waits for it, the others do not.
        for _ in 0..300 {
            node.receive(sessions[0].link);
            node.turn();
        }
        let is_held = |node: &Node| sessions.iter().filter(|it| node.is_held(it.link)).count();
        assert_eq!(is_held(&node), closing - 1);
        node.pass(Duration::from_secs(6));
        assert_eq!(is_held(&node), 0);
        steps
    };
    let [once, twice] = [100, 200].map(steps);
    assert!(twice <= once + 50, "{once} steps beside 100, {twice} beside 200");
}

#[test]
fn a_key_for_one_websocket_is_used_up_also_where_the_clock_is_set_back() {
    let config = "[[applications]]\nid = \"meters\"\n\
                  [[applications.keys]]\nid = \"k1\"\nkey = \"application-key-0123\"\nroles = [\"application\"]\n";
    let mut node = Node::start(1, config);
    node.clocks.skew = Duration::from_secs(1_000_000);
    let ask = |node: &mut Node, request: &str| {
        let link = node.connect();
        node.send(link, request.as_bytes());
        node.turns(5);
        node.receive(link)
    };
    let answer = ask(
        &mut node,
        "POST /v1/devices/d1/key?application=meters HTTP/1.1\r\nHost: localhost\r\n\
         Authorization: Bearer application-key-0123\r\nContent-Length: 0\r\n\r\n",
    );
    let key = answer.split("\"key\":\"").nth(1).and_then(|rest| rest.split('"').next());
    let key = key.unwrap_or_else(|| panic!("no key in {answer}"));
    let open = format!(
        "GET /v1/devices/d1/ws?application=meters&key={key} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n\
         Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    let first = ask(&mut node, &open);
    assert!(!first.contains(" 401 "), "the key is good once: {first}");
    node.clocks.skew -= Duration::from_secs(300);
    let again = ask(&mut node, &open);
    assert!(again.starts_with("HTTP/1.1 401 "), "{again}");
}

#[test]
fn a_proof_is_used_up_also_where_the_clock_is_set_back_and_forth() {
    const KEY: &str = "application-key-0123";
    let config = format!(
        "[[applications]]\nid = \"meters\"\n\
         [[applications.keys]]\nid = \"k1\"\nkey = \"{KEY}\"\nroles = [\"application\"]\n"
    );
    let mut node = Node::start(1, &config);
    node.clocks.skew = Duration::from_secs(1_000_000);
    let ask = |node: &mut Node, line: &str| {
        let link = node.connect();
        let request = format!("{line}\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
        node.send(link, request.as_bytes());
        node.turns(5);
        node.receive(link)
    };
    let answer = ask(&mut node, "GET /v1/devices/challenge HTTP/1.1");
    let challenge = answer.split("\"challenge\":\"").nth(1).and_then(|rest| rest.split('"').next());
    let challenge = challenge.unwrap_or_else(|| panic!("no challenge in {answer}"));
    let mut mac = <hmac::Hmac<sha2::Sha256> as hmac::Mac>::new_from_slice(KEY.as_bytes())
        .expect("any length");
    hmac::Mac::update(&mut mac, format!("{challenge}\nmeters/d1").as_bytes());
    let mac = hmac::Mac::finalize(mac).into_bytes();
    let mac: String = mac.iter().map(|byte| format!("{byte:02x}")).collect();
    let proof = format!(
        "POST /v1/devices/d1/key?application=meters HTTP/1.1\r\n\
         Authorization: Tidegate-HMAC key=\"k1\", challenge=\"{challenge}\", mac=\"{mac}\""
    );
    let first = ask(&mut node, &proof);
    assert!(first.starts_with("HTTP/1.1 200 "), "it is good once: {first}");
    for skew in [1_000_000 - 300, 1_000_000, 1_000_000 - 3_000, 1_000_000 + 30] {
        node.clocks.skew = Duration::from_secs(skew);
        let again = ask(&mut node, &proof);
        assert!(again.starts_with("HTTP/1.1 401 "), "at {skew}: {again}");
    }
}

/// What shard 0 counted, asked without a turn of another shard.
fn counted(node: &mut Node) -> ShardCounters {
    let (answer, mut counted) = oneshot::channel();
    let question = ShardMail::Question(Box::new(Question::Counters { answer }));
    assert!(node.mailboxes[0].send(question).is_ok(), "a mailbox with room");
    node.0.turn(0);
    counted.try_recv().expect("answered in one turn").0
}

/// Names of topics that are at home on the second of two shards.
fn topics_of_the_other(start: &str) -> impl Iterator<Item = String> {
    let names = (0..).map(move |number| format!("{start}{number}"));
    let home = |name: &str| hub::home_shard_of(name, 2).0;
    names.filter(move |name| home(name) == 1)
}

/// How many refusals of a code are in what a session was told.
fn refusals(told: &str, code: u16) -> usize {
    told.matches(&format!("\"code\":{code}")).count()
}

#[test]
fn mail_that_waits_for_a_full_mailbox_is_bounded() {
    const WAITING_MAX: u64 = 10;
    let limits = format!("[limits]\nmailbox_len_max = 4\nmail_waiting_max = {WAITING_MAX}");
    let mut node = Node::start(2, &limits);
    let session = Session::open(&mut node, Carriage::Frames);
    let commands = |start: &str, count: usize| -> Vec<String> {
        let subscribe = |topic| format!(r#"{{"id":1,"type":"subscribe","topic":"{topic}"}}"#);
        topics_of_the_other(start).take(count).map(subscribe).collect()
    };
    let mut told = String::new();
    // The other shard has no turn meanwhile.
    for command in commands("t", 50) {
        session.say(&mut node, &[command]);
        node.0.turn(0);
        let waiting = counted(&mut node).mail_waiting;
        assert!(waiting <= WAITING_MAX, "{waiting} messages wait");
        told += &session.read(&mut node, 0);
    }
    let refused = refusals(&told, 4001);
    assert!((20..50).contains(&refused), "{refused} were refused");
    let post = post("/v1/devices/a/send?application=a", "");
    let link = node.connect();
    node.send(link, &post);
    node.0.turn(0);
    let answer = node.receive(link);
    assert!(answer.contains("4001") && answer.contains("mail_waiting_max"), "{answer}");
    node.turns(50);
    assert_eq!(counted(&mut node).mail_waiting, 0);
    session.read(&mut node, 0);
    session.say(&mut node, &commands("later", 1));
    node.turns(4);
    assert!(session.read(&mut node, 0).contains("subscribed"));
}

#[test]
fn subscribes_that_wait_for_their_names_positions_are_bounded() {
    const WAITING_MAX: usize = 3;
    let config = format!("[limits]\nsubscribes_waiting_max = {WAITING_MAX}");
    let (mut node, _) = Node::on_disk(2, &config);
    let name = topics_of_the_other("$subscribers/anonymous/n").next().expect("there is one");
    let name = name.rsplit('/').next().expect("a name");
    let command = format!(r#"{{"id":1,"type":"subscribe","topic":"t","name":"{name}"}}"#);
    let sessions: Vec<Session> =
        (0..6).map(|_| Session::open(&mut node, Carriage::Frames)).collect();
    for session in &sessions {
        session.say(&mut node, std::slice::from_ref(&command));
        node.0.turn(0);
    }
    assert_eq!(counted(&mut node).subscribes_waiting as usize, WAITING_MAX);
    let told: Vec<String> = sessions.iter().map(|session| session.read(&mut node, 0)).collect();
    let refused: usize = told.iter().map(|told| refusals(told, 4001)).sum();
    assert_eq!(refused, sessions.len() - WAITING_MAX, "{told:?}");
    assert!(told[5].contains("subscribes_waiting_max (3)"), "{}", told[5]);
    node.turns(8);
    assert_eq!(counted(&mut node).subscribes_waiting, 0);
    sessions[5].say(&mut node, &[command]);
    node.turns(8);
    assert!(sessions[5].read(&mut node, 0).contains("subscribed"));
}

#[test]
fn pages_that_are_read_from_the_store_are_bounded() {
    const READS_MAX: usize = 3;
    let config = format!(
        "[limits]\nstore_reads_max = {READS_MAX}\n\
         [[topics]]\nselector = \"#\"\nack = \"disk\"\nhistory_count = 100\nmemory_count = 1\n"
    );
    let (mut node, disk) = Node::on_disk(1, &config);
    let publisher = Session::open(&mut node, Carriage::Frames);
    let publish = r#"{"type":"publish","topic":"t","data":1}"#.to_owned();
    publisher.say(&mut node, &vec![publish; 20]);
    // What the disk did is heard in the turn after.
    let work = |node: &mut Node| {
        for _ in 0..3 {
            node.turn();
            for (shard, mail) in disk.lock().expect("nobody panicked").work(100) {
                assert!(node.mailboxes[shard].send(ShardMail::Store(mail)).is_ok());
            }
            node.turn();
        }
    };
    work(&mut node);
    let sessions: Vec<Session> =
        (0..6).map(|_| Session::open(&mut node, Carriage::Frames)).collect();
    let history = r#"{"id":1,"type":"history","topic":"t"}"#.to_owned();
    for session in &sessions {
        session.say(&mut node, std::slice::from_ref(&history));
    }
    node.turn();
    assert_eq!(counted(&mut node).store_reads as usize, READS_MAX);
    let told: Vec<String> = sessions.iter().map(|session| session.read(&mut node, 0)).collect();
    let refused: usize = told.iter().map(|told| refusals(told, 4116)).sum();
    assert_eq!(refused, sessions.len() - READS_MAX, "{told:?}");
    work(&mut node);
    assert_eq!(counted(&mut node).store_reads, 0);
    sessions[5].say(&mut node, &[history]);
    work(&mut node);
    let told = sessions[5].read(&mut node, 0);
    assert_eq!(told.matches("\"sequence\"").count(), 20, "{told}");
}

/// A session that attaches devices, and what it was told of them.
struct Gateway {
    link: u32,
    told: String,
    /// The id of its last command.
    asked: u64,
}

impl Gateway {
    fn open(node: &mut Node, shard: usize) -> Self {
        let link = node.network.borrow_mut().connect(shard);
        node.send(link, HANDSHAKE);
        Self { link, told: String::new(), asked: 0 }
    }

    fn say(&mut self, node: &mut Node, verb: &str, device: usize) {
        self.asked += 1;
        let id = self.asked;
        let key = match verb {
            "attach" => r#","authorization":"Bearer device-key-0123456789""#,
            _ => "",
        };
        let text = format!(r#"{{"id":{id},"type":"{verb}","device":"meters/d{device}"{key}}}"#);
        node.send(self.link, &frame(&text));
    }

    /// The devices that it has, by what it was told.
    fn devices(&self) -> BTreeSet<String> {
        let mut devices = BTreeMap::new();
        for event in self.told.split(r#"{"type":""#).skip(1) {
            let device = event.split(r#""device":"meters/"#).nth(1);
            let device = device.and_then(|rest| rest.split('"').next());
            let is_attached = match event.split('"').next() {
                Some("attached") => true,
                Some("detached") => false,
                _ => continue,
            };
            devices.insert(device.expect("a name").to_owned(), is_attached);
        }
        devices.into_iter().filter(|(_, has)| *has).map(|(device, _)| device).collect()
    }
}

/// The devices that are attached as an application is told.
fn devices_listed(node: &mut Node) -> BTreeSet<String> {
    let link = node.connect();
    node.send(
        link,
        b"GET /v1/devices?application=meters&limit=100 HTTP/1.1\r\nHost: localhost\r\n\
          Authorization: Bearer application-key-0123\r\n\r\n",
    );
    node.turns(8);
    let answer = node.receive(link);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let names = answer.split(r#""device":""#).skip(1);
    names.filter_map(|rest| rest.split('"').next()).map(str::to_owned).collect()
}

/// Sessions on three shards attach and detach the same devices; shards have their turns in any order. In the end each device
/// is where its home says, and every command has its one answer.
fn check_takeovers(seed: u64) {
    const SHARDS: usize = 3;
    const DEVICES: usize = 3;
    let config = "[[applications]]\nid = \"meters\"\n\
                  [[applications.keys]]\nid = \"d\"\nkey = \"device-key-0123456789\"\nroles = [\"device\"]\n\
                  [[applications.keys]]\nid = \"a\"\nkey = \"application-key-0123\"\nroles = [\"application\"]\n";
    let mut node = Node::start(SHARDS, config);
    let mut random = Random::new(seed);
    let mut gateways: Vec<Gateway> =
        (0..4).map(|number| Gateway::open(&mut node, number % SHARDS)).collect();
    node.turns(4);
    for _ in 0..80 {
        let number = random.below(gateways.len());
        match random.below(16) {
            0..5 => gateways[number].say(&mut node, "attach", random.below(DEVICES)),
            5..8 => gateways[number].say(&mut node, "detach", random.below(DEVICES)),
            8 if random.one_in(4) => {
                node.network.borrow_mut().drop_link(gateways[number].link);
                gateways[number] = Gateway::open(&mut node, random.below(SHARDS));
            }
            _ => drop(node.0.turn(random.below(SHARDS))),
        }
    }
    for _ in 0..40 {
        node.turn();
        gateways.iter_mut().for_each(|it| it.told += &node.receive(it.link));
    }
    for gateway in &gateways {
        let mut answered = ids_of(&gateway.told);
        answered.sort_unstable();
        assert_eq!(answered, Vec::from_iter(1..=gateway.asked), "with seed {seed}");
    }
    let listed = devices_listed(&mut node);
    let mut had: Vec<String> = gateways.iter().flat_map(Gateway::devices).collect();
    had.sort();
    let listed: Vec<String> = listed.into_iter().collect();
    assert_eq!(had, listed, "what sessions have, and what is listed, with seed {seed}");
    assert_eq!(node.counters().devices as usize, listed.len(), "with seed {seed}");
}

#[test]
fn takeovers_in_any_order_leave_each_device_where_its_home_says() {
    (0..400).for_each(check_takeovers);
}

#[test]
fn a_continue_that_the_socket_takes_in_parts_arrives_whole() {
    const BODY: &str = r#"{"topic":"t","data":1}"#;
    let mut node = Node::start(1, "");
    let link = node.connect();
    node.network.borrow_mut().set_room(link, 10);
    let head = format!(
        "POST /v1/commands HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nExpect: 100-continue\r\n\
         Content-Length: {}\r\n\r\n",
        BODY.len()
    );
    node.send(link, head.as_bytes());
    let mut told = String::new();
    for _ in 0..10 {
        node.turn();
        told += &node.receive(link);
    }
    assert_eq!(told, "HTTP/1.1 100 Continue\r\n\r\n");
    node.send(link, BODY.as_bytes());
    for _ in 0..100 {
        node.turn();
        told += &node.receive(link);
    }
    assert_eq!(told.matches("HTTP/1.1 ").count(), 2, "{told}");
}

#[test]
fn a_message_that_trickles_in_is_cut_and_one_that_makes_it_in_time_is_not() {
    let mut node = Node::start(1, "[limits]\nmessage_ms = 20000");
    let link = node.connect();
    node.send(link, HANDSHAKE);
    node.turn();
    let ping = frame(r#"{"type":"ping"}"#);
    for (at, seconds) in [(0, 15), (1, 60)] {
        let (first, rest) = ping.split_at(5);
        node.send(link, first);
        node.pass(Duration::from_secs(seconds));
        // A byte now and then is a sign of life, not a message.
        node.send(link, &rest[..1]);
        node.pass(Duration::from_secs(1));
        node.send(link, &rest[1..]);
        node.pass(Duration::from_secs(1));
        let told = node.receive(link);
        assert_eq!(told.contains("pong"), at == 0, "{told}");
        assert_eq!(told.contains("4211"), at == 1, "{told}");
    }
    assert!(!node.is_held(link));
}

#[test]
fn an_answer_that_is_taken_too_slowly_ends() {
    let mut node = Node::start(1, "[limits]\nanswer_ms = 20000");
    let body = "x".repeat(10_000);
    let request = format!(
        "POST /v1/request?topic=$server/ping HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let (quick, slow) = (node.connect(), node.connect());
    node.send(quick, request.as_bytes());
    node.send(slow, request.as_bytes());
    let mut taken = 0;
    for _ in 0..30 {
        node.pass(Duration::from_secs(1));
        taken += node.receive(quick).len();
        let _ = node.network.borrow_mut().receive(slow, 100);
    }
    assert!(taken > body.len() && node.is_held(quick), "{taken} bytes of the answer");
    assert!(!node.is_held(slow), "it has had {} s", node.clocks.elapsed.as_secs());
}
