//! A client: the SDK's own state machines on a simulated link, and beside them a checker that knows
//! nothing of them.

use std::collections::BTreeMap;
use std::time::Duration;

use client::{Notification, Subscriptions};
use model::{
    Command, CommandId, DeltaKind, Event, Gap, Hello, Limits, Position, Selector, Sequence, Start,
    Subscribe, SubscribeOptions, SubscribedTopic, TopicName,
};
use protocol::native::{SequenceRef, ServerRecord, TopicRef, json};
use protocol::websocket::{
    Inbound, Message, Opcode, Role, Subprotocol, Unread, check_handshake_response,
    encode_handshake_request, encode_masked,
};

use crate::random::Random;

const KEY: [u8; 16] = [7; 16];

/// Faults that a client may be given, to see that the checker finds them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bug {
    /// It works.
    #[default]
    None,
    /// When it comes back it does not say where it was.
    ForgetsWhereItWas,
    /// When it comes back it says that it has one publication more than it took.
    ClaimsOneTooMany,
}

/// A client of the JSON dialect.
#[derive(Debug, Default)]
pub struct SimPeer {
    /// Its connection's number, while it has one.
    pub link: Option<u32>,
    /// The subscriptions of the peer.
    pub selectors: Vec<Selector>,
    /// Its fault.
    pub bug: Bug,
    /// How it subscribes. Nothing in it lets the server skip anything.
    pub options: SubscribeOptions,
    /// Whether it takes large payloads in pieces.
    pub has_fragments: bool,
    head: Vec<u8>,
    is_upgraded: bool,
    inbound: Inbound,
    subscriptions: Subscriptions,
    next_id: u64,
    /// The checker: what was taken of each topic.
    checked: BTreeMap<TopicName, Position>,
    /// The checker: what has come of each topic on this connection, the first piece of it at least.
    placed: BTreeMap<TopicName, Position>,
    /// How much came, over all connections.
    pub counted: Counted,
    /// Bytes to send: answers to pings.
    pub unsent: Vec<u8>,
    /// Gaps that the server announced, until somebody looks at them.
    pub told_gaps: Vec<Gap>,
    /// Publications that were taken and not looked at yet.
    pub heard: Vec<(TopicName, Sequence, Vec<u8>)>,
    /// Its publications that were acknowledged, until somebody looks at them.
    pub published: Vec<(CommandId, TopicName, Position)>,
    /// Which of its publications were refused.
    pub refused: Vec<CommandId>,
    /// Publications that it took, one after another, where sequences have holes: others know what is between two of them.
    pub steps: Option<Vec<Step>>,
}

/// Numbers of what came to a client.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counted {
    /// Publications.
    pub taken: u64,
    /// Of these, those that came as deltas.
    pub deltas: u64,
    /// Those that came in pieces.
    pub in_pieces: u64,
    /// Gaps that the server announced.
    pub gaps: u64,
}

/// Ids of publications are below this one, those of other commands are not.
const FIRST_ID: u64 = 1 << 40;

impl SimPeer {
    /// A client with a fault.
    pub fn with(bug: Bug) -> Self {
        Self { bug, ..Self::default() }
    }

    /// How it reads, by chance.
    pub fn choose_manner(&mut self, random: &mut Random) {
        const INTERVAL_MS_MAX: usize = 50;
        self.has_fragments = random.one_in(2);
        if random.one_in(2) {
            self.options.delta = DeltaKind::Vcdiff;
        }
        if random.one_in(3) {
            let ms = 1 + random.below(INTERVAL_MS_MAX);
            self.options.interval = Duration::from_millis(ms as u64);
        }
        self.options.priority = random.below(5) as i8 - 2;
    }

    /// Starts over on a new connection: the bytes to send first.
    pub fn handle_connect(&mut self, link: u32) -> Vec<u8> {
        self.link = Some(link);
        (self.head, self.is_upgraded, self.inbound) = (Vec::new(), false, Inbound::default());
        self.unsent.clear();
        self.subscriptions.handle_disconnect();
        self.subscriptions.handle_connected(usize::MAX, false);
        self.placed = self.checked.clone();
        let mut bytes = Vec::new();
        encode_handshake_request("/v1/ws", "sim", KEY, Subprotocol::Json, None, &mut bytes);
        if self.has_fragments {
            let hello = Hello { fragments: true, ..Hello::default() };
            let id = self.take_id();
            bytes.extend(frame_as(id, &Command::Hello(hello)));
        }
        bytes.extend(self.say_what_is_wanted());
        bytes
    }

    /// The output of the subscriptions, with the fault of this peer in it.
    fn say_what_is_wanted(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        loop {
            let id = self.take_id();
            let Some(mut command) = self.subscriptions.poll_command(id) else { return bytes };
            if let Command::Subscribe(wanted) = &mut command {
                match self.bug {
                    Bug::None => {}
                    Bug::ForgetsWhereItWas => {
                        wanted.positions.clear();
                        wanted.start = Start::Snapshot;
                    }
                    Bug::ClaimsOneTooMany => {
                        let positions = wanted.positions.iter_mut();
                        positions.for_each(|(_, at)| at.sequence = at.sequence.next());
                    }
                }
            }
            bytes.extend(frame_as(id, &command));
        }
    }

    fn take_id(&mut self) -> CommandId {
        self.next_id += 1;
        CommandId(FIRST_ID + self.next_id)
    }

    /// Adds a selector: the bytes to send.
    pub fn subscribe(&mut self, selector: Selector) -> Vec<u8> {
        self.selectors.push(selector.clone());
        let wanted = Subscribe {
            subscription: None,
            selectors: vec![selector],
            start: Start::Snapshot,
            positions: Vec::new(),
            name: None,
            options: self.options.clone(),
        };
        self.subscriptions.add(wanted);
        self.say_what_is_wanted()
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
            match message {
                Message::Text(text) => {
                    let records = json::decode_server_message(text, &limits);
                    let records = records.expect("valid records");
                    records.into_iter().for_each(|record| self.handle_record(record));
                }
                Message::Ping(payload) => {
                    encode_masked(Opcode::Pong, payload, [1, 2, 3, 4], &mut self.unsent);
                }
                _ => {}
            }
        }
        self.inbound = inbound;
    }

    fn handle_record(&mut self, record: ServerRecord<'_>) {
        match &record {
            ServerRecord::Event(Event::Subscribed(subscribed)) => {
                subscribed.topics.iter().for_each(|topic| self.check_start(topic));
            }
            ServerRecord::Event(Event::Topic(topic)) => self.check_start(topic),
            ServerRecord::Event(Event::Gap(gap)) => {
                let position = Position { epoch: gap.epoch.clone(), sequence: gap.to };
                self.placed.insert(gap.topic.clone(), position);
                self.counted.gaps += 1;
                self.told_gaps.push(gap.clone());
            }
            ServerRecord::Event(Event::Published { id: Some(id), topic, position, .. }) => {
                self.published.push((*id, topic.clone(), position.clone()));
            }
            ServerRecord::Event(Event::Refused { id, refusal }) => match id {
                Some(id) if id.0 < FIRST_ID => self.refused.push(*id),
                _ => panic!("{refusal}"),
            },
            _ => {}
        }
        self.check_place(&record);
        self.subscriptions.handle_record(record);
        while let Some((_, told)) = self.subscriptions.poll_notice() {
            match told {
                Notification::Message(message) => {
                    let known = self.checked.get_mut(&message.topic).expect("it was announced");
                    let after = std::mem::replace(&mut known.sequence, message.sequence);
                    let step =
                        Step { topic: message.topic.clone(), after, sequence: message.sequence };
                    assert!(step.may_be(&self.steps), "{step:?}: a hole, or something twice");
                    self.steps.iter_mut().for_each(|steps| steps.push(step.clone()));
                    self.heard.push((message.topic, message.sequence, message.payload));
                    self.counted.taken += 1;
                }
                Notification::Gap(gap) => {
                    let position = Position { epoch: gap.epoch, sequence: gap.to };
                    self.checked.insert(gap.topic, position);
                }
                Notification::Ended(error) => panic!("{error}"),
                Notification::Resumed { .. }
                | Notification::Placed { .. }
                | Notification::Complete => {}
            }
        }
        let id = self.take_id();
        let asked = self.subscriptions.poll_command(id);
        assert!(asked.is_none(), "it asks anew for what did not apply: {asked:?}");
    }

    /// Checks that a publication, or its first piece, is the next one of its topic.
    fn check_place(&mut self, record: &ServerRecord<'_>) {
        let (topic, sequence, extras) = match record {
            ServerRecord::Publication { topic, sequence, extras, .. } => (topic, *sequence, extras),
            ServerRecord::Delta { topic, sequence, extras, .. } => {
                self.counted.deltas += 1;
                (topic, SequenceRef::Full(*sequence), extras)
            }
            ServerRecord::Fragment { topic, sequence, offset: 0, extras, .. } => {
                self.counted.in_pieces += 1;
                (topic, SequenceRef::Full(*sequence), extras)
            }
            _ => return,
        };
        let TopicRef::Name(name) = topic else { panic!("JSON names its topics") };
        let (topic, position) = self
            .placed
            .iter_mut()
            .find(|(known, _)| known.as_str() == name)
            .unwrap_or_else(|| panic!("a publication of unannounced {name}"));
        let (topic, resolved) = (topic.clone(), sequence.resolve(position.sequence));
        let sequence = resolved.expect("JSON has all of it");
        let after = std::mem::replace(&mut position.sequence, sequence);
        let step = Step { topic, after, sequence };
        assert!(step.may_be(&self.steps), "{step:?}: it came out of order");
        let previous = extras.previous.resolve(sequence, after);
        assert!(previous <= after, "{step:?}: {previous} was before it");
    }

    /// Checks that reading goes on where it ended, if it ever began. A start further back moves nothing: what
    /// follows is a gap, or nothing that came before.
    fn check_start(&mut self, topic: &SubscribedTopic) {
        let position = Position { epoch: topic.epoch.clone(), sequence: topic.start };
        for known in [&mut self.checked, &mut self.placed] {
            match known.get(&topic.topic).filter(|known| known.epoch == topic.epoch) {
                Some(_) => {}
                None => drop(known.insert(topic.topic.clone(), position.clone())),
            }
        }
        let (name, before) = (&topic.topic, self.placed[&topic.topic].sequence);
        assert!(topic.start <= before, "{name} goes on at {}, and ended at {before}", topic.start);
    }

    /// The last sequence taken of a topic.
    pub fn last_of(&self, topic: &TopicName) -> Option<Sequence> {
        self.checked.get(topic).map(|position| position.sequence)
    }
}

/// A publication that a client took, and what it had of the topic before.
#[derive(Clone, Debug)]
pub struct Step {
    /// The topic.
    pub topic: TopicName,
    /// Up to where it had everything.
    pub after: Sequence,
    /// The publication.
    pub sequence: Sequence,
}

impl Step {
    /// Whether it may be one: where sequences are dense it is the next, and where they have holes (steps are noted) a later one.
    fn may_be(&self, noted: &Option<Vec<Self>>) -> bool {
        let Self { after, sequence, .. } = *self;
        sequence > after && (noted.is_some() || sequence == after.next())
    }
}

/// One command as a masked frame.
pub(crate) fn frame(command: &Command) -> Vec<u8> {
    frame_as(CommandId(1), command)
}

/// The same with an id of its own.
pub(crate) fn frame_as(id: CommandId, command: &Command) -> Vec<u8> {
    let (mut text, mut bytes) = (Vec::new(), Vec::new());
    json::append_command(Some(id), command, &mut text);
    encode_masked(Opcode::Text, &text, [1, 2, 3, 4], &mut bytes);
    bytes
}
