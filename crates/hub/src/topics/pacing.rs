//! Topics with an interval: what comes too soon after the last is held back until its time.
//!
//! The home's followers and the history's readers are not kept waiting: only this shard's readers are.

use std::time::Duration;

use model::{Moment, Publication, Sequence};

use crate::hub::Hub;
use crate::sending::encoder::Encoder;
use crate::sending::timers::Timer;
use crate::tables::index::TopicIndex;
use crate::topics::pace::WITHHELD_MAX;
use crate::topics::topic::Topic;

impl Topic {
    /// The newest sequence that arrived here, told to readers or not.
    pub(crate) fn newest_known(&self) -> Sequence {
        self.withheld().last().map_or(self.head, Publication::sequence)
    }

    /// What has arrived and is held back, oldest first.
    pub(crate) fn withheld(&self) -> impl DoubleEndedIterator<Item = &Publication> {
        self.rare.iter().flat_map(|rare| rare.gate.withheld.iter())
    }
}

impl<E: Encoder> Hub<E> {
    /// Holds a publication back if the topic's interval is not over; gives it back otherwise.
    pub(crate) fn withhold(
        &mut self,
        index: TopicIndex,
        publication: Publication,
        now: Moment,
    ) -> Option<Publication> {
        let interval = self.policy(self.topics.at(index).policy).interval;
        if interval.is_zero() {
            return Some(publication);
        }
        let gate = &mut self.topics.at_mut(index).rare_mut().gate;
        if gate.opens_at.is_none() {
            self.close_gate(index, now.elapsed + interval);
            return Some(publication);
        }
        gate.withheld.push_back(publication);
        if gate.withheld.len() >= WITHHELD_MAX {
            self.release_withheld(index, now);
        }
        None
    }

    fn close_gate(&mut self, index: TopicIndex, opens_at: Duration) {
        self.topics.at_mut(index).rare_mut().gate.opens_at = Some(opens_at);
        self.timers.set(opens_at, Timer::Topic(index));
    }

    /// Hears that a topic's interval is over.
    pub(crate) fn open_gate(&mut self, index: TopicIndex, due: Duration, now: Moment) {
        let Some(topic) = self.topics.get_mut(index) else { return };
        let Some(rare) = &mut topic.rare else { return };
        if rare.gate.opens_at != Some(due) {
            return;
        }
        rare.gate.opens_at = None;
        if rare.gate.withheld.is_empty() {
            return;
        }
        self.counters.batches_held += 1;
        self.release_withheld(index, now);
        let interval = self.policy(self.topics.at(index).policy).interval;
        self.close_gate(index, now.elapsed + interval);
    }

    /// Delivers what was held back. Where the policy says `Conflation::Always`, each audience is told the
    /// newest of it that it accepts.
    pub(crate) fn release_withheld(&mut self, index: TopicIndex, now: Moment) {
        let Some(rare) = &mut self.topics.at_mut(index).rare else { return };
        for publication in std::mem::take(&mut rare.gate.withheld) {
            let entity = self.entity_of(index, &publication);
            self.tell_readers(index, publication, entity, now);
        }
    }
}
