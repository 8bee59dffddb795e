//! Whole publications of what comes: numbers become names, pieces are put together, deltas applied. Pure.
//!
//! It stands before the subscriptions, because the server tells a session each topic once: numbers, bases and
//! what is not finished are of the connection, not of one reader. Whatever comes after an unfinished
//! publication of its topic waits for it. docs/protocol.md#deltas, docs/protocol.md#fragments,
//! docs/protocol.md#binary-dialect.

use std::collections::{BTreeMap, HashMap};

use model::{
    DeltaKind, Epoch, Gap, GapReason, PayloadKind, RandomState, Sequence, SubscribedTopic,
    TopicName,
};
use payload::delta::apply;
use protocol::native::{SequenceRef, ServerRecord, TopicRef};

/// An update, in its place.
#[derive(Debug, PartialEq)]
pub(crate) enum Whole {
    /// A publication.
    Publication { topic: TopicName, sequence: Sequence, kind: PayloadKind, payload: Vec<u8> },
    /// Publications that cannot be had.
    Gap(Gap),
    /// A publication could not be made of what came: its topic has to be asked for again, whole.
    Broken(TopicName),
}

/// A topic as this connection knows it.
#[derive(Debug)]
struct Known {
    name: TopicName,
    epoch: Epoch,
    /// The last sequence that was told, for those that are told by their low bits.
    last: Sequence,
}

/// The updates of a topic that wait behind an incomplete publication, by sequence (of a gap: its last).
type Waiting = BTreeMap<Sequence, Held>;

#[derive(Debug)]
enum Held {
    /// A publication of which pieces are to come.
    Partial {
        kind: PayloadKind,
        total: u64,
        payload: Vec<u8>,
    },
    Publication(PayloadKind, Vec<u8>),
    Delta(Difference),
    Gap(Gap),
}

impl Held {
    fn is_whole(&self) -> bool {
        match self {
            Self::Partial { total, payload, .. } => payload.len() as u64 >= *total,
            _ => true,
        }
    }
}

/// A publication told as its difference from an earlier one.
#[derive(Debug)]
struct Difference {
    base: Sequence,
    kind: PayloadKind,
    delta: DeltaKind,
    crc: u32,
    bytes: Vec<u8>,
}

/// Bytes of a payload that comes in pieces.
const PARTIAL_BYTES_MAX: u64 = 1 << 30;

/// Makes publications whole. One for each connection.
#[derive(Debug, Default)]
pub(crate) struct Payloads {
    topics: HashMap<u32, Known, RandomState>,
    numbers: HashMap<TopicName, u32, RandomState>,
    waiting: HashMap<TopicName, Waiting, RandomState>,
    /// The last payload of each topic, once deltas may come.
    values: Option<HashMap<TopicName, (Sequence, Vec<u8>), RandomState>>,
}

impl Payloads {
    /// Keeps the last payload of each topic from now on. Whoever shares a topic may get deltas.
    pub(crate) fn expect_deltas(&mut self) {
        self.values.get_or_insert_default();
    }

    /// Whether something of `topic` is not whole yet: the server counts it as told.
    pub(crate) fn is_unfinished(&self, topic: &TopicName) -> bool {
        self.waiting.contains_key(topic)
    }

    /// Forgets the pieces of topics that nobody reads any more: the rest of them does not come.
    pub(crate) fn forget_unless(&mut self, is_read: impl Fn(&TopicName) -> bool) {
        self.waiting.retain(|topic, _| is_read(topic));
    }

    /// Takes the number of a topic, and where its reading starts. A start before what was told moves nothing:
    /// what comes again is told by its whole sequence.
    pub(crate) fn handle_topic(&mut self, topic: &SubscribedTopic) {
        let SubscribedTopic { topic: name, number, epoch, start, .. } = topic;
        self.restart(name, *start);
        match self.topics.get_mut(number) {
            Some(known) if known.epoch == *epoch && known.name == *name => {
                known.last = known.last.max(*start);
            }
            _ => {
                self.forget(name);
                let known = Known { name: name.clone(), epoch: epoch.clone(), last: *start };
                self.topics.insert(*number, known);
                self.numbers.insert(name.clone(), *number);
            }
        }
    }

    /// Incomplete publications after `start` come again, from the beginning. Its pieces that are still on their way are of
    /// the reading before, and would stand before what comes first.
    fn restart(&mut self, topic: &TopicName, start: Sequence) {
        let Some(waiting) = self.waiting.get_mut(topic) else { return };
        waiting.retain(|sequence, _| *sequence <= start);
        if waiting.is_empty() {
            self.waiting.remove(topic);
        }
    }

    /// Takes a publication, delta, piece or gap; answers what is whole now, in order.
    pub(crate) fn take(&mut self, record: ServerRecord<'_>) -> Vec<Whole> {
        let (topic, sequence, held) = match record {
            ServerRecord::Event(model::Event::Gap(gap)) => return self.take_gap(gap),
            ServerRecord::Fragment { topic, sequence, kind, total, offset, bytes, .. } => {
                let Some((topic, sequence)) = self.place(topic, SequenceRef::Full(sequence)) else {
                    return vec![];
                };
                if offset == 0 {
                    self.begin(&topic, sequence, kind, total);
                }
                return self.take_piece(topic, sequence, offset, &bytes);
            }
            ServerRecord::Publication { topic, sequence, kind, payload, .. } => {
                (topic, sequence, Held::Publication(kind, payload.into_owned()))
            }
            ServerRecord::Delta { topic, sequence, base, kind, delta, crc, bytes, .. } => {
                let bytes = bytes.into_owned();
                let held = Held::Delta(Difference { base, kind, delta, crc, bytes });
                (topic, SequenceRef::Full(sequence), held)
            }
            _ => return vec![],
        };
        let Some((topic, sequence)) = self.place(topic, sequence) else { return vec![] };
        self.take_whole(topic, sequence, held)
    }

    /// The server's number for a topic on this connection.
    pub(crate) fn number_of(&self, topic: &TopicName) -> u32 {
        self.numbers.get(topic).copied().unwrap_or_default()
    }

    /// The topic of a publication, delta, piece or gap, if it was announced.
    pub(crate) fn name_of(&self, record: &ServerRecord<'_>) -> Option<TopicName> {
        let topic = match record {
            ServerRecord::Event(model::Event::Gap(gap)) => return Some(gap.topic.clone()),
            ServerRecord::Publication { topic, .. }
            | ServerRecord::Delta { topic, .. }
            | ServerRecord::Fragment { topic, .. } => topic,
            _ => return None,
        };
        let number = match topic {
            TopicRef::Number(number) => number,
            TopicRef::Name(name) => self.numbers.get(&**name)?,
        };
        self.topics.get(number).map(|known| known.name.clone())
    }

    /// The name and the whole sequence; `None` of a topic that was not announced.
    fn place(
        &mut self,
        topic: TopicRef<'_>,
        sequence: SequenceRef,
    ) -> Option<(TopicName, Sequence)> {
        let number = match topic {
            TopicRef::Number(number) => number,
            TopicRef::Name(name) => *self.numbers.get(&*name)?,
        };
        let known = self.topics.get_mut(&number)?;
        known.last = sequence.resolve(known.last)?;
        Some((known.name.clone(), known.last))
    }

    fn take_gap(&mut self, gap: Gap) -> Vec<Whole> {
        if let Some(known) = self.topics.get_mut(&gap.number) {
            let is_anew = gap.reason == GapReason::Epoch || known.epoch != gap.epoch;
            (known.last, known.epoch) = (gap.to, gap.epoch.clone());
            if is_anew {
                self.forget(&gap.topic);
            }
        }
        self.take_whole(gap.topic.clone(), gap.to, Held::Gap(gap))
    }

    fn forget(&mut self, topic: &TopicName) {
        self.waiting.remove(topic);
        if let Some(values) = &mut self.values {
            values.remove(topic);
        }
    }

    fn take_whole(&mut self, topic: TopicName, sequence: Sequence, held: Held) -> Vec<Whole> {
        if let Some(waiting) = self.waiting.get_mut(&topic) {
            let first = waiting.first_key_value().map(|(first, _)| *first);
            if first.is_some_and(|first| first < sequence) {
                waiting.insert(sequence, held);
                return vec![];
            }
        }
        vec![self.finish(topic, sequence, held)]
    }

    /// Takes a first piece: of the same publication it starts over.
    fn begin(&mut self, topic: &TopicName, sequence: Sequence, kind: PayloadKind, total: u64) {
        let waiting = self.waiting.entry(topic.clone()).or_default();
        waiting.insert(sequence, Held::Partial { kind, total, payload: Vec::new() });
    }

    fn take_piece(
        &mut self,
        topic: TopicName,
        sequence: Sequence,
        offset: u64,
        bytes: &[u8],
    ) -> Vec<Whole> {
        let waiting = self.waiting.get_mut(&topic);
        let Some(Held::Partial { payload, total, .. }) =
            waiting.and_then(|waiting| waiting.get_mut(&sequence))
        else {
            // The rest of something that nobody waits for any more.
            return vec![];
        };
        if payload.len() as u64 != offset || *total > PARTIAL_BYTES_MAX {
            self.forget(&topic);
            return vec![Whole::Broken(topic)];
        }
        payload.extend_from_slice(bytes);
        self.release(topic)
    }

    /// Hands out what does not have to wait any more.
    fn release(&mut self, topic: TopicName) -> Vec<Whole> {
        let Some(mut waiting) = self.waiting.remove(&topic) else { return vec![] };
        let mut released = Vec::new();
        while let Some(first) = waiting.first_entry() {
            if !first.get().is_whole() {
                self.waiting.insert(topic, waiting);
                return released;
            }
            let (sequence, held) = first.remove_entry();
            let whole = self.finish(topic.clone(), sequence, held);
            let is_broken = matches!(whole, Whole::Broken(_));
            released.push(whole);
            if is_broken {
                return released;
            }
        }
        released
    }

    fn finish(&mut self, topic: TopicName, sequence: Sequence, held: Held) -> Whole {
        let (kind, payload) = match held {
            Held::Gap(gap) => return Whole::Gap(gap),
            Held::Publication(kind, payload) | Held::Partial { kind, payload, .. } => {
                (kind, payload)
            }
            Held::Delta(difference) => match self.apply(&topic, &difference) {
                Some(payload) => (difference.kind, payload),
                None => {
                    self.forget(&topic);
                    return Whole::Broken(topic);
                }
            },
        };
        if let Some(values) = &mut self.values {
            values.insert(topic.clone(), (sequence, payload.clone()));
        }
        Whole::Publication { topic, sequence, kind, payload }
    }

    fn apply(&self, topic: &TopicName, difference: &Difference) -> Option<Vec<u8>> {
        let Difference { base, delta, crc, bytes, .. } = difference;
        let (known, value) = self.values.as_ref()?.get(topic)?;
        (known == base).then(|| apply(*delta, value, bytes, *crc).ok()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use model::Limits;

    use super::*;

    fn sequence(number: u64) -> Sequence {
        Sequence::new(number).expect("small")
    }

    fn payloads() -> Payloads {
        let mut payloads = Payloads::default();
        payloads.handle_topic(&topic(0, "e1"));
        payloads
    }

    fn topic(start: u64, epoch: &str) -> SubscribedTopic {
        SubscribedTopic {
            subscriptions: vec![],
            topic: TopicName::parse("a", &Limits::default()).expect("valid"),
            number: 7,
            epoch: Epoch::new(epoch),
            head: sequence(start),
            start: sequence(start),
            recovered: None,
        }
    }

    fn publication(sequence: SequenceRef, payload: &[u8]) -> ServerRecord<'_> {
        let (topic, kind, payload) =
            (TopicRef::Number(7), PayloadKind::Text, Cow::Borrowed(payload));
        let extras = protocol::native::Extras::default();
        ServerRecord::Publication { topic, sequence, kind, payload, extras }
    }

    fn piece(at: u64, total: u64, offset: u64, bytes: &'static [u8]) -> ServerRecord<'static> {
        let (topic, sequence, kind) = (TopicRef::Number(7), sequence(at), PayloadKind::Text);
        let (bytes, extras) = (bytes.into(), protocol::native::Extras::default());
        ServerRecord::Fragment { topic, sequence, kind, total, offset, bytes, extras }
    }

    /// The sequences and texts of what is whole; a broken topic is 0.
    fn texts(whole: Vec<Whole>) -> Vec<(u64, String)> {
        let text = |whole| match whole {
            Whole::Publication { sequence, payload, .. } => {
                (sequence.get(), String::from_utf8(payload).expect("text"))
            }
            Whole::Gap(gap) => (gap.to.get(), "gap".into()),
            Whole::Broken(_) => (0, "broken".into()),
        };
        whole.into_iter().map(text).collect()
    }

    fn check(payloads: &mut Payloads, record: ServerRecord<'_>, expected: &[(u64, &str)]) {
        let found = texts(payloads.take(record));
        let found: Vec<(u64, &str)> =
            found.iter().map(|(sequence, text)| (*sequence, &**text)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn low_bits_follow_what_was_told_last_also_when_it_starts_again_further_back() {
        let mut payloads = payloads();
        let full = |number| SequenceRef::Full(sequence(number));
        check(&mut payloads, publication(full(65_534), b"a"), &[(65_534, "a")]);
        check(&mut payloads, publication(SequenceRef::Low(65_535), b"b"), &[(65_535, "b")]);
        check(&mut payloads, publication(SequenceRef::Low(0), b"c"), &[(65_536, "c")]);
        payloads.handle_topic(&topic(3, "e1"));
        check(&mut payloads, publication(SequenceRef::Low(1), b"d"), &[(65_537, "d")]);
        check(&mut payloads, publication(full(4), b"again"), &[(4, "again")]);
        check(&mut payloads, publication(SequenceRef::Low(5), b"e"), &[(5, "e")]);
    }

    #[test]
    fn what_follows_an_unfinished_publication_waits_for_it() {
        let mut payloads = payloads();
        check(&mut payloads, piece(1, 6, 0, b"abc"), &[]);
        check(&mut payloads, publication(SequenceRef::Low(2), b"x"), &[]);
        assert!(payloads.is_unfinished(&topic(0, "e1").topic));
        check(&mut payloads, piece(1, 6, 3, b"def"), &[(1, "abcdef"), (2, "x")]);
        check(&mut payloads, piece(3, 6, 0, b"abc"), &[]);
        check(&mut payloads, piece(3, 6, 4, b"x"), &[(0, "broken")]);
        check(&mut payloads, piece(3, 6, 5, b"x"), &[]);
    }

    #[test]
    fn a_delta_makes_what_was_published_or_is_noticed() {
        let mut payloads = payloads();
        payloads.expect_deltas();
        let base = "the quick brown fox jumps over the lazy dog, again and again and again";
        let next = base.replace("fox", "cat");
        let made = payload::delta::make(DeltaKind::Vcdiff, base.as_bytes(), next.as_bytes());
        let made = made.expect("it is smaller");
        let delta = |base: u64, at: u64| ServerRecord::Delta {
            topic: TopicRef::Number(7),
            sequence: sequence(at),
            base: sequence(base),
            kind: PayloadKind::Text,
            delta: DeltaKind::Vcdiff,
            crc: made.crc,
            bytes: Cow::Borrowed(&made.bytes),
            extras: protocol::native::Extras::default(),
        };
        check(&mut payloads, publication(SequenceRef::Low(1), base.as_bytes()), &[(1, base)]);
        check(&mut payloads, delta(1, 2), &[(2, &next)]);
        check(&mut payloads, delta(1, 3), &[(0, "broken")]);
        check(&mut payloads, delta(2, 3), &[(0, "broken")]);
    }

    #[test]
    fn a_number_that_is_given_again_is_of_the_topic_that_it_was_given_to_last() {
        let mut payloads = payloads();
        check(&mut payloads, publication(SequenceRef::Full(sequence(5)), b"a"), &[(5, "a")]);
        let name = TopicName::parse("b", &Limits::default()).expect("valid");
        payloads.handle_topic(&SubscribedTopic { topic: name.clone(), ..topic(2, "e1") });
        let whole = payloads.take(publication(SequenceRef::Low(3), b"x"));
        let [Whole::Publication { topic, sequence, .. }] = &whole[..] else { panic!("{whole:?}") };
        assert_eq!((topic, sequence.get()), (&name, 3));
    }

    #[test]
    fn a_new_epoch_drops_what_was_unfinished() {
        let mut payloads = payloads();
        check(&mut payloads, piece(1, 6, 0, b"abc"), &[]);
        payloads.handle_topic(&topic(0, "e2"));
        check(&mut payloads, publication(SequenceRef::Low(1), b"new"), &[(1, "new")]);
    }
}
