//! A node of several hubs in one thread, with connections that take as little as the test says.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use model::{
    DeltaKind, Epoch, Event, Limits, Moment, Payload, PayloadKind, PolicyRule, Position,
    Publication, Rates, Selector, Sequence, Start, Subscribe, SubscribeOptions, TopicName,
    TopicPolicy, Unsubscribe,
};
use tidegate_hub::{
    Encoder, EncodingIndex, Form, Hub, HubMail, HubOptions, Outlet, Payloads, Record, Sent,
    SessionIndex, ShardIndex, home_shard,
};

pub const SINGLE: EncodingIndex = EncodingIndex(0);
pub const BATCHED: EncodingIndex = EncodingIndex(1);
pub const FRAGMENTED: EncodingIndex = EncodingIndex(2);

/// Messages of four bytes of length and lines of text; encoding 1 puts several lines in one.
pub struct LineEncoder;

impl Payloads for LineEncoder {
    type Filter = String;

    fn filter(&self, text: &str) -> String {
        text.to_owned()
    }

    /// Accepts texts that end with the filter's text.
    fn accepts(&self, filter: &String, _topic: &TopicName, publication: &Publication) -> bool {
        publication.payload().ends_with(filter.as_bytes())
    }

    /// A publication is about its first two letters.
    fn entity(&self, _pointer: &str, publication: &Publication) -> Option<Box<str>> {
        let letters = publication.payload().get(..2)?;
        Some(String::from_utf8_lossy(letters).into_owned().into_boxed_str())
    }

    /// What is after the first two letters.
    fn delta(
        &self,
        _kind: DeltaKind,
        base: &Publication,
        next: &Publication,
    ) -> Option<(Box<[u8]>, u32)> {
        let is_similar = base.payload().get(..2)? == next.payload().get(..2)?;
        is_similar.then(|| (next.payload()[2..].into(), 0))
    }
}

impl Encoder for LineEncoder {
    type Message = usize;

    fn batches(&self, encoding: EncodingIndex) -> bool {
        encoding.0 & 1 == 1
    }

    fn fragments(&self, encoding: EncodingIndex) -> bool {
        encoding.0 & 2 == 2
    }

    fn begin(&self, _encoding: EncodingIndex, out: &mut Vec<u8>) -> usize {
        out.extend_from_slice(&[0; 4]);
        out.len()
    }

    fn append(&self, _message: &mut usize, record: Record<'_>, out: &mut Vec<u8>) {
        self.record(SINGLE, record, out);
    }

    fn append_made(&self, _message: &mut usize, made: &[u8], _compress: bool, out: &mut Vec<u8>) {
        out.extend_from_slice(made);
    }

    fn record(&self, _encoding: EncodingIndex, record: Record<'_>, out: &mut Vec<u8>) {
        let line = match record {
            Record::Publication { topic, publication, form, .. } => {
                let form = if form == Form::Short { "short" } else { "full" };
                let text = String::from_utf8_lossy(publication.payload()).into_owned();
                format!("publication {topic} {} {form} {text}\n", publication.sequence())
            }
            Record::Delta { topic, publication, delta, .. } => {
                let (base, text) = (delta.base, String::from_utf8_lossy(&delta.bytes));
                format!("delta {topic} {} {base} {text}\n", publication.sequence())
            }
            Record::Fragment { topic, publication, piece, .. } => {
                let payload = publication.payload();
                let text = String::from_utf8_lossy(&payload[piece.start..piece.end]).into_owned();
                let (sequence, total) = (publication.sequence(), payload.len());
                format!("fragment {topic} {sequence} {} {total} {text}\n", piece.start)
            }
            Record::Topic(topic) => format!("start {} {}\n", topic.topic, topic.start),
            Record::Event(Event::Subscribed(subscribed)) => {
                let starts = subscribed.topics.iter();
                let starts = starts.map(|topic| format!("start {} {}\n", topic.topic, topic.start));
                format!("subscribed\n{}", starts.collect::<String>())
            }
            Record::Event(Event::Gap(gap)) => format!("gap {} {}\n", gap.topic, gap.to),
            Record::Event(Event::Unsubscribed { selectors, has_lagged: true, .. }) => {
                let names: Vec<&str> = selectors.iter().map(Selector::as_str).collect();
                format!("taken {}\n", names.join(","))
            }
            Record::Event(Event::Unsubscribed { .. }) => "unsubscribed\n".to_owned(),
            Record::Event(Event::Lag { ms }) => format!("lag {ms}\n"),
            Record::Event(other) => format!("other {other:?}\n"),
        };
        out.extend_from_slice(line.as_bytes());
    }

    fn finish(&self, message: usize, out: &mut Vec<u8>) {
        let length = (out.len() - message) as u32;
        out[message - 4..message].copy_from_slice(&length.to_be_bytes());
    }
}

/// What one client received, and how much more its connection takes.
#[derive(Default)]
pub struct Connection {
    pub room: usize,
    pub bytes: Vec<u8>,
    pub is_full: bool,
    pub sends: usize,
}

/// All connections of a shard, by link.
#[derive(Default)]
pub struct Wire {
    pub connections: HashMap<u32, Connection>,
}

impl Outlet for Wire {
    fn send(&mut self, link: u32, bytes: &[u8]) -> Sent {
        let connection = self.connections.get_mut(&link).expect("the link is open");
        assert!(!connection.is_full, "nothing is sent to a full connection");
        let taken = bytes.len().min(connection.room);
        connection.room -= taken;
        connection.bytes.extend_from_slice(&bytes[..taken]);
        connection.is_full = taken < bytes.len();
        connection.sends += 1;
        Sent::Taken(taken)
    }
}

/// A reader of the node.
pub struct Reader {
    pub shard: usize,
    pub link: u32,
    pub session: SessionIndex,
    pub selectors: Vec<Selector>,
}

/// Several hubs and the mail between them.
pub struct Node {
    pub hubs: Vec<Hub<LineEncoder>>,
    pub wires: Vec<Wire>,
    pub heads: BTreeMap<TopicName, Sequence>,
    pub readers: Vec<Option<Reader>>,
    /// The time, which stands still unless it is moved.
    pub now: Moment,
    /// What was published: topic, sequence, text.
    pub published: Vec<(TopicName, Sequence, String)>,
    mailboxes: Vec<VecDeque<(ShardIndex, HubMail)>>,
    waiting: Vec<Vec<VecDeque<HubMail>>>,
    mailbox_len_max: usize,
    epoch: Epoch,
    limits: Limits,
    links: u32,
}

pub fn moment() -> Moment {
    Moment { elapsed: Duration::from_secs(1), unix_ms: 1_000 }
}

impl Node {
    pub fn new(shards: usize, limits: Limits, policies: Vec<PolicyRule>, mail: usize) -> Self {
        let hub = |shard: usize| {
            let options = HubOptions {
                shard: ShardIndex(shard as u16),
                shard_count: shards as u16,
                audiences: true,
                limits: limits.clone(),
                policies: policies.clone(),
                default_policy: TopicPolicy::default(),
            };
            Hub::new(options, LineEncoder)
        };
        Self {
            hubs: (0..shards).map(hub).collect(),
            wires: (0..shards).map(|_| Wire::default()).collect(),
            heads: BTreeMap::new(),
            readers: Vec::new(),
            now: moment(),
            published: Vec::new(),
            mailboxes: (0..shards).map(|_| VecDeque::new()).collect(),
            waiting: vec![vec![VecDeque::new(); shards]; shards],
            mailbox_len_max: mail,
            epoch: Epoch::new("e"),
            limits,
            links: 0,
        }
    }

    pub fn topic(&self, name: &str) -> TopicName {
        TopicName::parse(name, &self.limits).expect("a valid name")
    }

    pub fn selector(&self, text: &str) -> Selector {
        Selector::parse(text, &self.limits).expect("a valid selector")
    }

    pub fn open(&mut self, shard: usize, encoding: EncodingIndex, room: usize) -> usize {
        self.links += 1;
        let session = self.hubs[shard].open_session(self.links, encoding);
        let connection = Connection { room, ..Connection::default() };
        self.wires[shard].connections.insert(self.links, connection);
        let reader = Reader { shard, link: self.links, session, selectors: Vec::new() };
        self.readers.push(Some(reader));
        self.readers.len() - 1
    }

    pub fn close(&mut self, reader: usize) {
        if let Some(gone) = self.readers[reader].take() {
            self.hubs[gone.shard].close_session(gone.session);
        }
    }

    pub fn pass(&mut self, time: Duration) {
        self.now.elapsed += time;
        self.now.unix_ms += time.as_millis() as u64;
    }

    pub fn throttle(&mut self, reader: usize, rates: Rates) {
        let Some(known) = &self.readers[reader] else { return };
        self.hubs[known.shard].set_rates(known.session, rates, self.now);
    }

    pub fn subscribe(&mut self, reader: usize, selectors: &[&str], start: Start) {
        self.subscribe_with(reader, selectors, start, SubscribeOptions::default());
    }

    pub fn subscribe_with(
        &mut self,
        reader: usize,
        selectors: &[&str],
        start: Start,
        options: SubscribeOptions,
    ) {
        let selectors: Vec<Selector> = selectors.iter().map(|text| self.selector(text)).collect();
        let Some(known) = &mut self.readers[reader] else { return };
        for selector in &selectors {
            if !known.selectors.contains(selector) {
                known.selectors.push(selector.clone());
            }
        }
        let wanted = Subscribe { selectors, start, positions: Vec::new(), name: None, options };
        self.hubs[known.shard].subscribe(known.session, None, wanted).expect("within limits");
    }

    pub fn unsubscribe(&mut self, reader: usize, selector: &str) {
        let selector = self.selector(selector);
        let Some(known) = &mut self.readers[reader] else { return };
        if !known.selectors.contains(&selector) {
            return;
        }
        known.selectors.retain(|kept| *kept != selector);
        let unwanted = Unsubscribe { selectors: vec![selector] };
        // It may have been taken away meanwhile.
        let _ = self.hubs[known.shard].unsubscribe(known.session, None, unwanted);
    }

    pub fn publish(&mut self, name: &str, text: &str) {
        let topic = self.topic(name);
        let head = self.heads.entry(topic.clone()).or_insert(Sequence::START);
        *head = head.next();
        let position = Position { epoch: self.epoch.clone(), sequence: *head };
        let payload = Payload::new(PayloadKind::Text, text.as_bytes());
        let publication = Publication::new(payload, *head, self.now);
        self.published.push((topic.clone(), *head, text.to_owned()));
        let home = home_shard(&topic, self.hubs.len() as u16);
        let hub = &mut self.hubs[usize::from(home.0)];
        hub.handle_kept(&topic, &position, publication, self.now);
    }

    /// One turn of a shard: mail, answers of the backbone, mail out, flush.
    pub fn turn(&mut self, shard: usize, budget: usize) -> bool {
        while let Some((from, mail)) = self.mailboxes[shard].pop_front() {
            self.hubs[shard].handle_mail(from, mail, self.now);
        }
        while let Some(topic) = self.hubs[shard].poll_ask() {
            let sequence = self.heads.get(&topic).copied().unwrap_or(Sequence::START);
            let position = Position { epoch: self.epoch.clone(), sequence };
            self.hubs[shard].handle_head(&topic, &position);
        }
        self.send_mail(shard);
        self.hubs[shard].flush(&mut self.wires[shard], budget, self.now)
    }

    fn send_mail(&mut self, shard: usize) {
        let own = ShardIndex(shard as u16);
        for to in 0..self.hubs.len() {
            while self.mailboxes[to].len() < self.mailbox_len_max
                && let Some(mail) = self.waiting[shard][to].pop_front()
            {
                self.mailboxes[to].push_back((own, mail));
            }
            let has_room = self.waiting[shard][to].is_empty()
                && self.mailboxes[to].len() < self.mailbox_len_max;
            if has_room && self.hubs[shard].has_lapped_followers() {
                self.hubs[shard].handle_room(ShardIndex(to as u16));
            }
        }
        while let Some((to, mail)) = self.hubs[shard].poll_mail() {
            let index = usize::from(to.0);
            let is_full = !self.waiting[shard][index].is_empty()
                || self.mailboxes[index].len() >= self.mailbox_len_max;
            match (is_full, &mail) {
                (false, _) => self.mailboxes[index].push_back((own, mail)),
                (true, HubMail::Deliver { .. }) => self.hubs[shard].handle_mail_refused(to, &mail),
                (true, _) => self.waiting[shard][index].push_back(mail),
            }
        }
    }

    pub fn give_room(&mut self, reader: usize, bytes: usize) {
        let Some(known) = &self.readers[reader] else { return };
        let connections = &mut self.wires[known.shard].connections;
        let connection = connections.get_mut(&known.link).expect("the link is open");
        connection.room += bytes;
        connection.is_full = false;
        self.hubs[known.shard].handle_writable(known.session);
    }

    /// Gives everybody room and lets all shards work until nothing is left to do.
    pub fn settle(&mut self) {
        for reader in 0..self.readers.len() {
            self.give_room(reader, usize::MAX / 4);
        }
        for _ in 0..100_000 {
            let mut is_busy = false;
            for shard in 0..self.hubs.len() {
                is_busy |= self.turn(shard, 100);
            }
            let has_mail = self.mailboxes.iter().any(|mailbox| !mailbox.is_empty())
                || self.waiting.iter().flatten().any(|waiting| !waiting.is_empty())
                || self.hubs.iter().any(Hub::has_lapped_followers);
            if is_busy || has_mail {
                continue;
            }
            let due = self.hubs.iter().filter_map(Hub::due_at).min();
            let Some(due) = due else { return };
            self.pass(due.saturating_sub(self.now.elapsed));
        }
        panic!("the node does not come to rest");
    }

    /// The whole lines that a reader received.
    pub fn lines(&self, reader: usize) -> Vec<String> {
        let Some(known) = &self.readers[reader] else { return Vec::new() };
        let mut bytes = &self.wires[known.shard].connections[&known.link].bytes[..];
        let mut lines = Vec::new();
        while bytes.len() >= 4 {
            let length = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize;
            let Some(message) = bytes.get(4..4 + length) else { break };
            let text = std::str::from_utf8(message).expect("messages are not torn");
            lines.extend(text.lines().map(str::to_owned));
            bytes = &bytes[4 + length..];
        }
        lines
    }

    pub fn sends(&self, reader: usize) -> usize {
        let known = self.readers[reader].as_ref().expect("open");
        self.wires[known.shard].connections[&known.link].sends
    }
}
