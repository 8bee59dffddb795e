//! Who waits for its shard to catch up, and which homes were asked.

use model::HashMap;
use model::Sequence;

use crate::tables::index::{SessionIndex, TopicIndex};

/// Sessions that wait, by the topic that they are ahead in, each with where it stands there.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    pub(crate) waiting: HashMap<TopicIndex, Vec<Waiting>>,
    /// Those that waited for a whole tick already.
    pub(crate) waited: HashMap<TopicIndex, Vec<Waiting>>,
    /// The topics whose homes were asked, by the number of the question, with those who wait for the answer.
    pub(crate) asked: HashMap<u64, (TopicIndex, Vec<Waiting>)>,
    /// The numbers of the questions since the last tick, by topic.
    pub(crate) questions: HashMap<TopicIndex, u64>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) session: SessionIndex,
    pub(crate) through: Sequence,
}

impl Ahead {
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.waited.is_empty()
    }
}
