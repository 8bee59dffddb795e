//! The durable backbone: it gives numbers, and tells of a publication once it is on disk.

use std::collections::{HashMap, VecDeque};

use foldhash::fast::RandomState;
use model::{
    AckLevel, Code, Draft, Epoch, Limits, Moment, Position, Publication, Refusal, Sequence,
    TopicName,
};

use crate::keys::KeyWindow;
use crate::{
    Backbone, BackboneEvent, ReadWanted, Record, Store, StoreFault, StoredTopic, Ticket, Written,
};

/// Orders durable publications of the topics that are at home on one shard.
///
/// A number is given when a draft arrives and told once its record is on disk. What was not told does
/// not exist: after a crash its number may be given again, for nobody ever saw it.
pub struct DiskBackbone<S> {
    store: S,
    epoch: Epoch,
    topics: HashMap<TopicName, Numbering, RandomState>,
    keys: KeyWindow,
    /// Appends whose fate is unknown, in the order in which they were handed to the store.
    pending: VecDeque<Pending>,
    events: VecDeque<BackboneEvent>,
    fault: Option<StoreFault>,
}

/// What is known of one topic.
#[derive(Clone, Copy, Debug)]
struct Numbering {
    number: u64,
    /// The newest sequence given.
    head: Sequence,
    /// The newest sequence on disk.
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
    pub fn new(store: S, epoch: Epoch, topics: &[StoredTopic], limits: &Limits) -> Self {
        let mut keys = KeyWindow::new(limits);
        let mut known: Vec<_> = topics
            .iter()
            .flat_map(|topic| topic.keys.iter().map(move |(key, at, ms)| (*ms, topic, key, *at)))
            .collect();
        known.sort_by_key(|(unix_ms, ..)| *unix_ms);
        for (unix_ms, topic, key, sequence) in known {
            keys.remember(topic.topic.clone(), key.clone(), sequence, unix_ms);
        }
        let numbering = |topic: &StoredTopic| {
            let StoredTopic { number, head, .. } = *topic;
            (topic.topic.clone(), Numbering { number, head, durable: head })
        };
        Self {
            store,
            epoch,
            topics: topics.iter().map(numbering).collect(),
            keys,
            pending: VecDeque::new(),
            events: VecDeque::new(),
            fault: None,
        }
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

    /// Hears what became of the oldest records handed to the store.
    pub fn handle_written(&mut self, written: Written) {
        for _ in 0..written.count {
            self.answer_repeats();
            match self.pending.pop_front() {
                Some(Pending::Append { ticket, topic, publication }) => {
                    self.answer_append(ticket, topic, publication, &written.result);
                }
                Some(Pending::Repeat { .. }) | None => {
                    unreachable!("the store answers each record once, in order")
                }
            }
        }
        self.answer_repeats();
        if let Err(fault) = written.result {
            self.stop(fault);
        }
    }

    fn answer_append(
        &mut self,
        ticket: Ticket,
        topic: TopicName,
        publication: Publication,
        result: &Result<(), StoreFault>,
    ) {
        if let Err(fault) = result {
            let refusal = refusal_of(fault);
            self.events.push_back(BackboneEvent::NotKept { ticket, refusal });
            return;
        }
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
            let is_durable = self.topics.get(&topic).is_some_and(|known| sequence <= known.durable);
            self.events.push_back(match (is_durable, &self.fault) {
                (true, _) | (false, None) => {
                    let position = self.position(sequence);
                    BackboneEvent::Repeated { ticket, topic, position }
                }
                (false, Some(fault)) => {
                    BackboneEvent::NotKept { ticket, refusal: refusal_of(fault) }
                }
            });
        }
    }

    /// After a failed write nobody knows what is on disk: nothing more is written by this process.
    fn stop(&mut self, fault: StoreFault) {
        let refusal = refusal_of(&fault);
        self.fault = Some(fault);
        for pending in std::mem::take(&mut self.pending) {
            let (Pending::Append { ticket, .. } | Pending::Repeat { ticket, .. }) = pending;
            self.events.push_back(BackboneEvent::NotKept { ticket, refusal: refusal.clone() });
        }
    }

    fn check(&mut self, draft: &Draft) -> Result<(), Refusal> {
        if let Some(fault) = &self.fault {
            return Err(refusal_of(fault));
        }
        let head = self.topics.get(&draft.topic).map_or(Sequence::START, |known| known.head);
        crate::check_expected(draft, head)
    }
}

fn refusal_of(fault: &StoreFault) -> Refusal {
    let text = format!(
        "cannot keep the publication: {fault}; whether it is on disk shows after a restart: publish it \
         again then, with the same idempotency key"
    );
    Refusal::new(Code::NotKept, text)
}

impl<S: Store> Backbone for DiskBackbone<S> {
    fn append(&mut self, ticket: Ticket, draft: Draft, _level: AckLevel, now: Moment) {
        if let Some(key) = &draft.idempotency_key
            && let Some(sequence) = self.keys.find(&draft.topic, key, now)
        {
            let topic = draft.topic;
            self.pending.push_back(Pending::Repeat { ticket, topic, sequence });
            if self.pending.len() == 1 {
                self.answer_repeats();
            }
            return;
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
        });
        let sequence = known.head.next();
        let publication = Publication::new(payload, sequence, now);
        let record = Record {
            topic: topic.clone(),
            topic_number: known.number,
            publication: publication.clone(),
            idempotency_key: idempotency_key.clone(),
        };
        if self.store.write(record).is_err() {
            let text = "cannot keep the publication now: store_records_in_flight_max records wait \
                        for the disk already; try again, more slowly";
            let refusal = Refusal::new(Code::Busy, text);
            self.events.push_back(BackboneEvent::NotKept { ticket, refusal });
            return;
        }
        self.topics.insert(topic.clone(), Numbering { head: sequence, ..known });
        if let Some(key) = idempotency_key {
            self.keys.remember(topic.clone(), key, sequence, now.unix_ms);
        }
        self.pending.push_back(Pending::Append { ticket, topic, publication });
    }

    fn head(&mut self, topic: &TopicName) {
        let position = self.durable_of(topic);
        self.events.push_back(BackboneEvent::Head { topic: topic.clone(), position });
    }

    fn follow(&mut self, topic: &TopicName) {
        // Nobody else publishes here: the head is all there is to tell.
        self.head(topic);
    }

    fn unfollow(&mut self, _topic: &TopicName) {}

    fn read(&mut self, ticket: Ticket, topic: &TopicName, wanted: ReadWanted) {
        match self.topics.get(topic) {
            Some(known) => self.store.read(ticket.0, known.number, wanted),
            None => {
                let publications = Vec::new();
                self.events.push_back(BackboneEvent::Read { ticket, publications });
            }
        }
    }

    fn poll_event(&mut self) -> Option<BackboneEvent> {
        self.events.pop_front()
    }
}
