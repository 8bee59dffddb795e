//! The topics that a session is yet to read afresh, in order; each is found without a search, however many.

use std::collections::VecDeque;

use model::{GapReason, HashMap, Sequence};

use crate::tables::index::TopicIndex;
use crate::topics::topic::EpochIndex;

/// Topics to be read afresh, in order. One that is added again counts where it was added last: what was before stays in
/// the list, without meaning, until its turn comes.
#[derive(Debug, Default)]
pub(crate) struct Todo {
    list: VecDeque<ReplayTopic>,
    /// How many were taken from the front so far.
    taken: u64,
    /// Of each topic, the entry that counts: its index in the list and what was taken before.
    places: HashMap<TopicIndex, u64>,
}

impl Todo {
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// How many entries there are, with those that count no more.
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn front(&self) -> Option<&ReplayTopic> {
        self.list.front()
    }

    pub(crate) fn get(&self, entry: usize) -> Option<&ReplayTopic> {
        self.list.get(entry)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &ReplayTopic> {
        self.list.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut ReplayTopic> {
        self.list.iter_mut()
    }

    /// Whether a topic is to be read.
    pub(crate) fn contains(&self, topic: TopicIndex) -> bool {
        self.places.contains_key(&topic)
    }

    /// The entry that counts for a topic.
    pub(crate) fn find(&self, topic: TopicIndex) -> Option<&ReplayTopic> {
        self.list.get((self.places.get(&topic)? - self.taken) as usize)
    }

    /// Whether the entry is the one that counts for its topic.
    pub(crate) fn counts(&self, entry: usize) -> bool {
        let place = self.list.get(entry).and_then(|wanted| self.places.get(&wanted.topic));
        place == Some(&(self.taken + entry as u64))
    }

    /// Whether most entries count no more.
    pub(crate) fn is_mostly_void(&self) -> bool {
        const FEW: usize = 1_024;
        self.list.len() > 2 * self.places.len() + FEW
    }

    pub(crate) fn push(&mut self, wanted: ReplayTopic) {
        self.places.insert(wanted.topic, self.taken + self.list.len() as u64);
        self.list.push_back(wanted);
    }

    pub(crate) fn entry_mut(&mut self, entry: usize) -> &mut ReplayTopic {
        &mut self.list[entry]
    }

    /// Takes the entry out of those that count.
    pub(crate) fn drop_entry(&mut self, entry: usize) {
        if self.counts(entry) {
            self.places.remove(&self.list[entry].topic);
        }
    }

    /// Takes the first entry; of one that counts no more nothing is left.
    pub(crate) fn pop(&mut self) -> Option<Option<ReplayTopic>> {
        let counts = self.counts(0);
        let first = self.list.pop_front()?;
        self.taken += 1;
        if !counts {
            return Some(None);
        }
        self.places.remove(&first.topic);
        Some(Some(first))
    }
}

impl FromIterator<ReplayTopic> for Todo {
    fn from_iter<I: IntoIterator<Item = ReplayTopic>>(topics: I) -> Self {
        let mut todo = Self::default();
        topics.into_iter().for_each(|topic| todo.push(topic));
        todo
    }
}

/// One topic to be read afresh.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ReplayTopic {
    pub topic: TopicIndex,
    /// Everything up to here was taken, or is not wanted.
    pub after: Sequence,
    /// Of what came after this, a reader that conflates is told the newest only.
    pub conflates_after: Sequence,
    /// A gap known beforehand, to be told first; it ends at `after`.
    pub gap: Option<ReplayGap>,
    /// Why publications after `after` would be missing, should history not reach back to it.
    pub reason: GapReason,
    pub announce: Announce,
    /// Of which epoch the reader knows it to be.
    pub epoch: EpochIndex,
    /// Where it resumes: whether everything after its position follows. Told with the name.
    pub recovered: Option<bool>,
    /// Where the one begins to whom it is announced, if not at `after`: others read it, from before that.
    pub begins_after: Option<Sequence>,
}

impl ReplayTopic {
    /// A topic that a session reads on from `after`, where nothing is to be told first but the end of `epoch`, if that ended.
    pub(crate) fn going_on(topic: TopicIndex, after: Sequence, epoch: EpochIndex) -> Self {
        Self {
            topic,
            after,
            conflates_after: after,
            gap: None,
            reason: GapReason::Lagged,
            announce: Announce::No,
            epoch,
            recovered: None,
            begins_after: None,
        }
    }
}

/// Whether a session still has to be told a topic's name and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Announce {
    No,
    Yes,
    /// Once there is something in it, and if patterns of the session select it then: it was named when it was empty.
    WithTheFirst,
}

impl Announce {
    /// Of a topic that is named, whose newest publication is `head`.
    pub(crate) fn of_named(head: Sequence) -> Self {
        if head == Sequence::START { Self::WithTheFirst } else { Self::No }
    }
}

/// A gap of which the reader knows the start better than we do, if `from` is `None`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ReplayGap {
    pub from: Option<Sequence>,
    pub reason: GapReason,
}
