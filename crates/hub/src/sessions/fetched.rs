//! Pages of publications that are fetched from the store for one session.

use model::planted::{Fault, is_planted};
use model::{Publication, Sequence, TopicName};

use crate::sessions::replay_queue::ReplayTopic;
use crate::tables::index::{SessionIndex, TopicIndex};

/// The hub's name for one page that it asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageTicket {
    pub(crate) session: SessionIndex,
    pub(crate) serial: u64,
}

/// Publications that a session needs from the store.
#[derive(Clone, Debug, PartialEq)]
pub struct PageWanted {
    /// To be given back with them.
    pub page: PageTicket,
    /// Which topic.
    pub topic: TopicName,
    /// After what.
    pub after: Sequence,
    /// At most so many.
    pub count: usize,
}

/// A page of the topic that a session reads afresh first.
#[derive(Debug)]
pub(crate) struct Page {
    pub topic: TopicIndex,
    pub(crate) serial: u64,
    /// The publications after this one were asked for.
    pub(crate) asked_after: Sequence,
    /// `None` until it arrives.
    pub publications: Option<Vec<Publication>>,
}

impl Page {
    /// Whether it was asked for to read on with `wanted`: the topic, and nothing left out before it.
    pub fn is_of(&self, wanted: &ReplayTopic) -> bool {
        if is_planted(Fault::PageOfAnotherTopic) {
            return self.topic.of_place() == wanted.topic.of_place();
        }
        self.topic == wanted.topic && self.asked_after <= wanted.after
    }

    /// Whether the store said that it keeps nothing after `after`.
    pub fn ends_at(&self, after: Sequence) -> bool {
        self.asked_after == after && self.publications.as_ref().is_some_and(Vec::is_empty)
    }

    /// Whether it has publications after `sequence`: all of the store before them is in it.
    pub fn reaches_beyond(&self, sequence: Sequence) -> bool {
        let last = self.publications.as_ref().and_then(|publications| publications.last());
        last.is_some_and(|last| last.sequence() > sequence)
    }

    /// The publication at `sequence`, if it is in this page.
    pub fn publication(&self, sequence: Sequence) -> Option<&Publication> {
        self.publications.as_ref()?.iter().find(|publication| publication.sequence() == sequence)
    }

    /// Whether another page must be fetched to read on after `after`.
    pub(crate) fn is_read(&self, after: Sequence) -> bool {
        let last = match &self.publications {
            None => return false,
            Some(publications) => {
                publications.last().map_or(self.asked_after, Publication::sequence)
            }
        };
        last <= after && !self.ends_at(after)
    }
}
