//! Whole publications of what comes: numbers become names, pieces are put together, deltas applied. Pure.
//!
//! It stands before the subscriptions: bases and what is not finished are of a reading, which has a number, not of one
//! reader. Whatever comes after an unfinished publication waits for it. docs/protocol.md#deltas,
//! docs/protocol.md#fragments, docs/protocol.md#binary-dialect.

use std::collections::{BTreeMap, HashMap};

use model::{
    DeltaKind, Epoch, Gap, GapReason, Headers, PayloadKind, RandomState, Sequence, SubscribedTopic,
    TopicName,
};
use payload::delta::apply;
use protocol::native::{Extras, ServerRecord, TopicRef};

/// An update, in its place.
#[derive(Debug, PartialEq)]
pub(crate) enum Whole {
    /// A publication.
    Publication {
        topic: TopicName,
        sequence: Sequence,
        kind: PayloadKind,
        payload: Vec<u8>,
        stated: Stated,
    },
    /// Publications that cannot be had.
    Gap(Gap),
    /// A publication could not be made of what came: its reading has to be asked for again, whole.
    Broken,
}

/// The members of a publication beside its place and its payload.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Stated {
    pub(crate) previous: Sequence,
    pub(crate) headers: Headers<'static>,
    pub(crate) time_ms: Option<u64>,
    pub(crate) principal: Option<Box<str>>,
}

impl Stated {
    /// Of the publication at `sequence`, on a connection that was told `last` before it.
    fn of(extras: Extras<'_>, sequence: Sequence, last: Sequence) -> Self {
        Self {
            previous: extras.previous.resolve(sequence, last),
            headers: extras.headers.map(Headers::into_owned).unwrap_or_default(),
            time_ms: extras.time_ms,
            principal: extras.principal.map(|principal| principal.into()),
        }
    }
}

/// A reading as this connection knows it.
#[derive(Debug)]
struct Known {
    name: TopicName,
    epoch: Epoch,
    /// The last sequence that was told, for those that are told by their low bits.
    last: Sequence,
    /// Updates behind an incomplete publication.
    waiting: Waiting,
    /// The last payload, while deltas may come.
    value: Option<(Sequence, Vec<u8>)>,
}

/// Updates that wait behind an incomplete publication, by sequence (of a gap: its last).
type Waiting = BTreeMap<Sequence, Held>;

#[derive(Debug)]
enum Held {
    /// A publication of which pieces are to come.
    Partial {
        kind: PayloadKind,
        total: u64,
        payload: Vec<u8>,
        stated: Stated,
    },
    Publication(PayloadKind, Vec<u8>, Stated),
    Delta(Difference, Stated),
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
    readings: HashMap<u32, Known, RandomState>,
    /// Numbers of topics, for records that name these (JSON without ids).
    numbers: HashMap<TopicName, u32, RandomState>,
    /// Deltas may come.
    keeps_values: bool,
}

impl Payloads {
    /// Keeps the last payload of each reading from now on.
    pub(crate) fn expect_deltas(&mut self) {
        self.keeps_values = true;
    }

    /// Takes what a number stands for. A start before what was told moves nothing: what comes again is told by its whole
    /// sequence.
    pub(crate) fn handle_topic(&mut self, topic: &SubscribedTopic) {
        let SubscribedTopic { topic: name, number, epoch, start, .. } = topic;
        match self.readings.get_mut(number) {
            Some(known) if known.epoch == *epoch && known.name == *name => {
                known.last = known.last.max(*start);
            }
            _ => {
                let (name, epoch, last) = (name.clone(), epoch.clone(), *start);
                self.numbers.insert(name.clone(), *number);
                let known = Known { name, epoch, last, waiting: Waiting::new(), value: None };
                self.readings.insert(*number, known);
            }
        }
    }

    /// Forgets a reading: nobody is told what comes of it.
    pub(crate) fn forget(&mut self, number: u32) {
        if let Some(known) = self.readings.remove(&number)
            && self.numbers.get(&known.name) == Some(&number)
        {
            self.numbers.remove(&known.name);
        }
    }

    /// Incomplete publications after `start` come again, from the beginning. Its pieces that are still on their way are of
    /// the reading before, and would stand before what comes first.
    pub(crate) fn restart(&mut self, number: u32, start: Sequence) {
        if let Some(known) = self.readings.get_mut(&number) {
            known.waiting.retain(|sequence, _| *sequence <= start);
        }
    }

    /// Takes a publication, delta, piece or gap; answers of which reading it is, and what is whole now, in order.
    pub(crate) fn take(&mut self, record: ServerRecord<'_>) -> Option<(u32, Vec<Whole>)> {
        let keeps_values = self.keeps_values;
        match record {
            ServerRecord::Event(model::Event::Gap(gap)) => {
                let (number, known) = self.known(&TopicRef::Number(gap.number))?;
                Some((number, known.take_whole(gap.to, Held::Gap(gap), keeps_values)))
            }
            ServerRecord::Fragment { topic, sequence, kind, total, offset, bytes, extras } => {
                let (number, known) = self.known(&topic)?;
                if offset == 0 {
                    let stated = Stated::of(extras, sequence, known.last);
                    let held = Held::Partial { kind, total, payload: Vec::new(), stated };
                    known.waiting.insert(sequence, held);
                }
                known.last = sequence;
                Some((number, known.take_piece(sequence, offset, &bytes, keeps_values)))
            }
            ServerRecord::Publication { topic, sequence, kind, payload, extras } => {
                let (number, known) = self.known(&topic)?;
                let sequence = sequence.resolve(known.last)?;
                let stated = Stated::of(extras, sequence, known.last);
                let held = Held::Publication(kind, payload.into_owned(), stated);
                Some((number, known.take_whole(sequence, held, keeps_values)))
            }
            ServerRecord::Delta { topic, sequence, base, kind, delta, crc, bytes, extras } => {
                let (number, known) = self.known(&topic)?;
                let stated = Stated::of(extras, sequence, known.last);
                let bytes = bytes.into_owned();
                let difference = Difference { base, kind, delta, crc, bytes };
                let held = Held::Delta(difference, stated);
                Some((number, known.take_whole(sequence, held, keeps_values)))
            }
            _ => None,
        }
    }

    fn known(&mut self, topic: &TopicRef<'_>) -> Option<(u32, &mut Known)> {
        let number = match topic {
            TopicRef::Number(number) => *number,
            TopicRef::Name(name) => *self.numbers.get(&**name)?,
        };
        self.readings.get_mut(&number).map(|known| (number, known))
    }
}

impl Known {
    fn take_whole(&mut self, sequence: Sequence, held: Held, keeps_value: bool) -> Vec<Whole> {
        self.last = sequence;
        if let Held::Gap(gap) = &held
            && (gap.reason == GapReason::Epoch || self.epoch != gap.epoch)
        {
            self.epoch = gap.epoch.clone();
            self.forget();
        }
        let first = self.waiting.first_key_value().map(|(first, _)| *first);
        if first.is_some_and(|first| first < sequence) {
            self.waiting.insert(sequence, held);
            return vec![];
        }
        vec![self.finish(sequence, held, keeps_value)]
    }

    fn take_piece(
        &mut self,
        sequence: Sequence,
        offset: u64,
        bytes: &[u8],
        keeps_value: bool,
    ) -> Vec<Whole> {
        let Some(Held::Partial { payload, total, .. }) = self.waiting.get_mut(&sequence) else {
            // The rest of something that nobody waits for any more.
            return vec![];
        };
        if payload.len() as u64 != offset || *total > PARTIAL_BYTES_MAX {
            self.forget();
            return vec![Whole::Broken];
        }
        payload.extend_from_slice(bytes);
        self.release(keeps_value)
    }

    /// Hands out what does not have to wait any more.
    fn release(&mut self, keeps_value: bool) -> Vec<Whole> {
        let mut released = Vec::new();
        while let Some(first) = self.waiting.first_entry() {
            if !first.get().is_whole() {
                break;
            }
            let (sequence, held) = first.remove_entry();
            released.push(self.finish(sequence, held, keeps_value));
        }
        released
    }

    fn finish(&mut self, sequence: Sequence, held: Held, keeps_value: bool) -> Whole {
        let (kind, payload, stated) = match held {
            Held::Gap(gap) => return Whole::Gap(gap),
            Held::Publication(kind, payload, stated)
            | Held::Partial { kind, payload, stated, .. } => (kind, payload, stated),
            Held::Delta(difference, stated) => match self.apply(&difference) {
                Some(payload) => (difference.kind, payload, stated),
                None => {
                    self.forget();
                    return Whole::Broken;
                }
            },
        };
        if keeps_value {
            self.value = Some((sequence, payload.clone()));
        }
        Whole::Publication { topic: self.name.clone(), sequence, kind, payload, stated }
    }

    fn apply(&self, difference: &Difference) -> Option<Vec<u8>> {
        let Difference { base, delta, crc, bytes, .. } = difference;
        let (known, value) = self.value.as_ref()?;
        (known == base).then(|| apply(*delta, value, bytes, *crc).ok()).flatten()
    }

    fn forget(&mut self) {
        self.waiting.clear();
        self.value = None;
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use model::Limits;
    use protocol::native::SequenceRef;

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
        let extras = Extras::default();
        ServerRecord::Publication { topic, sequence, kind, payload, extras }
    }

    fn piece(at: u64, total: u64, offset: u64, bytes: &'static [u8]) -> ServerRecord<'static> {
        let (topic, sequence, kind) = (TopicRef::Number(7), sequence(at), PayloadKind::Text);
        let (bytes, extras) = (bytes.into(), Extras::default());
        ServerRecord::Fragment { topic, sequence, kind, total, offset, bytes, extras }
    }

    /// The sequences and texts of what is whole; a broken topic is 0.
    fn texts(whole: Vec<Whole>) -> Vec<(u64, String)> {
        let text = |whole| match whole {
            Whole::Publication { sequence, payload, .. } => {
                (sequence.get(), String::from_utf8(payload).expect("text"))
            }
            Whole::Gap(gap) => (gap.to.get(), "gap".into()),
            Whole::Broken => (0, "broken".into()),
        };
        whole.into_iter().map(text).collect()
    }

    fn check(payloads: &mut Payloads, record: ServerRecord<'_>, expected: &[(u64, &str)]) {
        let whole = payloads.take(record).map_or_else(Vec::new, |(_, whole)| whole);
        let found = texts(whole);
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
            extras: Extras::default(),
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
        let (_, whole) =
            payloads.take(publication(SequenceRef::Low(3), b"x")).expect("it is known");
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
