//! A client that checks everything it hears, and resumes from its positions when it comes back.

use std::collections::HashMap;

use model::{
    Command, CommandId, Limits, Position, Selector, Sequence, Start, Subscribe, SubscribeOptions,
    TopicName,
};
use protocol::native::{ServerRecord, TopicRef, json};
use protocol::websocket::{
    Inbound, Message, Opcode, Role, Subprotocol, Unread, check_handshake_response,
    encode_handshake_request, encode_masked,
};

const KEY: [u8; 16] = [7; 16];

/// A client of the JSON dialect.
#[derive(Debug, Default)]
pub struct SimPeer {
    /// Its connection's number, while it has one.
    pub link: Option<u32>,
    /// What it reads.
    pub selectors: Vec<Selector>,
    head: Vec<u8>,
    is_upgraded: bool,
    inbound: Inbound,
    positions: HashMap<TopicName, Position>,
    /// Publications taken over all connections.
    pub taken: u64,
    /// Gaps that the server announced.
    pub gaps: u64,
}

impl SimPeer {
    /// Starts over on a new connection: the bytes to send first.
    pub fn handle_connect(&mut self, link: u32) -> Vec<u8> {
        self.link = Some(link);
        (self.head, self.is_upgraded, self.inbound) = (Vec::new(), false, Inbound::default());
        let mut bytes = Vec::new();
        encode_handshake_request("/v1/ws", "sim", KEY, Subprotocol::Json, None, &mut bytes);
        if !self.selectors.is_empty() {
            let positions = self.positions.iter().map(|(t, p)| (t.clone(), p.clone())).collect();
            bytes.extend(self.subscribe_bytes(self.selectors.clone(), positions));
        }
        bytes
    }

    /// Adds a selector: the bytes to send.
    pub fn subscribe(&mut self, selector: Selector) -> Vec<u8> {
        self.selectors.push(selector.clone());
        self.subscribe_bytes(vec![selector], Vec::new())
    }

    fn subscribe_bytes(
        &self,
        selectors: Vec<Selector>,
        positions: Vec<(TopicName, Position)>,
    ) -> Vec<u8> {
        let options = SubscribeOptions::default();
        let wanted = Subscribe { selectors, start: Start::Snapshot, positions, options };
        frame(&Command::Subscribe(wanted))
    }

    /// Takes bytes from the server.
    ///
    /// # Panics
    /// With the rule that the server broke.
    pub fn handle_bytes(&mut self, bytes: &[u8]) {
        let mut bytes = bytes.to_vec();
        if !self.is_upgraded {
            self.head.append(&mut bytes);
            let answer = check_handshake_response(&self.head, KEY).expect("it shakes hands");
            let Some(len) = answer else { return };
            self.is_upgraded = true;
            bytes = self.head.split_off(len);
        }
        let limits = Limits::default();
        let mut inbound = std::mem::take(&mut self.inbound);
        let mut input = Unread::new(&mut bytes);
        while let Some(message) =
            inbound.poll_message(&mut input, Role::Client, &limits).expect("valid frames")
        {
            if let Message::Text(text) = message {
                let records = json::decode_server_message(text, &limits).expect("valid records");
                records.into_iter().for_each(|record| self.handle_record(record));
            }
        }
        self.inbound = inbound;
    }

    fn handle_record(&mut self, record: ServerRecord<'_>) {
        match record {
            ServerRecord::Publication { topic: TopicRef::Name(name), sequence, .. } => {
                let position = self
                    .positions
                    .iter_mut()
                    .find(|(known, _)| known.as_str() == name)
                    .unwrap_or_else(|| panic!("a publication of unannounced {name}"))
                    .1;
                let next = position.sequence.next();
                assert_eq!(sequence.resolve(position.sequence), Some(next), "a hole in {name}");
                position.sequence = next;
                self.taken += 1;
            }
            ServerRecord::Event(model::Event::Subscribed(subscribed)) => {
                subscribed.topics.into_iter().for_each(|topic| self.start(topic));
            }
            ServerRecord::Event(model::Event::Topic(topic)) => self.start(topic),
            ServerRecord::Event(model::Event::Gap(gap)) => {
                let position = Position { epoch: gap.epoch, sequence: gap.to };
                self.positions.insert(gap.topic, position);
                self.gaps += 1;
            }
            ServerRecord::Event(model::Event::Refused { refusal, .. }) => panic!("{refusal}"),
            _ => {}
        }
    }

    fn start(&mut self, topic: model::SubscribedTopic) {
        let position = Position { epoch: topic.epoch, sequence: topic.start };
        self.positions.insert(topic.topic, position);
    }

    /// The last sequence taken of a topic.
    pub fn last_of(&self, topic: &TopicName) -> Option<Sequence> {
        self.positions.get(topic).map(|position| position.sequence)
    }
}

/// One command as a masked frame.
pub(crate) fn frame(command: &Command) -> Vec<u8> {
    let (mut text, mut bytes) = (Vec::new(), Vec::new());
    json::append_command(Some(CommandId(1)), command, &mut text);
    encode_masked(Opcode::Text, &text, [1, 2, 3, 4], &mut bytes);
    bytes
}
