//! What a client knows of the topics it reads: positions, numbers, gaps. Pure.

use std::collections::{BTreeMap, HashMap};

use model::{
    Epoch, Event, Gap, GapReason, PayloadKind, Position, Selector, Sequence, SubscribedTopic,
    TopicName,
};
use protocol::delta::{BadDelta, apply};
use protocol::native::{ServerRecord, TopicRef};

/// A publication as a subscriber gets it.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Where it was published.
    pub topic: TopicName,
    /// The life of the numbering.
    pub epoch: Epoch,
    /// Its place in that.
    pub sequence: Sequence,
    /// What the payload is.
    pub kind: PayloadKind,
    /// The payload.
    pub payload: Vec<u8>,
}

/// What a record means for the reader.
#[derive(Clone, Debug, PartialEq)]
pub enum Told {
    /// The next publication of its topic.
    Message(Message),
    /// Publications that cannot be had any more.
    Gap(Gap),
    /// A resume was answered: whether everything after the position follows.
    Resumed {
        /// Which topic.
        topic: TopicName,
        /// False if a gap comes first.
        recovered: bool,
    },
    /// How far this client is behind, in milliseconds; 0 once it is not any more.
    Lag(u64),
    /// The server ended these subscriptions, because this client was too far behind.
    TakenAway(Vec<Selector>),
    /// A delta did not apply: the topic must be subscribed to again.
    Broken {
        /// Which topic.
        topic: TopicName,
        /// What is wrong.
        error: BadDelta,
    },
    /// Nothing new.
    Nothing,
}

/// What came of a topic behind a publication that is not whole yet, by sequence (of a gap: its last).
type Waiting = BTreeMap<Sequence, Held>;

/// Something that waits for what is before it in its topic.
#[derive(Debug)]
enum Held {
    /// A publication of which pieces are to come.
    Partial {
        kind: PayloadKind,
        total: u64,
        payload: Vec<u8>,
    },
    Publication(PayloadKind, Vec<u8>),
    Gap(Gap),
}

/// Bytes of a payload that comes in pieces.
const PARTIAL_BYTES_MAX: u64 = 1 << 30;

/// Follows the positions of all topics of one client, across connections.
#[derive(Debug, Default)]
pub struct Tracker {
    numbers: HashMap<u32, TopicName>,
    positions: HashMap<TopicName, Position>,
    /// The last payload of each topic, once deltas may come.
    values: Option<HashMap<TopicName, (Sequence, Vec<u8>)>>,
    waiting: HashMap<TopicName, Waiting>,
}

impl Tracker {
    /// Forgets what was of the connection that ended; positions stay.
    pub fn handle_disconnect(&mut self) {
        self.numbers.clear();
        self.waiting.clear();
        if let Some(values) = &mut self.values {
            values.clear();
        }
    }

    /// Forgets unfinished publications of topics that are not read any more.
    pub fn forget_unread(&mut self, is_read: impl Fn(&TopicName) -> bool) {
        self.waiting.retain(|topic, _| is_read(topic));
    }

    /// Keeps the last payload of each topic from now on, so that deltas can be applied.
    pub fn expect_deltas(&mut self) {
        self.values.get_or_insert_default();
    }

    /// The places from which to resume.
    pub fn positions(&self) -> Vec<(TopicName, Position)> {
        self.positions.iter().map(|(topic, position)| (topic.clone(), position.clone())).collect()
    }

    /// Takes a record in and tells what it means. A publication taken before means nothing.
    pub fn handle_record(&mut self, record: ServerRecord<'_>) -> Vec<Told> {
        match record {
            ServerRecord::Event(Event::Subscribed(subscribed)) => {
                subscribed.topics.into_iter().map(|topic| self.start(topic)).collect()
            }
            ServerRecord::Event(Event::Topic(topic)) => vec![self.start(topic)],
            ServerRecord::Event(Event::Gap(gap)) => vec![self.take_gap(gap)],
            ServerRecord::Publication { topic, sequence, kind, payload } => {
                let Some(topic) = self.topic_of(topic) else { return vec![] };
                let Some(position) = self.positions.get(&topic) else { return vec![] };
                let Some(sequence) = sequence.resolve(position.sequence) else { return vec![] };
                self.take(topic, sequence, kind, payload.into_owned())
            }
            ServerRecord::Delta { topic, sequence, base, kind, delta, crc, bytes } => {
                let Some(topic) = self.topic_of(topic) else { return vec![] };
                let known = self.values.as_ref().and_then(|values| values.get(&topic));
                let missing = || BadDelta { text: "what it is made from is not here".into() };
                let known = known.filter(|(known, _)| *known == base).ok_or_else(missing);
                match known.and_then(|(_, base)| apply(delta, base, &bytes, crc)) {
                    Ok(payload) => self.take(topic, sequence, kind, payload),
                    Err(error) => vec![Told::Broken { topic, error }],
                }
            }
            ServerRecord::Fragment { topic, sequence, kind, total, offset, bytes } => {
                let Some(topic) = self.topic_of(topic) else { return vec![] };
                self.take_fragment(topic, sequence, kind, total, offset, &bytes)
            }
            ServerRecord::Event(Event::Lag { ms }) => vec![Told::Lag(ms)],
            ServerRecord::Event(Event::Unsubscribed { selectors, has_lagged: true, .. }) => {
                vec![Told::TakenAway(selectors)]
            }
            _ => vec![],
        }
    }

    fn topic_of(&self, topic: TopicRef<'_>) -> Option<TopicName> {
        match topic {
            TopicRef::Number(number) => self.numbers.get(&number).cloned(),
            TopicRef::Name(name) => {
                self.positions.get_key_value(&*name).map(|(known, _)| known.clone())
            }
        }
    }

    /// Takes a whole publication; one that was taken before means nothing, and one that comes after pieces of
    /// an earlier one waits for that.
    fn take(
        &mut self,
        topic: TopicName,
        sequence: Sequence,
        kind: PayloadKind,
        payload: Vec<u8>,
    ) -> Vec<Told> {
        let Some(position) = self.positions.get_mut(&topic) else { return vec![] };
        if sequence <= position.sequence {
            return vec![];
        }
        if let Some(values) = &mut self.values {
            let known = values.get(&topic).map(|(known, _)| *known);
            // What waited comes by here again, behind what came since.
            if known.is_none_or(|known| known < sequence) {
                values.insert(topic.clone(), (sequence, payload.clone()));
            }
        }
        if let Some(waiting) = self.waiting.get_mut(&topic) {
            waiting.insert(sequence, Held::Publication(kind, payload));
            return vec![];
        }
        position.sequence = sequence;
        let epoch = position.epoch.clone();
        vec![Told::Message(Message { topic, epoch, sequence, kind, payload })]
    }

    /// Takes a piece; answers the publication, and those that waited for it, once it is whole.
    fn take_fragment(
        &mut self,
        topic: TopicName,
        sequence: Sequence,
        kind: PayloadKind,
        total: u64,
        offset: u64,
        bytes: &[u8],
    ) -> Vec<Told> {
        let is_new = self.positions.get(&topic).is_some_and(|at| sequence > at.sequence);
        if !is_new || total > PARTIAL_BYTES_MAX {
            return vec![];
        }
        let waiting = self.waiting.entry(topic.clone()).or_default();
        if offset == 0 {
            waiting.insert(sequence, Held::Partial { kind, total, payload: Vec::new() });
        }
        let Some(Held::Partial { payload, .. }) = waiting.get_mut(&sequence) else { return vec![] };
        if payload.len() as u64 != offset {
            return vec![];
        }
        payload.extend_from_slice(bytes);
        self.release(&topic)
    }

    /// Hands on what no longer has to wait.
    fn release(&mut self, topic: &TopicName) -> Vec<Told> {
        let Some(mut waiting) = self.waiting.remove(topic) else { return vec![] };
        let mut told = Vec::new();
        while let Some(first) = waiting.first_entry() {
            let is_whole = |held: &Held| match held {
                Held::Partial { total, payload, .. } => payload.len() as u64 >= *total,
                Held::Publication(..) | Held::Gap(_) => true,
            };
            if !is_whole(first.get()) {
                self.waiting.insert(topic.clone(), waiting);
                return told;
            }
            let (sequence, held) = first.remove_entry();
            match held {
                Held::Partial { kind, payload, .. } | Held::Publication(kind, payload) => {
                    told.extend(self.take(topic.clone(), sequence, kind, payload));
                }
                Held::Gap(gap) => told.push(self.take_gap(gap)),
            }
        }
        told
    }

    fn start(&mut self, topic: SubscribedTopic) -> Told {
        let SubscribedTopic { topic: name, number, epoch, start, recovered, .. } = topic;
        self.numbers.insert(number, name.clone());
        let is_new_life = self.positions.get(&name).is_some_and(|known| known.epoch != epoch);
        if is_new_life && let Some(values) = &mut self.values {
            values.remove(&name);
        }
        let known = self.positions.get(&name).filter(|known| known.epoch == epoch);
        // What was taken before and comes again is dropped by its sequence. Where pieces are still to come,
        // the server counts as told what is not taken yet.
        let sequence = match known {
            Some(known) if self.waiting.contains_key(&name) => known.sequence,
            known => known.map_or(start, |known| known.sequence.max(start)),
        };
        if is_new_life {
            self.waiting.remove(&name);
        }
        self.positions.insert(name.clone(), Position { epoch: epoch.clone(), sequence });
        match recovered {
            Some(recovered) => Told::Resumed { topic: name, recovered },
            None if is_new_life => {
                let (from, to, reason) = (None, sequence, GapReason::Epoch);
                Told::Gap(Gap { topic: name, number, epoch, from, to, reason })
            }
            None => Told::Nothing,
        }
    }

    fn take_gap(&mut self, gap: Gap) -> Told {
        match self.waiting.get_mut(&gap.topic) {
            Some(_) if gap.reason == GapReason::Epoch => drop(self.waiting.remove(&gap.topic)),
            Some(waiting) => {
                waiting.insert(gap.to, Held::Gap(gap));
                return Told::Nothing;
            }
            None => {}
        }
        let epoch: Epoch = gap.epoch.clone();
        let position = Position { epoch, sequence: gap.to };
        match self.positions.get_mut(&gap.topic) {
            // A new epoch starts below what was read of the old one: that is no repetition.
            Some(known)
                if gap.reason != GapReason::Epoch
                    && known.epoch == gap.epoch
                    && known.sequence >= gap.to =>
            {
                Told::Nothing
            }
            _ => {
                self.positions.insert(gap.topic.clone(), position);
                Told::Gap(gap)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use model::Limits;
    use protocol::native::SequenceRef;

    use super::*;

    fn topic(start: u64, epoch: &str, recovered: Option<bool>) -> ServerRecord<'static> {
        let start = Sequence::new(start).expect("small");
        ServerRecord::Event(Event::Topic(SubscribedTopic {
            topic: TopicName::parse("a", &Limits::default()).expect("valid"),
            number: 7,
            epoch: Epoch::new(epoch),
            head: start,
            start,
            recovered,
        }))
    }

    fn publication(low: u16) -> ServerRecord<'static> {
        ServerRecord::Publication {
            topic: TopicRef::Number(7),
            sequence: SequenceRef::Low(low),
            kind: PayloadKind::Text,
            payload: Cow::Borrowed(b"x"),
        }
    }

    fn sequences(told: Vec<Told>) -> Vec<u64> {
        told.into_iter()
            .filter_map(|told| match told {
                Told::Message(message) => Some(message.sequence.get()),
                _ => None,
            })
            .collect()
    }

    #[test]
    fn what_comes_again_after_a_resume_is_dropped() {
        let mut tracker = Tracker::default();
        tracker.handle_record(topic(4, "e1", None));
        assert_eq!(sequences(tracker.handle_record(publication(5))), [5]);
        tracker.handle_disconnect();
        assert!(tracker.handle_record(publication(6)).is_empty(), "numbers are of a connection");
        let told = tracker.handle_record(topic(5, "e1", Some(true)));
        assert!(matches!(told[..], [Told::Resumed { recovered: true, .. }]));
        let full = |number| ServerRecord::Publication {
            topic: TopicRef::Number(7),
            sequence: SequenceRef::Full(Sequence::new(number).expect("small")),
            kind: PayloadKind::Text,
            payload: Cow::Borrowed(b"x"),
        };
        assert!(sequences(tracker.handle_record(full(5))).is_empty());
        assert_eq!(sequences(tracker.handle_record(full(6))), [6]);
        assert_eq!(tracker.positions()[0].1.sequence.get(), 6);
    }

    #[test]
    fn a_new_epoch_starts_over() {
        let mut tracker = Tracker::default();
        tracker.handle_record(topic(9, "e1", None));
        tracker.handle_record(topic(0, "e2", Some(false)));
        assert_eq!(sequences(tracker.handle_record(publication(1))), [1]);
        let told = tracker.handle_record(topic(0, "e3", None));
        assert!(
            matches!(&told[..], [Told::Gap(gap)] if gap.reason == GapReason::Epoch),
            "{told:?}"
        );
    }

    #[test]
    fn deltas_and_pieces_make_what_was_published() {
        let mut tracker = Tracker::default();
        tracker.expect_deltas();
        tracker.handle_record(topic(0, "e1", None));
        let base =
            b"the quick brown fox jumps over the lazy dog, again and again and again".to_vec();
        let next =
            String::from_utf8(base.clone()).expect("text").replace("fox", "cat").into_bytes();
        let sequence = |number| Sequence::new(number).expect("small");
        tracker.handle_record(ServerRecord::Publication {
            topic: TopicRef::Number(7),
            sequence: SequenceRef::Full(sequence(1)),
            kind: PayloadKind::Text,
            payload: Cow::Borrowed(&base),
        });
        let made = protocol::delta::make(model::DeltaKind::Vcdiff, &base, &next).expect("smaller");
        let delta = |base: u64, at: u64, crc: u32| ServerRecord::Delta {
            topic: TopicRef::Number(7),
            sequence: sequence(at),
            base: sequence(base),
            kind: PayloadKind::Text,
            delta: model::DeltaKind::Vcdiff,
            crc,
            bytes: Cow::Borrowed(&made.bytes),
        };
        let told = tracker.handle_record(delta(1, 2, made.crc));
        assert!(matches!(&told[..], [Told::Message(message)] if message.payload == next));
        let told = tracker.handle_record(delta(1, 3, made.crc));
        assert!(matches!(told[..], [Told::Broken { .. }]), "its base is not the last one");
        let told = tracker.handle_record(delta(2, 3, made.crc + 1));
        assert!(matches!(told[..], [Told::Broken { .. }]), "the check differs");
        let piece = |at: u64, offset: u64, bytes: &'static [u8]| ServerRecord::Fragment {
            topic: TopicRef::Number(7),
            sequence: sequence(at),
            kind: PayloadKind::Text,
            total: 6,
            offset,
            bytes: Cow::Borrowed(bytes),
        };
        assert!(tracker.handle_record(piece(3, 0, b"abc")).is_empty());
        assert!(tracker.handle_record(publication(4)).is_empty(), "it waits for the one before");
        assert_eq!(tracker.positions()[0].1.sequence.get(), 2, "the position waits, too");
        assert!(tracker.handle_record(piece(3, 4, b"x")).is_empty(), "a piece out of order");
        assert_eq!(sequences(tracker.handle_record(piece(3, 3, b"def"))), [3, 4]);
    }
}
