//! The shard's recent deliveries, numbered in the order in which all its readers get them.

use std::collections::VecDeque;

use model::{Publication, Sequence};

use crate::tables::index::TopicIndex;
use crate::topics::conflation_keys::EntityIndex;

/// One delivery: what happened in which topic.
#[derive(Clone, Debug)]
pub(crate) struct Delivery {
    pub topic: TopicIndex,
    /// What it is about, where the topic has a conflation key.
    pub entity: EntityIndex,
    /// The number of the topic's last publication or loss before it, whether or not that is still here.
    pub previous: u64,
    pub what: What,
}

/// What readers of a topic are told.
#[derive(Clone, Debug)]
pub(crate) enum What {
    Publication(Publication),
    /// The topic came into being: readers by pattern learn its name and number.
    /// Its first sequence comes after `start`.
    Announcement {
        start: Sequence,
    },
    /// The topic's numbering goes on in another epoch, after `at`.
    Epoch {
        at: Sequence,
    },
    /// The shard itself lost some publications of it.
    Lost(Box<Lost>),
}

/// The publications after `after`, the last of them being `to`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lost {
    pub after: Sequence,
    pub to: Sequence,
}

impl What {
    /// The sequence that a reader stands at once it was told.
    pub(crate) fn through(&self) -> Sequence {
        match self {
            Self::Publication(publication) => publication.sequence(),
            // It concerns who is yet to be told the first publication.
            Self::Announcement { start } => start.next(),
            Self::Epoch { at } => *at,
            Self::Lost(lost) => lost.to,
        }
    }

    /// The sequence at which a reader stood before it.
    pub(crate) fn sequence_before(&self) -> Sequence {
        match self {
            Self::Publication(publication) => publication.previous(),
            Self::Announcement { start } => *start,
            Self::Epoch { at } => *at,
            Self::Lost(lost) => lost.after,
        }
    }

    fn payload_bytes(&self) -> usize {
        match self {
            Self::Publication(publication) => publication.kept_bytes(),
            Self::Announcement { .. } | Self::Epoch { .. } | Self::Lost(_) => 0,
        }
    }
}

/// The newest deliveries, bounded by count and by the payload bytes that they keep alive.
#[derive(Debug)]
pub(crate) struct RecentDeliveries {
    /// Number of the newest delivery; 0 before any.
    newest: u64,
    recent: VecDeque<Delivery>,
    bytes: usize,
    count_max: usize,
    bytes_max: usize,
}

impl RecentDeliveries {
    pub(crate) fn new(count_max: usize, bytes_max: usize) -> Self {
        Self { newest: 0, recent: VecDeque::new(), bytes: 0, count_max, bytes_max }
    }

    /// Appends a delivery and answers with its number.
    pub(crate) fn push(&mut self, delivery: Delivery) -> u64 {
        self.bytes += delivery.what.payload_bytes();
        self.recent.push_back(delivery);
        self.newest += 1;
        while self.recent.len() > self.count_max
            || (self.bytes > self.bytes_max && self.recent.len() > 1)
        {
            if let Some(oldest) = self.recent.pop_front() {
                self.bytes -= oldest.what.payload_bytes();
            }
        }
        self.newest
    }

    /// Forgets all deliveries, not their numbers: nobody reads behind the newest.
    pub(crate) fn forget(&mut self) {
        const KEPT: usize = 1024;
        self.recent.clear();
        self.recent.shrink_to(KEPT);
        self.bytes = 0;
    }

    pub(crate) fn newest(&self) -> u64 {
        self.newest
    }

    /// Number of the oldest that is still here; one more than the newest if none is.
    pub(crate) fn oldest(&self) -> u64 {
        self.newest + 1 - self.recent.len() as u64
    }

    /// Payload bytes that they keep alive.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Forgets the oldest until at most so many payload bytes are kept alive.
    pub(crate) fn shrink_to(&mut self, bytes_max: usize) {
        while self.bytes > bytes_max
            && let Some(oldest) = self.recent.pop_front()
        {
            self.bytes -= oldest.what.payload_bytes();
        }
    }

    /// Whether everything after `number` is still here.
    pub(crate) fn reaches_back_to(&self, number: u64) -> bool {
        number + 1 + self.recent.len() as u64 > self.newest
    }

    pub(crate) fn get(&self, number: u64) -> Option<&Delivery> {
        let before_oldest = self.newest - self.recent.len() as u64;
        let index = number.checked_sub(before_oldest + 1)?;
        self.recent.get(usize::try_from(index).ok()?)
    }

    /// The publications and losses of a topic that are here, the newest first, if `newest` is the number of the last.
    pub(crate) fn of_topic(
        &self,
        topic: TopicIndex,
        newest: u64,
    ) -> impl Iterator<Item = (u64, &Delivery)> {
        let mut next = newest;
        std::iter::from_fn(move || {
            let (number, delivery) = (next, self.get(next)?);
            next = delivery.previous;
            (delivery.topic == topic).then_some((number, delivery))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use crate::tables::index::Slot;

    /// Knowing the one before takes no room: what a shard lost is rare, and has a place of its own.
    #[test]
    fn a_delivery_has_forty_bytes() {
        assert_eq!((size_of::<What>(), size_of::<Delivery>()), (16, 40));
    }

    #[test]
    fn numbers_outlive_what_is_dropped() {
        let mut recent = RecentDeliveries::new(3, 1000);
        let topic = |place| TopicIndex(Slot::of(place, NonZeroU32::MIN));
        for place in 1..=5 {
            let what = What::Announcement { start: Sequence::START };
            let (entity, previous) = (EntityIndex::NONE, 0);
            let number = recent.push(Delivery { topic: topic(place), entity, previous, what });
            assert_eq!(number, u64::from(place));
        }
        assert!(recent.reaches_back_to(2) && !recent.reaches_back_to(1));
        assert!(recent.get(2).is_none() && recent.get(6).is_none());
        assert_eq!(recent.get(3).map(|delivery| delivery.topic), Some(topic(3)));
        assert_eq!(recent.get(5).map(|delivery| delivery.topic), Some(topic(5)));
    }
}
