//! What is known of a change of epochs.

use model::HashMap;

use model::{Position, Sequence, TopicName};

use crate::tables::connections::ConnectionId;
use crate::tables::index::TopicIndex;
use crate::topics::topic::EpochIndex;

/// A position of a topic's own epoch that nobody was ever told in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beyond {
    /// The connection of the session that has it.
    pub link: ConnectionId,
    /// The topic.
    pub topic: TopicName,
    /// Where the topic stands.
    pub position: Position,
}

/// What is known of a change of epochs.
#[derive(Debug, Default)]
pub(crate) struct Renewal {
    pub(crate) beyond: Option<Beyond>,
    /// The epoch that ended, and the one that began.
    pub(crate) begun: Option<(EpochIndex, EpochIndex)>,
    /// The place of the topic at which changing over goes on.
    pub(crate) next: Option<u32>,
    /// The newest delivery when a topic here changed over last.
    pub(crate) told_at: u64,
    /// How often a topic here changed over.
    pub(crate) count: u64,
    /// Of topics that are followed here: the epoch before the present one, and the last sequence that was given in it.
    pub(crate) ended: HashMap<TopicIndex, (EpochIndex, Sequence)>,
}

impl Renewal {
    /// How often a topic here changed over.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Whether a sequence of a followed topic was given in `epoch`, which ended. Of an epoch before the last that is not known any more.
    pub(crate) fn was_given(&self, index: TopicIndex, epoch: EpochIndex, at: Sequence) -> bool {
        self.ended.get(&index).is_some_and(|(ended, last)| *ended == epoch && at <= *last)
    }

    /// Hears that a topic is not followed any more.
    pub(crate) fn forget(&mut self, index: TopicIndex) {
        self.ended.remove(&index);
    }
}
