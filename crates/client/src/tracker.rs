//! What a client knows of the topics it reads: positions, numbers, gaps. Pure.

use std::collections::HashMap;

use model::{
    Epoch, Event, Gap, GapReason, PayloadKind, Position, Sequence, SubscribedTopic, TopicName,
};
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
    /// Nothing new.
    Nothing,
}

/// Follows the positions of all topics of one client, across connections.
#[derive(Debug, Default)]
pub struct Tracker {
    numbers: HashMap<u32, TopicName>,
    positions: HashMap<TopicName, Position>,
}

impl Tracker {
    /// Forgets what was of the connection that ended; positions stay.
    pub fn handle_disconnect(&mut self) {
        self.numbers.clear();
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
                let topic = match topic {
                    TopicRef::Number(number) => self.numbers.get(&number).cloned(),
                    TopicRef::Name(name) => {
                        self.positions.get_key_value(&*name).map(|(known, _)| known.clone())
                    }
                };
                let Some(topic) = topic else { return vec![] };
                let Some(position) = self.positions.get_mut(&topic) else { return vec![] };
                let Some(sequence) = sequence.resolve(position.sequence) else { return vec![] };
                if sequence <= position.sequence {
                    return vec![];
                }
                position.sequence = sequence;
                let (epoch, payload) = (position.epoch.clone(), payload.into_owned());
                vec![Told::Message(Message { topic, epoch, sequence, kind, payload })]
            }
            _ => vec![],
        }
    }

    fn start(&mut self, topic: SubscribedTopic) -> Told {
        let SubscribedTopic { topic: name, number, epoch, start, recovered, .. } = topic;
        self.numbers.insert(number, name.clone());
        let known = self.positions.get(&name).filter(|known| known.epoch == epoch);
        // What was taken before and comes again is dropped by its sequence.
        let sequence = known.map_or(start, |known| known.sequence.max(start));
        self.positions.insert(name.clone(), Position { epoch, sequence });
        match recovered {
            Some(recovered) => Told::Resumed { topic: name, recovered },
            None => Told::Nothing,
        }
    }

    fn take_gap(&mut self, gap: Gap) -> Told {
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
    }
}
