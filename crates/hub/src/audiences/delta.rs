//! Deltas: the difference of two publications, made once for all who are sent it.
//!
//! An audience with deltas remembers, per topic, the last publication that its batches told, and in which
//! delivery. A member in step since before that delivery has it for sure and is sent the delta; one that
//! stepped in later is sent the whole value, once.

use std::sync::Arc;

use model::planted::{Fault, is_planted};
use model::{DeltaKind, HashMap, Publication, Sequence};

use crate::tables::index::TopicIndex;

/// What makes a publication of an earlier one.
#[derive(Debug)]
pub struct Delta {
    /// The sequence of the earlier one.
    pub base: Sequence,
    /// How the difference is told.
    pub kind: DeltaKind,
    /// The difference.
    pub bytes: Box<[u8]>,
    /// The check of what it makes.
    pub crc: u32,
}

/// What the batches of one audience told last.
#[derive(Debug, Default)]
pub(crate) struct Bases {
    by_topic: HashMap<TopicIndex, Base>,
}

#[derive(Debug)]
struct Base {
    delivery: u64,
    publication: Publication,
}

impl Bases {
    /// Notes that `publication` was told in `delivery`; answers what was told before, and in which.
    pub(crate) fn replace(
        &mut self,
        topic: TopicIndex,
        delivery: u64,
        publication: &Publication,
    ) -> Option<(u64, Publication)> {
        let base = Base { delivery, publication: publication.clone() };
        let before = self.by_topic.insert(topic, base)?;
        Some((before.delivery, before.publication))
    }

    /// Forgets what was told of a topic.
    pub(crate) fn forget(&mut self, topic: TopicIndex) {
        self.by_topic.remove(&topic);
    }
}

/// Of what a delta was made: topic, base, next, kind.
type MadeOf = (TopicIndex, Sequence, Sequence, DeltaKind);

/// Deltas made lately, found again by the other audiences of a flush.
#[derive(Debug, Default)]
pub(crate) struct MadeDeltas {
    /// `None` where it is not worth it.
    made: HashMap<MadeOf, Option<Arc<Delta>>>,
}

impl MadeDeltas {
    /// More than a flush needs: what is forgotten is only made again.
    const COUNT_MAX: usize = 4_096;

    /// The delta from `base` to `next`, made by `make` if nobody did yet; `None` if it is not worth it.
    pub(crate) fn find_or_make(
        &mut self,
        topic: TopicIndex,
        base: &Publication,
        next: &Publication,
        kind: DeltaKind,
        make: impl FnOnce() -> Option<(Box<[u8]>, u32)>,
    ) -> Option<Arc<Delta>> {
        if self.made.len() >= Self::COUNT_MAX {
            self.made.clear();
        }
        let (base, next) = (base.sequence(), next.sequence());
        let topic = if is_planted(Fault::DeltaOfAnotherTopic) { topic.of_place() } else { topic };
        let made = self.made.entry((topic, base, next, kind)).or_insert_with(|| {
            make().map(|(bytes, crc)| Arc::new(Delta { base, kind, bytes, crc }))
        });
        made.clone()
    }

    pub(crate) fn clear(&mut self) {
        self.made.clear();
    }
}
