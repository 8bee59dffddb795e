//! A broker's stream in memory, and a backbone over it, whose sequences have holes.
//!
//! Topics are shared out among a few partitions. All topics of a partition are in one order that everybody who publishes to
//! the broker makes together, and a publication's sequence is its place there. So a topic's sequences grow with holes, and
//! what shows that nothing is missing is the sequence before it in its topic, which the broker tells with each.
//!
//! It is for tests: the broker does one thing each time that it is told to go on, and loses what it is told to lose.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use model::{
    AckLevel, Code, Draft, Epoch, Moment, Position, Publication, Refusal, Sequence, TopicName,
};

use super::Subject;
use super::run::moment;
use crate::{
    Abilities, Backbone, BackboneEvent, LatestTime, ReadWanted, Ticket, check_expected, check_level,
};

/// Publications that a state brings along.
const NEWEST_MAX: usize = 2;
const PARTITIONS: u16 = 2;

/// Which of a broker's clients: another one after each restart.
type Client = u64;

/// A broker that several backbones share.
#[derive(Clone)]
pub struct Stream(Arc<Mutex<Broker>>);

struct Broker {
    partitions: Vec<Partition>,
    keys: BTreeMap<(TopicName, Box<str>), Position>,
    requests: VecDeque<Request>,
    answers: BTreeMap<Client, VecDeque<BackboneEvent>>,
    clients: Client,
    /// It carries nothing out, and says so.
    is_down: bool,
    /// Requests that were under way when a client or the broker died: every second one arrives all the same.
    torn: usize,
    times: LatestTime,
    history_max: usize,
}

struct Partition {
    epoch: Epoch,
    head: Sequence,
    records: Vec<Record>,
}

struct Record {
    topic: TopicName,
    publication: Publication,
    /// The backbone that published it, if it was one of them.
    origin: Option<(Client, Ticket)>,
}

struct Request {
    origin: Option<(Client, Ticket)>,
    draft: Draft,
    now: Moment,
}

impl Stream {
    /// An empty broker that keeps `history_max` publications of each topic.
    pub fn new(history_max: usize) -> Self {
        let partition = |number| Partition {
            epoch: Epoch::new(&format!("life-{number}")),
            head: Sequence::START,
            records: Vec::new(),
        };
        Self(Arc::new(Mutex::new(Broker {
            partitions: (0..PARTITIONS).map(partition).collect(),
            keys: BTreeMap::new(),
            requests: VecDeque::new(),
            answers: BTreeMap::new(),
            clients: 0,
            is_down: false,
            torn: 0,
            times: LatestTime::default(),
            history_max,
        })))
    }

    fn broker(&self) -> MutexGuard<'_, Broker> {
        self.0.lock().expect("a panic ends the test")
    }

    /// Carries out the oldest request; answers false if there was none.
    pub fn work(&self) -> bool {
        let mut broker = self.broker();
        let Some(request) = broker.requests.pop_front() else { return false };
        broker.carry_out(request);
        true
    }

    /// Somebody publishes who is no backbone.
    pub fn publish(&self, draft: Draft) {
        self.broker().carry_out(Request { origin: None, draft, now: moment(1_000) });
    }

    /// The broker is gone: of what is under way nobody can say whether it is carried out, and nothing new is.
    pub fn fail(&self) {
        let mut broker = self.broker();
        broker.is_down = true;
        for request in std::mem::take(&mut broker.requests) {
            if let Some((client, ticket)) = request.origin {
                let text = "cannot say whether the publication is kept: the broker is gone; publish it again with \
                            the same idempotency key";
                let refusal = Refusal::new(Code::NotKept, text);
                broker.answer(client, BackboneEvent::Unknown { ticket, refusal });
            }
            broker.tear(request);
        }
    }

    /// It is there again.
    pub fn mend(&self) {
        self.broker().is_down = false;
    }
}

impl Broker {
    fn carry_out(&mut self, request: Request) {
        let Request { origin, draft, now } = request;
        let key = draft.idempotency_key.clone().map(|key| (draft.topic.clone(), key));
        if let Some(position) = key.as_ref().and_then(|key| self.keys.get(key)).cloned() {
            if let Some((client, ticket)) = origin {
                let topic = draft.topic;
                self.answer(client, BackboneEvent::Repeated { ticket, topic, position });
            }
            return;
        }
        let head = self.head_of(&draft.topic, Sequence::MAX);
        if let Err(refusal) = check_expected(&draft, &head) {
            if let Some((client, ticket)) = origin {
                self.answer(client, BackboneEvent::NotKept { ticket, refusal });
            }
            return;
        }
        let Draft { topic, payload, .. } = draft;
        let now = self.times.label(now);
        let partition = &mut self.partitions[usize::from(partition_of(&topic))];
        partition.head = partition.head.next();
        let sequence = partition.head;
        let publication = Publication::after(head.sequence, payload, sequence, now);
        partition.records.push(Record { topic: topic.clone(), publication, origin });
        if let Some(key) = key {
            self.keys.insert(key, Position { epoch: partition.epoch.clone(), sequence });
        }
        partition.trim(&topic, self.history_max);
    }

    /// A request whose sender or broker died while it was under way.
    fn tear(&mut self, request: Request) {
        self.torn += 1;
        if self.torn.is_multiple_of(2) {
            self.carry_out(Request { origin: None, ..request });
        }
    }

    fn answer(&mut self, client: Client, event: BackboneEvent) {
        self.answers.entry(client).or_default().push_back(event);
    }

    /// The newest position of a topic through `through`.
    fn head_of(&self, topic: &TopicName, through: Sequence) -> Position {
        let partition = &self.partitions[usize::from(partition_of(topic))];
        let newest = partition.of_topic(topic).rfind(|it| it.sequence() <= through);
        let sequence = newest.map_or(Sequence::START, Publication::sequence);
        Position { epoch: partition.epoch.clone(), sequence }
    }
}

impl Partition {
    fn of_topic(&self, topic: &TopicName) -> impl DoubleEndedIterator<Item = &Publication> {
        self.records.iter().filter(move |it| it.topic == *topic).map(|it| &it.publication)
    }

    fn trim(&mut self, topic: &TopicName, count_max: usize) {
        let surplus = self.of_topic(topic).count().saturating_sub(count_max);
        let mut removed = 0;
        self.records.retain(|record| {
            let goes = record.topic == *topic && removed < surplus;
            removed += usize::from(goes);
            !goes
        });
    }
}

/// FNV-1a, as its specification has it: the same on every machine.
fn partition_of(topic: &TopicName) -> u16 {
    let hash = topic.as_str().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    (hash % u64::from(PARTITIONS)) as u16
}

/// A backbone over a broker's stream: it reads the order that others make, too.
pub struct StreamBackbone {
    stream: Stream,
    client: Client,
    /// By partition, what was read of it.
    read_through: Vec<Sequence>,
    /// By partition, what was told with `Through`.
    told_through: Vec<Sequence>,
    followed: BTreeSet<TopicName>,
    under_way: BTreeSet<Ticket>,
    events: VecDeque<BackboneEvent>,
}

impl StreamBackbone {
    /// One that begins to listen now.
    pub fn new(stream: &Stream) -> Self {
        let mut broker = stream.broker();
        broker.clients += 1;
        let heads: Vec<Sequence> = broker.partitions.iter().map(|it| it.head).collect();
        Self {
            stream: stream.clone(),
            client: broker.clients,
            read_through: heads.clone(),
            told_through: heads,
            followed: BTreeSet::new(),
            under_way: BTreeSet::new(),
            events: VecDeque::new(),
        }
    }

    /// Ends it as a killed process ends.
    pub fn kill(self) {
        let mut broker = self.stream.broker();
        let of_others = |it: &Request| it.origin.is_none_or(|(client, _)| client != self.client);
        let (others, own) = std::mem::take(&mut broker.requests).into_iter().partition(of_others);
        broker.requests = others;
        own.into_iter().for_each(|request| broker.tear(request));
        broker.answers.remove(&self.client);
    }

    /// The next record of a partition, as it concerns this one.
    fn listen(&mut self) -> Option<BackboneEvent> {
        let stream = self.stream.clone();
        let broker = stream.broker();
        for (number, partition) in broker.partitions.iter().enumerate() {
            let read = self.read_through[number];
            let new = partition.records.iter().filter(|it| it.publication.sequence() > read);
            for Record { topic, publication, origin } in new {
                let sequence = publication.sequence();
                self.read_through[number] = sequence;
                let own = origin.filter(|(client, _)| *client == self.client);
                let ticket = own.map(|(_, it)| it).filter(|it| self.under_way.remove(it));
                if ticket.is_some() || self.followed.contains(topic) {
                    let position = Position { epoch: partition.epoch.clone(), sequence };
                    let (topic, publication) = (topic.clone(), publication.clone());
                    return Some(BackboneEvent::Kept { ticket, topic, position, publication });
                }
            }
            if self.told_through[number] < self.read_through[number] {
                self.told_through[number] = self.read_through[number];
                let (epoch, sequence) = (partition.epoch.clone(), self.told_through[number]);
                let (partition, position) = (number as u16, Position { epoch, sequence });
                return Some(BackboneEvent::Through { partition, position });
            }
        }
        None
    }

    /// The next answer that is no record.
    fn next_answer(&mut self) -> Option<BackboneEvent> {
        let mut broker = self.stream.broker();
        let event = broker.answers.get_mut(&self.client)?.pop_front()?;
        if let BackboneEvent::Repeated { ticket, .. }
        | BackboneEvent::NotKept { ticket, .. }
        | BackboneEvent::Unknown { ticket, .. } = &event
        {
            self.under_way.remove(ticket);
        }
        Some(event)
    }
}

impl Backbone for StreamBackbone {
    fn append(&mut self, ticket: Ticket, draft: Draft, level: AckLevel, now: Moment) {
        if let Err(refusal) = check_level(&draft, level, self.abilities().level_max) {
            self.events.push_back(BackboneEvent::NotKept { ticket, refusal });
            return;
        }
        let mut broker = self.stream.broker();
        if broker.is_down {
            let text = "cannot keep the publication: the broker is gone; try again later";
            let refusal = Refusal::new(Code::NotKept, text);
            self.events.push_back(BackboneEvent::NotKept { ticket, refusal });
            return;
        }
        self.under_way.insert(ticket);
        broker.requests.push_back(Request { origin: Some((self.client, ticket)), draft, now });
    }

    fn follow(&mut self, topic: &TopicName) {
        let broker = self.stream.broker();
        let number = usize::from(partition_of(topic));
        let (partition, read) = (&broker.partitions[number], self.read_through[number]);
        let known: Vec<_> = partition.of_topic(topic).filter(|it| it.sequence() <= read).collect();
        let newest: Vec<Publication> =
            known.iter().rev().take(NEWEST_MAX).rev().map(|it| (*it).clone()).collect();
        let head = broker.head_of(topic, read);
        let complete_after = newest.first().map_or(head.sequence, Publication::previous);
        self.followed.insert(topic.clone());
        let topic = topic.clone();
        self.events.push_back(BackboneEvent::State { topic, head, newest, complete_after });
    }

    fn unfollow(&mut self, topic: &TopicName) {
        self.followed.remove(topic);
    }

    fn read(&mut self, ticket: Ticket, topic: &TopicName, wanted: ReadWanted) {
        let broker = self.stream.broker();
        let partition = &broker.partitions[usize::from(partition_of(topic))];
        let publications = wanted.take(partition.of_topic(topic).cloned());
        let head = broker.head_of(topic, Sequence::MAX).sequence;
        let complete_after = wanted.complete_after(&publications, head);
        self.events.push_back(BackboneEvent::Read { ticket, publications, complete_after });
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            is_contiguous: false,
            expects: true,
            has_keys: true,
            has_history: true,
            level_max: AckLevel::Disk,
        }
    }

    fn poll_event(&mut self) -> Option<BackboneEvent> {
        // What was read is told before what is answered: a repetition follows what it repeats.
        let event = self.events.pop_front().or_else(|| self.listen());
        event.or_else(|| self.next_answer())
    }
}

/// A broker of its own, with one backbone over it.
pub struct StreamSubject {
    stream: Stream,
    backbone: StreamBackbone,
}

impl StreamSubject {
    /// One of which nothing was ever asked.
    pub fn new() -> Self {
        let stream = Stream::new(100);
        let backbone = StreamBackbone::new(&stream);
        Self { stream, backbone }
    }
}

impl Default for StreamSubject {
    fn default() -> Self {
        Self::new()
    }
}

impl Subject for StreamSubject {
    fn backbone(&mut self) -> &mut dyn Backbone {
        &mut self.backbone
    }

    fn drive(&mut self) -> bool {
        self.stream.work()
    }

    fn restart(&mut self) {
        self.stream.mend();
        let next = StreamBackbone::new(&self.stream);
        std::mem::replace(&mut self.backbone, next).kill();
    }

    fn fail(&mut self) -> bool {
        self.stream.fail();
        true
    }

    fn publish_elsewhere(&mut self, draft: Draft) -> bool {
        self.stream.publish(draft);
        true
    }
}
