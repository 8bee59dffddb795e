//! The positions, gaps and repetitions of the topics that a subscription reads. Pure.
//!
//! A gap is the authority, a new epoch starts over, and what was taken before and comes again is dropped by
//! its sequence.

use std::collections::HashMap;

use model::{
    Epoch, Gap, GapReason, Headers, PayloadKind, Position, RandomState, Sequence, Start,
    SubscribedTopic, TopicName,
};

use crate::errors::ClientError;
use crate::payloads::Stated;

/// A publication as a subscriber gets it.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Where it was published.
    pub topic: TopicName,
    /// The life of the numbering.
    pub epoch: Epoch,
    /// Its place in that.
    pub sequence: Sequence,
    /// The kind of the payload.
    pub kind: PayloadKind,
    /// The payload.
    pub payload: Vec<u8>,
    /// Whether it is the value that the topic had when the subscription began.
    pub is_snapshot: bool,
    /// The sequence before it in the topic; [`Sequence::START`] if there was none, or nobody knows.
    pub previous: Sequence,
    /// Names and values beside the payload.
    pub headers: Headers<'static>,
    /// When it was published, in milliseconds since 1970, if that was asked for.
    pub time_ms: Option<u64>,
    /// The principal that published it, if that was asked for and the topic's policy has it recorded.
    pub principal: Option<Box<str>>,
}

impl Message {
    /// Its place: "I have everything up to here."
    pub fn position(&self) -> Position {
        Position { epoch: self.epoch.clone(), sequence: self.sequence }
    }
}

/// An update of a subscription.
#[derive(Clone, Debug, PartialEq)]
pub enum Notification {
    /// The next publication of its topic.
    Message(Message),
    /// Publications that cannot be had any more. `from` is there unless the numbering began anew.
    Gap(Gap),
    /// A topic is read on from where it was left.
    Resumed {
        /// Which topic.
        topic: TopicName,
        /// Whether everything after that follows; a gap comes first if not.
        recovered: bool,
        /// How many were published meanwhile, as far as the server kept count.
        missed: u64,
    },
    /// All that was published when it was asked for, also again after a break, was told.
    Complete,
    /// The server ended the subscription.
    Ended(ClientError),
    /// There is nothing to be told of a topic up to here. Only positions depend on it.
    Placed {
        /// Which topic.
        topic: TopicName,
        /// Where reading goes on.
        at: Position,
    },
}

/// Where a subscription is in one topic.
#[derive(Debug)]
struct Place {
    at: Position,
    /// The newest when reading began: up to here it is the snapshot, if one was asked for.
    head: Sequence,
    wants_snapshot: bool,
    /// It has to be told that reading goes on.
    is_resuming: bool,
}

impl Place {
    fn new(at: Position, head: Sequence) -> Self {
        Self { at, head, wants_snapshot: false, is_resuming: false }
    }
}

/// Follows the positions of one subscription's topics, across connections.
#[derive(Debug, Default)]
pub(crate) struct Tracker {
    places: HashMap<TopicName, Place, RandomState>,
    wants_snapshots: bool,
}

impl Tracker {
    /// A tracker that resumes from `positions`.
    pub(crate) fn new(start: &Start, positions: &[(TopicName, Position)]) -> Self {
        let resumed = |(topic, at): &(TopicName, Position)| {
            let place = Place::new(at.clone(), Sequence::START);
            (topic.clone(), Place { is_resuming: true, ..place })
        };
        let places = positions.iter().map(resumed).collect();
        Self { places, wants_snapshots: *start == Start::Snapshot }
    }

    /// Where it is in `topic`.
    pub(crate) fn position(&self, topic: &TopicName) -> Option<&Position> {
        self.places.get(topic).map(|place| &place.at)
    }

    /// Where it is in each topic.
    pub(crate) fn positions(&self) -> impl Iterator<Item = (&TopicName, &Position)> {
        self.places.iter().map(|(topic, place)| (topic, &place.at))
    }

    /// Notes that the connection is gone: every topic has to be resumed, and what comes into being meanwhile
    /// is news.
    pub(crate) fn handle_disconnect(&mut self) {
        self.wants_snapshots = false;
        for place in self.places.values_mut() {
            (place.is_resuming, place.wants_snapshot) = (true, false);
        }
    }

    /// Whether it has a place in the topic, of this numbering and before where it is said to begin.
    pub(crate) fn is_before(&self, topic: &SubscribedTopic) -> bool {
        let place = self.places.get(&topic.topic);
        place.is_some_and(|place| place.at.epoch == topic.epoch && place.at.sequence < topic.start)
    }

    /// Takes the description of a topic; if `is_new`, the place where it begins to be told, or goes on.
    pub(crate) fn handle_topic(
        &mut self,
        topic: &SubscribedTopic,
        is_new: bool,
    ) -> Vec<Notification> {
        let SubscribedTopic { topic: name, number, epoch, head, start, recovered, .. } = topic;
        let begun = Position { epoch: epoch.clone(), sequence: *start };
        let Some(place) = self.places.get_mut(name) else {
            // Where nothing is to come but news, the first of it is no snapshot.
            let wants_snapshot = self.wants_snapshots && start < head;
            let place = Place { wants_snapshot, ..Place::new(begun.clone(), *head) };
            self.places.insert(name.clone(), place);
            return vec![Notification::Placed { topic: name.clone(), at: begun }];
        };
        let is_lost = is_new && *recovered == Some(false);
        // A server that lost what it once told starts anew as well, whatever it calls its epoch.
        let is_anew = place.at.epoch != *epoch || (is_lost && *head < place.at.sequence);
        let mut told = Vec::new();
        if std::mem::take(&mut place.is_resuming) {
            let known = if is_anew { Sequence::START } else { place.at.sequence };
            let (recovered, missed) = (!is_anew && !is_lost, head.count_after(known));
            told.push(Notification::Resumed { topic: name.clone(), recovered, missed });
        }
        let gap = |from, reason| {
            let (topic, number, epoch, to) = (name.clone(), *number, epoch.clone(), *start);
            Notification::Gap(Gap { topic, number, epoch, from, to, reason })
        };
        if is_anew {
            *place = Place::new(begun, *head);
            told.push(gap(None, GapReason::Epoch));
        } else if is_new {
            place.head = place.head.max(*head);
            if *start <= place.at.sequence || is_lost {
                // If something is lost before it, a gap says so.
                told.push(Notification::Placed { topic: name.clone(), at: place.at.clone() });
            } else {
                // Not from where it was asked for.
                told.push(gap(Some(place.at.sequence.next()), GapReason::History));
                place.at.sequence = *start;
            }
        }
        told
    }

    /// Takes a gap. It moves the position, also after `recovered` was true.
    pub(crate) fn handle_gap(&mut self, gap: &Gap) -> Option<Notification> {
        let place = self.places.get_mut(&gap.topic)?;
        if place.at.epoch != gap.epoch {
            let at = Position { epoch: gap.epoch.clone(), sequence: gap.to };
            *place = Place::new(at, Sequence::START);
            return Some(Notification::Gap(Gap { from: None, ..gap.clone() }));
        }
        if gap.to <= place.at.sequence {
            return None;
        }
        let from = gap.from.unwrap_or_default().max(place.at.sequence.next());
        place.at.sequence = gap.to;
        Some(Notification::Gap(Gap { from: Some(from), ..gap.clone() }))
    }

    /// Takes a publication; one that was taken before means nothing. Its payload and what is said of it are asked for if it
    /// is told.
    pub(crate) fn handle_publication(
        &mut self,
        topic: &TopicName,
        sequence: Sequence,
        kind: PayloadKind,
        rest: impl FnOnce() -> (Vec<u8>, Stated),
    ) -> Option<Notification> {
        let place = self.places.get_mut(topic)?;
        if sequence <= place.at.sequence {
            return None;
        }
        place.at.sequence = sequence;
        let is_snapshot = std::mem::take(&mut place.wants_snapshot) && sequence <= place.head;
        let (topic, epoch) = (topic.clone(), place.at.epoch.clone());
        let (payload, Stated { previous, headers, time_ms, principal }) = rest();
        Some(Notification::Message(Message {
            topic,
            epoch,
            sequence,
            kind,
            payload,
            is_snapshot,
            previous,
            headers,
            time_ms,
            principal,
        }))
    }
}

#[cfg(test)]
mod tests {
    use model::Limits;

    use super::*;

    fn sequence(number: u64) -> Sequence {
        Sequence::new(number).expect("small")
    }

    fn name() -> TopicName {
        TopicName::parse("a", &Limits::default()).expect("valid")
    }

    fn topic(epoch: &str, start: u64, head: u64, recovered: Option<bool>) -> SubscribedTopic {
        let (start, head) = (sequence(start), sequence(head));
        SubscribedTopic {
            subscriptions: vec![],
            topic: name(),
            number: 7,
            epoch: Epoch::new(epoch),
            head,
            start,
            recovered,
        }
    }

    fn publication(tracker: &mut Tracker, number: u64) -> Option<bool> {
        let told = tracker.handle_publication(
            &name(),
            sequence(number),
            PayloadKind::Text,
            Default::default,
        );
        told.map(|told| matches!(told, Notification::Message(message) if message.is_snapshot))
    }

    #[test]
    fn the_value_there_was_is_a_snapshot_and_comes_once() {
        let mut tracker = Tracker::new(&Start::Snapshot, &[]);
        tracker.handle_topic(&topic("e", 4, 5, None), true);
        assert_eq!(publication(&mut tracker, 5), Some(true));
        assert_eq!(publication(&mut tracker, 5), None);
        assert_eq!(publication(&mut tracker, 6), Some(false));
        tracker.handle_disconnect();
        let told = tracker.handle_topic(&topic("e", 6, 8, Some(true)), true);
        assert!(matches!(
            told[..],
            [Notification::Resumed { recovered: true, missed: 2, .. }, Notification::Placed { .. }]
        ));
        assert_eq!(publication(&mut tracker, 7), Some(false), "what is missed is news");
    }

    #[test]
    fn news_is_no_snapshot_because_its_topic_was_described_again_before() {
        let mut tracker = Tracker::new(&Start::Snapshot, &[]);
        tracker.handle_topic(&topic("e", 0, 0, None), true);
        tracker.handle_topic(&topic("e", 0, 2, None), false);
        assert_eq!(publication(&mut tracker, 1), Some(false));
    }

    #[test]
    fn a_new_epoch_is_told_once() {
        let mut tracker = Tracker::default();
        tracker.handle_topic(&topic("e1", 9, 9, None), true);
        tracker.handle_disconnect();
        let told = tracker.handle_topic(&topic("e2", 0, 3, Some(false)), true);
        let [Notification::Resumed { recovered: false, missed: 3, .. }, Notification::Gap(gap)] =
            &told[..]
        else {
            panic!("{told:?}");
        };
        assert_eq!((gap.from, gap.to, gap.reason), (None, Sequence::START, GapReason::Epoch));
        assert_eq!(tracker.handle_gap(gap), None);
        assert_eq!(publication(&mut tracker, 1), Some(false));
    }

    #[test]
    fn a_gap_moves_the_position_and_says_where_it_begins() {
        let mut tracker = Tracker::default();
        tracker.handle_topic(&topic("e", 2, 9, None), true);
        let (epoch, reason) = (Epoch::new("e"), GapReason::Lagged);
        let gap = Gap { topic: name(), number: 7, epoch, from: None, to: sequence(5), reason };
        let told = tracker.handle_gap(&gap);
        assert!(matches!(told, Some(Notification::Gap(gap)) if gap.from == Some(sequence(3))));
        assert_eq!(publication(&mut tracker, 5), None);
    }

    #[test]
    fn what_is_described_for_others_moves_nothing() {
        let mut tracker = Tracker::default();
        tracker.handle_topic(&topic("e", 2, 2, None), true);
        tracker.handle_topic(&topic("e", 3, 3, None), false);
        assert_eq!(publication(&mut tracker, 3), Some(false));
    }

    #[test]
    fn what_is_described_from_beyond_where_it_was_asked_for_is_a_gap() {
        let mut tracker = Tracker::default();
        tracker.handle_topic(&topic("e", 5, 5, None), true);
        let told = tracker.handle_topic(&topic("e", 7, 9, Some(true)), true);
        let [Notification::Gap(gap)] = &told[..] else { panic!("{told:?}") };
        assert_eq!((gap.from, gap.to), (Some(sequence(6)), sequence(7)));
    }
}
