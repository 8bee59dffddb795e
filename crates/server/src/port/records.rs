//! What bridges are to be told, by number. To the hub the names of these records are the bytes of messages.
//!
//! The hub drops bytes in many places (a batch that everybody has, a session that ends), and says so to nobody. So a record is
//! kept until no bytes that are still to be sent name it; that is looked up when nothing is under way, or when there are many.

use hub::Record;
use model::{Event, HashMap, HashSet, Publication, TopicName};

/// Bytes of a record's name: its number, and what it costs.
const NAME_BYTES: usize = 16;

/// The name of a record, as it stands in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    pub number: u64,
    /// The payload's bytes, of what is told only to whoever gave credit.
    pub payload_bytes: Option<usize>,
}

impl Name {
    fn append(self, out: &mut Vec<u8>) {
        let cost = self.payload_bytes.map_or(0, |bytes| 1 + bytes as u64);
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&cost.to_le_bytes());
    }

    /// The names in a message, or in several.
    pub(crate) fn all(bytes: &[u8]) -> impl Iterator<Item = Self> {
        bytes.as_chunks::<NAME_BYTES>().0.iter().map(|name| {
            let (number, cost) = name.split_at(8);
            let read = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
            let payload_bytes = read(cost).checked_sub(1).map(|bytes| bytes as usize);
            Self { number: read(number), payload_bytes }
        })
    }

    /// So many bytes of a message are so many names.
    pub(crate) fn bytes(count: usize) -> usize {
        count * NAME_BYTES
    }
}

/// One thing to tell.
#[derive(Clone, Debug)]
pub(crate) enum Recorded {
    Publication { topic: TopicName, number: u32, publication: Publication },
    Event(Event),
}

impl Recorded {
    fn of(record: Record<'_>) -> Self {
        match record {
            // Bridges ask neither for deltas nor for pieces.
            Record::Publication { topic, number, publication, .. }
            | Record::Delta { topic, number, publication, .. }
            | Record::Fragment { topic, number, publication, .. } => {
                Self::Publication { topic: topic.clone(), number, publication: publication.clone() }
            }
            Record::Topic(topic) => Self::Event(Event::Topic(topic.clone())),
            Record::Event(event) => Self::Event(event.clone()),
        }
    }

    /// The payload's bytes, of what only credit lets through. Answers need none: whoever waits for one may have to hear it
    /// before it can give credit.
    fn payload_bytes(&self) -> Option<usize> {
        match self {
            Self::Publication { publication, .. } => Some(publication.kept_bytes()),
            Self::Event(Event::Gap(_)) => Some(0),
            Self::Event(_) => None,
        }
    }
}

/// The records that somebody may still have to be told.
#[derive(Debug, Default)]
pub(crate) struct Records {
    all: HashMap<u64, Recorded>,
    payload_bytes: usize,
    next: u64,
    /// How many were needed when that was last looked up, and the bytes of their payloads.
    needed: (usize, usize),
}

impl Records {
    /// Records beyond those that were needed, and payload bytes, after which it is looked up which still are.
    const SPARE: (usize, usize) = (1_024, 1 << 20);

    /// Keeps a record, and appends its name.
    pub(crate) fn append(&mut self, record: Record<'_>, out: &mut Vec<u8>) {
        let recorded = Recorded::of(record);
        let payload_bytes = recorded.payload_bytes();
        self.payload_bytes += payload_bytes.unwrap_or(0);
        Name { number: self.next, payload_bytes }.append(out);
        self.all.insert(self.next, recorded);
        self.next += 1;
    }

    pub(crate) fn get(&self, name: Name) -> Option<&Recorded> {
        self.all.get(&name.number)
    }

    /// Whether it is to be looked up which are needed.
    pub(crate) fn are_many(&self, is_anything_under_way: bool) -> bool {
        let (count, bytes) = self.needed;
        let is_over = self.all.len() >= 2 * count + Self::SPARE.0
            || self.payload_bytes >= 2 * bytes + Self::SPARE.1;
        !self.all.is_empty() && (!is_anything_under_way || is_over)
    }

    /// Forgets all that are not named any more.
    pub(crate) fn keep(&mut self, named: &HashSet<u64>) {
        if named.is_empty() {
            self.all.clear();
            self.all.shrink_to(Self::SPARE.0);
        } else {
            self.all.retain(|number, _| named.contains(number));
        }
        self.payload_bytes = self.all.values().filter_map(Recorded::payload_bytes).sum();
        self.needed = (self.all.len(), self.payload_bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hub::Form;
    use model::{CommandId, Limits, Moment, Payload, PayloadKind, Sequence};

    use super::*;

    fn append(records: &mut Records, bytes: usize) -> Name {
        let topic = TopicName::parse("a", &Limits::default()).expect("valid");
        let payload = Payload::new(PayloadKind::Bytes, &vec![0; bytes]);
        let now = Moment { elapsed: Duration::ZERO, unix_ms: 0 };
        let publication = &Publication::new(payload, Sequence::START.next(), now);
        let (number, form, compress) = (0, Form::Full, false);
        let mut message = Vec::new();
        let record = Record::Publication {
            topic: &topic,
            number,
            publication,
            form,
            compress,
            stamps: model::Stamps::default(),
        };
        records.append(record, &mut message);
        assert_eq!(message.len(), Name::bytes(1));
        Name::all(&message).next().expect("one")
    }

    #[test]
    fn a_name_says_what_its_record_costs() {
        let mut records = Records::default();
        let empty = append(&mut records, 0);
        let large = append(&mut records, 1 << 33 >> 10);
        assert_eq!((empty.payload_bytes, large.payload_bytes), (Some(0), Some(1 << 23)));
        let mut message = Vec::new();
        let answer = Event::Acknowledged { id: Some(CommandId(7)) };
        records.append(Record::Event(&answer), &mut message);
        let name = Name::all(&message).next().expect("one");
        assert_eq!(name.payload_bytes, None, "whoever waits for it may have no credit");
        assert!(matches!(records.get(name), Some(Recorded::Event(known)) if *known == answer));
    }

    #[test]
    fn what_nothing_names_is_forgotten_and_its_bytes_are_bounded() {
        let mut records = Records::default();
        assert!(!records.are_many(false), "there is nothing to look up");
        let kept = append(&mut records, 10);
        assert!(records.are_many(false) && !records.are_many(true));
        for _ in 0..1_022 {
            append(&mut records, 10);
        }
        assert!(!records.are_many(true));
        append(&mut records, 10);
        assert!(records.are_many(true), "by number");
        records.keep(&[kept.number].into_iter().collect());
        assert!(records.get(kept).is_some() && records.all.len() == 1);
        assert!(!records.are_many(true));
        append(&mut records, 2 << 20);
        assert!(records.are_many(true), "by bytes");
        records.keep(&HashSet::default());
        assert!(records.all.is_empty() && records.payload_bytes == 0);
    }
}
