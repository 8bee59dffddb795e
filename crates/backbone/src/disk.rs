//! The durable backbone: it gives numbers, and tells of a publication once it is on disk.

use std::collections::{HashMap, VecDeque};

use model::planted::{Fault, is_planted};
use model::{
    AckLevel, Code, Draft, Epoch, Limits, Moment, Position, Publication, RandomState, Refusal,
    Sequence, TopicName,
};

use crate::keys::KeyWindow;
use crate::{
    Abilities, Backbone, BackboneEvent, BackboneMail, LatestTime, ReadWanted, Record, Store,
    StoreFault, StoreMail, StoredTopic, Ticket, Written,
};

/// Orders durable publications of the topics that are at home on one shard.
///
/// A number is given when a draft arrives and told once its record is on disk. A number that was not told does
/// not exist: after a crash its number may be given again, for nobody ever saw it.
pub struct DiskBackbone<S> {
    store: S,
    epoch: Epoch,
    topics: HashMap<TopicName, Numbering, RandomState>,
    keys: KeyWindow,
    /// Appends whose fate is unknown, in the order in which they were handed to the store.
    pending: VecDeque<Pending>,
    pending_max: usize,
    reads: HashMap<Ticket, Reading, RandomState>,
    events: VecDeque<BackboneEvent>,
    fault: Option<StoreFault>,
    times: LatestTime,
}

/// The state of one topic.
#[derive(Clone, Copy, Debug)]
struct Numbering {
    number: u64,
    /// The newest sequence given.
    head: Sequence,
    /// The newest sequence on disk.
    durable: Sequence,
    /// When the newest was published: the next one was not before that.
    unix_ms: u64,
}

/// A page that the store was asked for.
#[derive(Clone, Copy, Debug)]
struct Reading {
    wanted: ReadWanted,
    /// The newest sequence on disk by then: a publication up to it that is not in the page is not kept.
    durable: Sequence,
}

#[derive(Debug)]
enum Pending {
    /// Waits for its own record.
    Append { ticket: Ticket, topic: TopicName, publication: Publication },
    /// A repeated key: waits for the first one's record, which is before it in line.
    Repeat { ticket: Ticket, topic: TopicName, sequence: Sequence },
}

impl<S: Store> DiskBackbone<S> {
    /// A backbone over `store`, which held `topics` when it was opened.
    pub fn new(
        store: S,
        epoch: Epoch,
        topics: &[StoredTopic],
        limits: &Limits,
        now: Moment,
    ) -> Self {
        let mut keys = KeyWindow::new(limits);
        let mut known: Vec<_> = topics
            .iter()
            .flat_map(|topic| topic.keys.iter().map(move |(key, at, ms)| (*ms, topic, key, *at)))
            .collect();
        known.sort_by_key(|(unix_ms, ..)| *unix_ms);
        if is_planted(Fault::KeysEndWithTheProcess) {
            known.clear();
        }
        for (unix_ms, topic, key, sequence) in known {
            keys.restore(topic.topic.clone(), key.clone(), sequence, unix_ms, now);
        }
        let numbering = |topic: &StoredTopic| {
            let StoredTopic { number, head, unix_ms, .. } = *topic;
            (topic.topic.clone(), Numbering { number, head, durable: head, unix_ms })
        };
        Self {
            store,
            epoch,
            topics: topics.iter().map(numbering).collect(),
            keys,
            pending: VecDeque::new(),
            pending_max: limits.store_records_in_flight_max,
            reads: HashMap::default(),
            events: VecDeque::new(),
            fault: None,
            times: LatestTime::default(),
        }
    }

    /// Labels publications with times that others share.
    #[must_use]
    pub fn with_times(self, times: LatestTime) -> Self {
        Self { times, ..self }
    }

    fn position(&self, sequence: Sequence) -> Position {
        Position { epoch: self.epoch.clone(), sequence }
    }

    fn durable_of(&self, topic: &TopicName) -> Position {
        self.position(self.topics.get(topic).map_or(Sequence::START, |known| known.durable))
    }

    /// Why nothing is written any more, if that is so.
    pub fn fault(&self) -> Option<&StoreFault> {
        self.fault.as_ref()
    }

    /// Whether the store has something to answer.
    pub fn is_waiting(&self) -> bool {
        !self.pending.is_empty() || !self.reads.is_empty()
    }

    /// Hears from the store.
    pub fn handle_store(&mut self, mail: StoreMail) {
        match mail {
            StoreMail::Written(written) => self.handle_written(written),
            StoreMail::Read { ticket, publications } => {
                self.handle_read(Ticket(ticket), publications);
            }
            StoreMail::Epoch(epoch) => {
                let ended = std::mem::replace(&mut self.epoch, epoch.clone());
                self.events.push_back(BackboneEvent::NewLife { partition: 0, ended, epoch });
            }
        }
    }

    fn handle_read(&mut self, ticket: Ticket, publications: Vec<Publication>) {
        let Some(Reading { wanted, durable }) = self.reads.remove(&ticket) else { return };
        let complete_after = wanted.complete_after(&publications, durable);
        self.events.push_back(BackboneEvent::Read { ticket, publications, complete_after });
    }

    /// Hears what became of the oldest records handed to the store.
    ///
    /// After the first failed write nothing more counts: whatever was under way was refused then.
    pub fn handle_written(&mut self, written: Written) {
        if self.fault.is_some() {
            return;
        }
        match written.result {
            Ok(()) => self.keep(written.count),
            Err(fault) => self.stop(fault),
        }
    }

    /// Answers the oldest appends, and the repetitions between and after them.
    fn keep(&mut self, count: usize) {
        for _ in 0..count {
            self.answer_repeats();
            let Some(Pending::Append { ticket, topic, publication }) = self.pending.pop_front()
            else {
                debug_assert!(false, "the store answers each record once, in order");
                return;
            };
            self.answer_append(ticket, topic, publication);
        }
        self.answer_repeats();
    }

    fn answer_append(&mut self, ticket: Ticket, topic: TopicName, publication: Publication) {
        let position = self.position(publication.sequence());
        if let Some(known) = self.topics.get_mut(&topic) {
            known.durable = publication.sequence();
        }
        let ticket = Some(ticket);
        self.events.push_back(BackboneEvent::Kept { ticket, topic, position, publication });
    }

    /// Answers repeated keys that stand at the head of the line: what they repeat is settled.
    fn answer_repeats(&mut self) {
        while let Some(Pending::Repeat { .. }) = self.pending.front() {
            let Some(Pending::Repeat { ticket, topic, sequence }) = self.pending.pop_front() else {
                return;
            };
            self.answer_repeat(ticket, topic, sequence);
        }
    }

    fn answer_repeat(&mut self, ticket: Ticket, topic: TopicName, sequence: Sequence) {
        let is_durable = self.topics.get(&topic).is_some_and(|known| sequence <= known.durable);
        self.events.push_back(match &self.fault {
            Some(fault) if !is_durable && !is_planted(Fault::RepeatsOfWhatFailed) => {
                BackboneEvent::Unknown { ticket, refusal: unknown_after(fault) }
            }
            _ => BackboneEvent::Repeated { ticket, topic, position: self.position(sequence) },
        });
    }

    /// After a failed write nobody knows what is on disk: nothing more is written by this process.
    fn stop(&mut self, fault: StoreFault) {
        let refusal = unknown_after(&fault);
        self.fault = Some(fault);
        for pending in std::mem::take(&mut self.pending) {
            match pending {
                Pending::Append { ticket, .. } => {
                    let refusal = refusal.clone();
                    self.events.push_back(BackboneEvent::Unknown { ticket, refusal });
                }
                Pending::Repeat { ticket, topic, sequence } => {
                    self.answer_repeat(ticket, topic, sequence);
                }
            }
        }
    }

    /// Answers a repeated key once what it repeats is settled.
    fn repeat(&mut self, ticket: Ticket, topic: TopicName, sequence: Sequence) {
        if self.pending.is_empty() {
            self.answer_repeat(ticket, topic, sequence);
        } else if self.is_behind() {
            self.refuse_busy(ticket);
        } else {
            self.pending.push_back(Pending::Repeat { ticket, topic, sequence });
        }
    }

    /// Whether as much waits for the disk, or to hear of it, as may.
    fn is_behind(&self) -> bool {
        self.pending.len() >= self.pending_max
    }

    fn refuse_busy(&mut self, ticket: Ticket) {
        let text = "cannot keep the publication now: store_records_in_flight_max records wait \
                    for the disk already; try again, more slowly";
        let refusal = Refusal::new(Code::Busy, text);
        self.events.push_back(BackboneEvent::NotKept { ticket, refusal });
    }

    fn check(&mut self, draft: &Draft) -> Result<(), Refusal> {
        if let Some(fault) = &self.fault {
            return Err(refusal_after(fault));
        }
        let head = self.topics.get(&draft.topic).map_or(Sequence::START, |known| known.head);
        crate::check_expected(draft, &self.position(head))
    }
}

/// The outcome of a publication that was on its way to the disk when a write failed.
fn unknown_after(fault: &StoreFault) -> Refusal {
    let text = format!(
        "cannot say whether the publication is kept: {fault}; whether it is on disk shows after a restart: publish it \
         again then, with the same idempotency key"
    );
    Refusal::new(Code::NotKept, text)
}

/// The outcome of a publication that comes after a write failed.
fn refusal_after(fault: &StoreFault) -> Refusal {
    let text = format!(
        "cannot keep the publication: {fault}; nothing more is written until a restart: publish it again then"
    );
    Refusal::new(Code::NotKept, text)
}

impl<S: Store> Backbone for DiskBackbone<S> {
    fn append(&mut self, ticket: Ticket, draft: Draft, _level: AckLevel, now: Moment) {
        if let Some(key) = &draft.idempotency_key
            && let Some(sequence) = self.keys.find(&draft.topic, key, now)
        {
            return self.repeat(ticket, draft.topic, sequence);
        }
        if let Err(refusal) = self.check(&draft) {
            self.events.push_back(BackboneEvent::NotKept { ticket, refusal });
            return;
        }
        let Draft { topic, payload, idempotency_key, .. } = draft;
        let known = self.topics.get(&topic).copied().unwrap_or_else(|| Numbering {
            number: self.store.new_topic_number(),
            head: Sequence::START,
            durable: Sequence::START,
            unix_ms: 0,
        });
        let unix_ms = self.times.label(now).unix_ms.max(known.unix_ms);
        let sequence = known.head.next();
        let publication = Publication::new(payload, sequence, Moment { unix_ms, ..now });
        let record = Record {
            topic: topic.clone(),
            topic_number: known.number,
            publication: publication.clone(),
            idempotency_key: idempotency_key.clone(),
        };
        if self.is_behind() || self.store.write(record).is_err() {
            return self.refuse_busy(ticket);
        }
        self.topics.insert(topic.clone(), Numbering { head: sequence, unix_ms, ..known });
        if let Some(key) = idempotency_key {
            self.keys.remember(topic.clone(), key, sequence, now);
        }
        self.pending.push_back(Pending::Append { ticket, topic, publication });
    }

    fn follow(&mut self, topic: &TopicName) {
        // Nobody else publishes here, and the hub got the newest publications when the store was opened.
        let head = self.durable_of(topic);
        let (topic, newest, complete_after) = (topic.clone(), Vec::new(), head.sequence);
        self.events.push_back(BackboneEvent::State { topic, head, newest, complete_after });
    }

    fn unfollow(&mut self, _topic: &TopicName) {}

    fn read(&mut self, ticket: Ticket, topic: &TopicName, wanted: ReadWanted) {
        match self.topics.get(topic) {
            Some(known) => {
                self.reads.insert(ticket, Reading { wanted, durable: known.durable });
                self.store.read(ticket.0, known.number, wanted);
            }
            None => {
                let (publications, complete_after) = (Vec::new(), wanted.after);
                self.events.push_back(BackboneEvent::Read { ticket, publications, complete_after });
            }
        }
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            is_contiguous: true,
            expects: true,
            has_keys: true,
            has_history: true,
            level_max: AckLevel::Disk,
        }
    }

    fn handle_mail(&mut self, mail: BackboneMail) {
        let BackboneMail::Store(mail) = mail;
        self.handle_store(mail);
    }

    /// Asks the store for a new epoch, because nobody may trust the one that it has.
    fn handle_beyond(&mut self, position: &Position) -> bool {
        if position.epoch == self.epoch {
            self.store.begin_epoch();
        }
        true
    }

    fn poll_event(&mut self) -> Option<BackboneEvent> {
        self.events.pop_front()
    }
}
