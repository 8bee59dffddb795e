//! Pages of publications that are fetched from the store for one session.

use std::collections::VecDeque;

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

/// Publications in a page.
const PAGE_LEN: usize = 256;

/// Pages that sessions need and the store was not asked for yet.
#[derive(Debug, Default)]
pub(crate) struct PageRequests {
    wanted: VecDeque<PageWanted>,
    /// How many were asked for.
    asked: u64,
}

impl PageRequests {
    /// Asks for the publications of a topic after `after`; answers the page that awaits them.
    pub(crate) fn ask(
        &mut self,
        session: SessionIndex,
        topic: (TopicIndex, TopicName),
        after: Sequence,
    ) -> Page {
        self.asked += 1;
        let (page, (index, name)) = (PageTicket { session, serial: self.asked }, topic);
        self.wanted.push_back(PageWanted { page, topic: name, after, count: PAGE_LEN });
        Page { topic: index, serial: self.asked, asked_after: after, publications: None }
    }

    /// The next page to be asked for.
    pub(crate) fn pop(&mut self) -> Option<PageWanted> {
        self.wanted.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use crate::tables::index::Slot;

    #[test]
    fn a_page_that_comes_late_is_not_taken_for_the_next() {
        let slot = Slot::of(1, NonZeroU32::MIN);
        let name = TopicName::parse("a", &model::Limits::default()).expect("valid");
        let mut requests = PageRequests::default();
        let mut ask =
            || requests.ask(SessionIndex(slot), (TopicIndex(slot), name.clone()), Sequence::START);
        let (first, second) = (ask(), ask());
        let tickets = [requests.pop(), requests.pop()].map(|it| it.expect("asked for").page.serial);
        assert_eq!(tickets, [first.serial, second.serial]);
        assert!(first.serial != second.serial && requests.pop().is_none());
    }
}
