//! The positions, gaps and repetitions of the topics that a subscription reads. Pure.
//!
//! A gap is the authority, a new epoch starts over, and what was taken before and comes again is dropped by
//! its sequence.

use std::collections::HashMap;

use model::{
    Epoch, Gap, GapReason, PayloadKind, Position, RandomState, Sequence, Start, SubscribedTopic,
    TopicName,
};

use crate::errors::ClientError;

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
    /// Gaps up to here are of no interest: the subscription joined another that had read so far.
    quiet_through: Sequence,
    /// It has to be told that reading goes on.
    is_resuming: bool,
    /// The server is told of it later: until then it may be read from further on.
    is_late: bool,
    /// The server said where it reads from for this subscription. Earlier updates are for others.
    is_described: bool,
}

impl Place {
    fn new(at: Position, head: Sequence) -> Self {
        let quiet_through = Sequence::START;
        let (wants_snapshot, is_resuming) = (false, false);
        let (is_late, is_described) = (false, true);
        Self { at, head, wants_snapshot, quiet_through, is_resuming, is_late, is_described }
    }
}

/// Follows the positions of one subscription's topics, across connections.
#[derive(Debug, Default)]
pub(crate) struct Tracker {
    places: HashMap<TopicName, Place, RandomState>,
    wants_snapshots: bool,
    wants_all: bool,
}

impl Tracker {
    /// A tracker that resumes from `positions`.
    pub(crate) fn new(start: &Start, positions: &[(TopicName, Position)]) -> Self {
        let resumed = |(topic, at): &(TopicName, Position)| {
            let place = Place::new(at.clone(), Sequence::START);
            let place = Place { is_resuming: true, is_described: false, ..place };
            (topic.clone(), place)
        };
        let places = positions.iter().map(resumed).collect();
        let (wants_snapshots, wants_all) = (*start == Start::Snapshot, *start == Start::All);
        Self { places, wants_snapshots, wants_all }
    }

    /// Where it is in `topic`.
    pub(crate) fn position(&self, topic: &TopicName) -> Option<&Position> {
        self.places.get(topic).map(|place| &place.at)
    }

    /// Where it is in a topic of which the server said from where it reads it.
    pub(crate) fn described(&self, topic: &TopicName) -> Option<&Position> {
        self.places.get(topic).filter(|place| place.is_described).map(|place| &place.at)
    }

    /// Those of which the server is yet to say that.
    pub(crate) fn undescribed(&self) -> impl Iterator<Item = (&TopicName, &Position)> {
        let places = self.places.iter().filter(|(_, place)| !place.is_described);
        places.map(|(topic, place)| (topic, &place.at))
    }

    /// Where it is in each topic.
    pub(crate) fn positions(&self) -> impl Iterator<Item = (&TopicName, &Position)> {
        self.places.iter().map(|(topic, place)| (topic, &place.at))
    }

    /// Notes that the connection is gone: every topic has to be resumed, and what comes into being meanwhile
    /// is news.
    pub(crate) fn handle_disconnect(&mut self) {
        (self.wants_snapshots, self.wants_all) = (false, true);
        for place in self.places.values_mut() {
            (place.is_resuming, place.wants_snapshot) = (true, false);
        }
    }

    /// Notes that the server is asked to read from these places: each is described anew.
    pub(crate) fn handle_asked(&mut self) {
        for place in self.places.values_mut() {
            (place.is_described, place.is_late) = (false, false);
        }
    }

    /// Notes that the server is told of some places later: until then it does not read from there.
    pub(crate) fn handle_later(&mut self, topics: &[TopicName]) {
        for topic in topics {
            if let Some(place) = self.places.get_mut(topic) {
                place.is_late = true;
            }
        }
    }

    /// Whether it is before `start` in what it reads of a topic. `knows_all` says that it knows all topics that there
    /// were when it began: of others it has nothing.
    pub(crate) fn is_before(&self, topic: &SubscribedTopic, knows_all: bool) -> bool {
        let SubscribedTopic { topic: name, epoch, start, .. } = topic;
        match self.places.get(name) {
            None => knows_all && *start > Sequence::START,
            Some(place) => {
                place.is_described && place.at.epoch == *epoch && place.at.sequence < *start
            }
        }
    }

    /// Notes that a topic is to be read from where this one is, of which it may know nothing yet.
    pub(crate) fn handle_overtaken(&mut self, topic: &SubscribedTopic) {
        let at = Position { epoch: topic.epoch.clone(), sequence: Sequence::START };
        self.places
            .entry(topic.topic.clone())
            .or_insert_with(|| Place { is_described: false, ..Place::new(at, Sequence::START) });
    }

    /// Joins a reader that is at `theirs`, from `start`: what that one has no interest in is no gap here.
    pub(crate) fn join(&mut self, topic: &TopicName, theirs: &Position, start: Sequence) {
        let at = Position { epoch: theirs.epoch.clone(), sequence: start };
        let place = Place {
            wants_snapshot: self.wants_snapshots,
            quiet_through: theirs.sequence,
            is_described: false,
            ..Place::new(at, theirs.sequence)
        };
        self.places.insert(topic.clone(), place);
    }

    /// Takes the place where the server starts to read a topic. `is_unfinished` says that pieces are still
    /// to come of something that the server counts as told.
    pub(crate) fn handle_topic(
        &mut self,
        topic: &SubscribedTopic,
        is_unfinished: bool,
    ) -> Vec<Notification> {
        let SubscribedTopic { topic: name, number, epoch, head, start, recovered, .. } = topic;
        let begun = Position { epoch: epoch.clone(), sequence: *start };
        let Some(place) = self.places.get_mut(name) else {
            // Where nothing is to come but news, the first of it is no snapshot, even if the topic is described again
            // before.
            let wants_snapshot = self.wants_snapshots && start < head;
            // If it is resumed for another, and not whole, a gap says what is not there.
            let is_gap_to_come = self.wants_all && *recovered == Some(false);
            let sequence = if is_gap_to_come { Sequence::START } else { *start };
            let begun = Position { sequence, ..begun };
            let place = Place { wants_snapshot, ..Place::new(begun.clone(), *head) };
            self.places.insert(name.clone(), place);
            return vec![Notification::Placed { topic: name.clone(), at: begun }];
        };
        let is_beyond = place.at.epoch == *epoch && *start > place.at.sequence;
        if place.is_late && recovered.is_none() && is_beyond {
            return vec![];
        }
        place.is_late = false;
        let was_described = std::mem::replace(&mut place.is_described, true);
        let is_lost = *recovered == Some(false);
        // A server that lost what it once told starts anew as well, whatever it calls its epoch.
        let is_anew = place.at.epoch != *epoch || (is_lost && *head < place.at.sequence);
        let mut told = Vec::new();
        if std::mem::take(&mut place.is_resuming) {
            let known = if is_anew { Sequence::START } else { place.at.sequence };
            let (recovered, missed) = (!is_anew && !is_lost, head.count_after(known));
            told.push(Notification::Resumed { topic: name.clone(), recovered, missed });
        }
        if is_anew {
            *place = Place::new(begun, *head);
            let (number, epoch, reason) = (*number, epoch.clone(), GapReason::Epoch);
            let gap = Gap { topic: name.clone(), number, epoch, from: None, to: *start, reason };
            told.push(Notification::Gap(gap));
        } else {
            place.head = place.head.max(*head);
            let is_beyond = *start > place.at.sequence;
            if is_beyond && !was_described && !is_lost {
                // Not from where it was asked for, and the server does not say why.
                let from = Some(place.at.sequence.next());
                let (number, epoch, reason) = (*number, epoch.clone(), GapReason::History);
                place.at.sequence = *start;
                told.push(Notification::Gap(Gap {
                    topic: name.clone(),
                    number,
                    epoch,
                    from,
                    to: *start,
                    reason,
                }));
            } else {
                // If something is lost in between, a gap says so.
                let moves = is_beyond && !is_unfinished && !is_lost;
                if moves {
                    place.at.sequence = *start;
                }
                if moves || !was_described {
                    told.push(Notification::Placed { topic: name.clone(), at: place.at.clone() });
                }
            }
        }
        told
    }

    /// Takes the place from which a topic is read for others too, unless that is beyond where it was asked for.
    pub(crate) fn handle_noted(
        &mut self,
        topic: &SubscribedTopic,
        is_unfinished: bool,
    ) -> Vec<Notification> {
        let is_beyond = self
            .places
            .get(&topic.topic)
            .is_some_and(|place| place.at.epoch == topic.epoch && topic.start > place.at.sequence);
        if is_beyond && topic.recovered != Some(false) {
            return vec![];
        }
        self.handle_topic(topic, is_unfinished)
    }

    /// Takes a gap. It moves the position, also after `recovered` was true.
    pub(crate) fn handle_gap(&mut self, gap: &Gap) -> Option<Notification> {
        let place = self.places.get_mut(&gap.topic).filter(|place| place.is_described)?;
        if place.at.epoch != gap.epoch {
            let at = Position { epoch: gap.epoch.clone(), sequence: gap.to };
            *place = Place { is_resuming: place.is_resuming, ..Place::new(at, Sequence::START) };
            return Some(Notification::Gap(Gap { from: None, ..gap.clone() }));
        }
        if gap.to <= place.at.sequence {
            return None;
        }
        let from = gap.from.unwrap_or_default().max(place.at.sequence.next());
        place.at.sequence = gap.to;
        let is_news = gap.to > place.quiet_through;
        is_news.then(|| Notification::Gap(Gap { from: Some(from), ..gap.clone() }))
    }

    /// Takes a publication; one that was taken before means nothing. `payload` is asked for if it is told.
    pub(crate) fn handle_publication(
        &mut self,
        topic: &TopicName,
        sequence: Sequence,
        kind: PayloadKind,
        payload: impl FnOnce() -> Vec<u8>,
    ) -> Option<Notification> {
        let place = self.places.get_mut(topic).filter(|place| place.is_described)?;
        if sequence <= place.at.sequence {
            return None;
        }
        place.at.sequence = sequence;
        let is_snapshot = std::mem::take(&mut place.wants_snapshot) && sequence <= place.head;
        let (topic, epoch, payload) = (topic.clone(), place.at.epoch.clone(), payload());
        Some(Notification::Message(Message { topic, epoch, sequence, kind, payload, is_snapshot }))
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
        let told =
            tracker.handle_publication(&name(), sequence(number), PayloadKind::Text, Vec::new);
        told.map(|told| matches!(told, Notification::Message(message) if message.is_snapshot))
    }

    #[test]
    fn the_value_there_was_is_a_snapshot_and_comes_once() {
        let mut tracker = Tracker::new(&Start::Snapshot, &[]);
        tracker.handle_topic(&topic("e", 4, 5, None), false);
        assert_eq!(publication(&mut tracker, 5), Some(true));
        assert_eq!(publication(&mut tracker, 5), None);
        assert_eq!(publication(&mut tracker, 6), Some(false));
        tracker.handle_disconnect();
        let told = tracker.handle_topic(&topic("e", 6, 8, Some(true)), false);
        assert!(matches!(told[..], [Notification::Resumed { recovered: true, missed: 2, .. }]));
        assert_eq!(publication(&mut tracker, 7), Some(false), "what is missed is news");
    }

    #[test]
    fn news_is_no_snapshot_because_its_topic_was_described_again_before() {
        let mut tracker = Tracker::new(&Start::Snapshot, &[]);
        tracker.handle_topic(&topic("e", 0, 0, None), false);
        tracker.handle_topic(&topic("e", 0, 2, None), false);
        assert_eq!(publication(&mut tracker, 1), Some(false));
    }

    #[test]
    fn a_new_epoch_is_told_once() {
        let mut tracker = Tracker::default();
        tracker.handle_topic(&topic("e1", 9, 9, None), false);
        tracker.handle_disconnect();
        let told = tracker.handle_topic(&topic("e2", 0, 3, Some(false)), false);
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
        tracker.handle_topic(&topic("e", 2, 9, None), false);
        let (epoch, reason) = (Epoch::new("e"), GapReason::Lagged);
        let gap = Gap { topic: name(), number: 7, epoch, from: None, to: sequence(5), reason };
        let told = tracker.handle_gap(&gap);
        assert!(matches!(told, Some(Notification::Gap(gap)) if gap.from == Some(sequence(3))));
        assert_eq!(publication(&mut tracker, 5), None);
    }

    #[test]
    fn a_start_beyond_pieces_that_are_still_to_come_moves_nothing() {
        let mut tracker = Tracker::default();
        tracker.handle_topic(&topic("e", 2, 2, None), false);
        tracker.handle_topic(&topic("e", 3, 3, None), true);
        assert_eq!(publication(&mut tracker, 3), Some(false));
    }

    #[test]
    fn what_is_described_from_beyond_where_it_was_asked_for_is_a_gap() {
        let mut tracker = Tracker::default();
        tracker.handle_topic(&topic("e", 5, 5, None), false);
        tracker.handle_asked();
        let told = tracker.handle_topic(&topic("e", 7, 9, None), false);
        let [Notification::Gap(gap)] = &told[..] else { panic!("{told:?}") };
        assert_eq!((gap.from, gap.to), (Some(sequence(6)), sequence(7)));
    }
}
