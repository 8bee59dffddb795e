//! What the recent deliveries have of one topic. They may reach further back than its history, and no gap is told for
//! what is there.

use std::collections::VecDeque;

use model::planted::{Fault, is_planted};
use model::{GapReason, Publication, Sequence};

use crate::hub::Hub;
use crate::sending::encoder::Encoder;
use crate::tables::index::TopicIndex;
use crate::topics::delivery::{Delivery, What};
use crate::topics::history::Place;

/// Publications looked up in one go, so that what is remembered of a walk stays small.
const PIECE: usize = 1_024;

/// Some publications of a topic, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Piece<'a> {
    pub publications: VecDeque<&'a Publication>,
    /// Whether there are more of them.
    pub has_more: bool,
    /// How many deliveries were looked at.
    pub steps: usize,
}

impl<E: Encoder> Hub<E> {
    /// The publications and losses of a topic among the recent deliveries, the newest first, with their numbers.
    fn recent_of(&self, topic: TopicIndex) -> impl Iterator<Item = (u64, &Delivery)> {
        let newest = match is_planted(Fault::RingIsNotAsked) {
            true => 0,
            false => self.topics.at(topic).newest_delivery,
        };
        let recent = self.deliveries.of_topic(topic, newest);
        recent.inspect(|_| self.note_work(1))
    }

    fn recent_publications(&self, topic: TopicIndex) -> impl Iterator<Item = &Publication> {
        self.recent_of(topic).filter_map(|(_, delivery)| match &delivery.what {
            What::Publication(publication) => Some(publication),
            _ => None,
        })
    }

    /// The first of the publications of a topic after `after`, through `through`, that are among the recent deliveries.
    pub(crate) fn recent_between(
        &self,
        topic: TopicIndex,
        after: Sequence,
        through: Sequence,
    ) -> Piece<'_> {
        let mut piece = Piece::default();
        for publication in self.recent_publications(topic) {
            piece.steps += 1;
            if publication.sequence() <= after {
                break;
            }
            if publication.sequence() > through {
                continue;
            }
            piece.publications.push_front(publication);
            if piece.publications.len() > PIECE {
                piece.publications.pop_back();
                piece.has_more = true;
            }
        }
        piece
    }

    /// The publication at `sequence`, if it is among the recent deliveries.
    pub(crate) fn recent_at(&self, topic: TopicIndex, sequence: Sequence) -> Option<&Publication> {
        let mut recent = self.recent_publications(topic).skip_while(|it| it.sequence() > sequence);
        recent.next().filter(|it| it.sequence() == sequence)
    }

    /// Whether every publication after `after`, through `through`, is among the recent deliveries.
    pub(crate) fn has_recent(&self, topic: TopicIndex, after: Sequence, through: Sequence) -> bool {
        let mut lacking = through;
        let recent = self.recent_publications(topic).skip_while(|it| it.sequence() > through);
        for publication in recent {
            if lacking <= after || publication.sequence() != lacking {
                break;
            }
            lacking = publication.previous();
        }
        lacking <= after
    }

    /// Everything after this can be had of a topic: it is kept, or among the recent deliveries. Where only the value is kept
    /// nobody expects what it replaced.
    pub(crate) fn had_after(&self, index: TopicIndex) -> Sequence {
        let topic = self.topics.at(index);
        let mut after = self.kept_after(topic);
        if self.policy(topic.policy).history_count <= 1 {
            return after;
        }
        for publication in self.recent_publications(index) {
            if publication.sequence() < after {
                break;
            }
            if publication.sequence() == after {
                after = publication.previous();
            }
        }
        after
    }

    /// Where a reader stands that took everything up to `cursor`, if the history says `place`.
    pub(crate) fn place_among_recent(&self, topic: TopicIndex, cursor: u64, place: Place) -> Place {
        let Place::Lost(to) = place else { return place };
        let lacking = self.recent_of(topic).take_while(|(number, _)| *number > cursor);
        match lacking.last() {
            Some((_, first)) if first.previous <= cursor => {
                Place::After(first.what.sequence_before())
            }
            Some((_, first)) => Place::Lost(first.what.sequence_before().min(to)),
            None => place,
        }
    }

    /// After which sequence the publications since `unix_ms` come, of those through `kept_after`, which the history
    /// does not keep; and why some of them cannot be had, if so.
    pub(crate) fn since_among_recent(
        &self,
        topic: TopicIndex,
        unix_ms: u64,
        kept_after: Sequence,
        reason: GapReason,
    ) -> (Sequence, Option<GapReason>) {
        let mut after = kept_after;
        for publication in self.recent_publications(topic) {
            if publication.sequence() > kept_after {
                continue;
            }
            if publication.unix_ms() < unix_ms {
                return (publication.sequence(), None);
            }
            after = publication.previous();
        }
        (after, (after > Sequence::START).then_some(reason))
    }
}
