//! A session as its client has it, whatever carries it: a WebSocket, a response that goes on, or polls.

use std::cell::RefCell;
use std::collections::VecDeque;

use model::{Command, CommandId, Event, Headers, Hello, Limits, Sequence, TopicName};
use protocol::native::{SequenceRef, ServerRecord, TopicRef, json};
use protocol::websocket::{
    Inbound, Message, Opcode, Role, Subprotocol, Unread, check_handshake_response,
    encode_handshake_request, encode_masked,
};

use crate::http::{HttpInbound, Part};
use crate::network::Network;
use crate::peer::frame_as;

const KEY: [u8; 16] = [7; 16];
/// Whoever presents it may do everything.
pub(crate) const TOKEN: &str = "a-token-of-the-simulation";

/// An event for a client.
#[derive(Debug)]
pub(crate) enum Input {
    /// An event.
    Event(Event),
    /// A publication, told whole.
    Publication {
        topic: TopicName,
        sequence: Sequence,
        payload: Vec<u8>,
        headers: Headers<'static>,
        has_time: bool,
    },
}

/// How records and commands travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carriage {
    WebSocket,
    Stream,
    Poll,
}

/// A session and its connections.
#[derive(Debug)]
pub(crate) struct SimSession {
    carriage: Carriage,
    /// On which records come.
    link: u32,
    /// On which commands go, where they go on another one.
    upstream: Option<u32>,
    /// The shard that is connected to for them.
    upstream_shard: usize,
    is_upgraded: bool,
    head: Vec<u8>,
    inbound: Inbound,
    down: HttpInbound,
    up: HttpInbound,
    lines: Vec<u8>,
    key: Option<String>,
    /// Commands that wait for the one request that is under way.
    unsent: VecDeque<Vec<u8>>,
    posted: Vec<Vec<u8>>,
    batch: u64,
    is_polling: bool,
    /// Nothing comes any more.
    pub is_over: bool,
}

fn post(target: &str, body: &[u8]) -> Vec<u8> {
    let head =
        format!("POST {target} HTTP/1.1\r\nHost: sim\r\nContent-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

impl SimSession {
    /// Opens a session on one shard; commands of its own requests go to another one.
    pub fn open(
        network: &RefCell<Network>,
        carriage: Carriage,
        shard: usize,
        upstream_shard: usize,
    ) -> Self {
        let link = network.borrow_mut().connect(shard);
        let mut bytes = Vec::new();
        match carriage {
            Carriage::WebSocket => {
                encode_handshake_request("/v1/ws", "sim", KEY, Subprotocol::Json, None, &mut bytes);
                let hello = Hello { token: Some(TOKEN.into()), ..Hello::default() };
                bytes.extend(frame_as(CommandId(0), &Command::Hello(hello)));
            }
            Carriage::Stream => bytes = post(&format!("/v1/stream?token={TOKEN}"), b""),
            Carriage::Poll => bytes = post(&format!("/v1/poll?token={TOKEN}"), b""),
        }
        network.borrow_mut().send(link, &bytes);
        Self {
            carriage,
            link,
            upstream: None,
            upstream_shard,
            is_upgraded: false,
            head: Vec::new(),
            inbound: Inbound::default(),
            down: HttpInbound::default(),
            up: HttpInbound::default(),
            lines: Vec::new(),
            key: None,
            unsent: VecDeque::new(),
            posted: Vec::new(),
            batch: 0,
            is_polling: true,
            is_over: false,
        }
    }

    /// Says several things in one go.
    pub fn say(&mut self, network: &RefCell<Network>, commands: &[(CommandId, Command)]) {
        if self.carriage == Carriage::WebSocket {
            let frames = commands.iter().flat_map(|(id, command)| frame_as(*id, command));
            let frames: Vec<u8> = frames.collect();
            network.borrow_mut().send(self.link, &frames);
            return;
        }
        for (id, command) in commands {
            let mut line = Vec::new();
            json::append_command(Some(*id), command, &mut line);
            self.unsent.push_back(line);
        }
        self.post_commands(network);
    }

    fn post_commands(&mut self, network: &RefCell<Network>) {
        let Some(key) = self.key.as_ref().filter(|_| self.posted.is_empty()) else { return };
        if self.unsent.is_empty() {
            return;
        }
        self.posted = std::mem::take(&mut self.unsent).into();
        let bytes = post(&format!("/v1/commands?session={key}"), &self.posted.join(&b'\n'));
        let is_open = |link: &u32| network.borrow().is_open(*link);
        let known = self.upstream.filter(is_open);
        let link = match known {
            Some(link) => link,
            None => {
                self.up = HttpInbound::default();
                network.borrow_mut().connect(self.upstream_shard)
            }
        };
        self.upstream = Some(link);
        network.borrow_mut().send(link, &bytes);
    }

    /// Whether the answer to a poll is on its way.
    pub fn is_poll_answered(&self, network: &RefCell<Network>) -> bool {
        let is_poll = self.carriage == Carriage::Poll && self.is_polling && self.key.is_some();
        is_poll && !self.is_over && network.borrow().has_bytes_for(self.link)
    }

    /// Loses the answer to a poll on its way, and asks for it again. Answers whether there was one.
    pub fn lose_poll(&mut self, network: &RefCell<Network>) -> bool {
        let is_poll = self.carriage == Carriage::Poll && self.is_polling && self.key.is_some();
        if !is_poll || self.is_over {
            return false;
        }
        network.borrow_mut().drop_link(self.link);
        (self.down, self.lines) = (HttpInbound::default(), Vec::new());
        self.link = network.borrow_mut().connect(self.upstream_shard);
        self.poll(network);
        true
    }

    fn poll(&mut self, network: &RefCell<Network>) {
        let Some(key) = &self.key else { return };
        let bytes = post(&format!("/v1/poll?session={key}&batch={}", self.batch), b"");
        network.borrow_mut().send(self.link, &bytes);
        self.is_polling = true;
    }

    /// Goes away without a word.
    pub fn drop_links(&mut self, network: &RefCell<Network>) {
        let mut network = network.borrow_mut();
        network.drop_link(self.link);
        self.upstream.iter().for_each(|link| network.drop_link(*link));
        self.is_over = true;
    }

    /// Reads a part of what came.
    pub fn read(&mut self, network: &RefCell<Network>, bytes_max: usize) -> Vec<Input> {
        let mut heard = Vec::new();
        if self.is_over {
            return heard;
        }
        let bytes = network.borrow_mut().receive(self.link, bytes_max);
        match self.carriage {
            Carriage::WebSocket => self.take_frames(network, bytes, &mut heard),
            Carriage::Stream | Carriage::Poll => {
                self.take_answers(network);
                self.take_lines(network, &bytes, &mut heard);
                self.post_commands(network);
            }
        }
        let network = network.borrow();
        if !network.has_bytes_for(self.link) && !network.is_open(self.link) {
            self.is_over = true;
        }
        heard
    }

    fn take_frames(
        &mut self,
        network: &RefCell<Network>,
        mut bytes: Vec<u8>,
        heard: &mut Vec<Input>,
    ) {
        if !self.is_upgraded {
            self.head.append(&mut bytes);
            if self.head.starts_with(b"HTTP/1.1 5") {
                self.is_over = true;
                return;
            }
            let answer = check_handshake_response(&self.head, KEY).expect("it shakes hands");
            let Some(len) = answer else { return };
            self.is_upgraded = true;
            bytes = self.head.split_off(len);
        }
        let limits = Limits::default();
        let mut input = Unread::new(&mut bytes);
        let inbound = &mut self.inbound;
        while let Some(message) =
            inbound.poll_message(&mut input, Role::Client, &limits).expect("valid frames")
        {
            match message {
                Message::Text(text) => take_text(text, heard),
                Message::Ping(payload) => {
                    let mut pong = Vec::new();
                    encode_masked(Opcode::Pong, payload, [1, 2, 3, 4], &mut pong);
                    network.borrow_mut().send(self.link, &pong);
                }
                _ => {}
            }
        }
    }

    /// Hears what became of the commands that were posted.
    fn take_answers(&mut self, network: &RefCell<Network>) {
        let Some(link) = self.upstream else { return };
        let bytes = network.borrow_mut().receive(link, usize::MAX);
        for part in self.up.take(&bytes) {
            match part {
                Part::Head(202) => self.posted.clear(),
                // Not now: none of them was taken.
                Part::Head(429 | 503) => {
                    let refused = std::mem::take(&mut self.posted);
                    refused.into_iter().rev().for_each(|line| self.unsent.push_front(line));
                }
                Part::Head(_) => self.is_over = true,
                Part::Body(_) | Part::End => {}
            }
        }
        if !self.posted.is_empty() && !network.borrow().is_open(link) {
            self.is_over = true;
        }
    }

    fn take_lines(&mut self, network: &RefCell<Network>, bytes: &[u8], heard: &mut Vec<Input>) {
        for part in self.down.take(bytes) {
            match part {
                Part::Head(200) => {}
                Part::Head(_) => self.is_over = true,
                Part::Body(body) => self.lines.extend(body),
                Part::End if self.carriage == Carriage::Poll => self.is_polling = false,
                Part::End => self.is_over = true,
            }
        }
        // A poll that was cut is asked for again as a whole: its lines count once all are here.
        if self.is_over || (self.carriage == Carriage::Poll && self.is_polling) {
            return;
        }
        let whole = self.lines.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let lines: Vec<u8> = self.lines.drain(..whole).collect();
        let text = String::from_utf8(lines).expect("text");
        for line in text.lines().filter(|line| !line.is_empty()) {
            match line.strip_prefix("{\"type\":\"polled\",\"batch\":") {
                Some(rest) => {
                    self.batch = rest.trim_end_matches('}').parse().expect("a number");
                }
                None => take_text(line, heard),
            }
        }
        let welcome = heard.iter().find_map(|it| match it {
            Input::Event(Event::Welcome { key, .. }) => key.clone(),
            _ => None,
        });
        self.key = self.key.take().or(welcome);
        if self.carriage == Carriage::Poll && !self.is_polling {
            self.poll(network);
        }
    }
}

fn take_text(text: &str, heard: &mut Vec<Input>) {
    let limits = Limits::default();
    let records = json::decode_server_message(text, &limits).expect("valid records");
    heard.extend(records.into_iter().map(|record| match record {
        ServerRecord::Event(event) => Input::Event(event),
        ServerRecord::Publication { topic, sequence, payload, extras, .. } => {
            let TopicRef::Name(name) = topic else { panic!("JSON names its topics") };
            let SequenceRef::Full(sequence) = sequence else { panic!("JSON says it whole") };
            let topic = TopicName::parse(&name, &limits).expect("a name");
            let (payload, has_time) = (payload.into_owned(), extras.time_ms.is_some());
            let headers = extras.headers.unwrap_or_default().into_owned();
            Input::Publication { topic, sequence, payload, headers, has_time }
        }
        other => panic!("it asked for nothing such: {other:?}"),
    }));
}
