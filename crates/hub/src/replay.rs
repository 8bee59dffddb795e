//! Reading topics afresh, each from a sequence of its own: snapshots, resumes, long stalls.
//!
//! It exists only while it lasts. When every topic in it was read up to its head, the session goes
//! on with the shard's recent deliveries, in which `done` tells what it has already.

use std::collections::{HashMap, VecDeque};

use foldhash::fast::RandomState;
use model::{GapReason, Sequence};

use crate::index::TopicIndex;
use crate::page::Page;

/// The topics that a session reads afresh.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    pub todo: VecDeque<ReplayTopic>,
    /// How many of `todo`, from the front, are finished and wait for `drop_finished`.
    finished: usize,
    /// Topics that were read, and up to where.
    pub done: HashMap<TopicIndex, Sequence, RandomState>,
    /// The newest delivery when the last topic was read: what is older may be in `done`.
    pub done_at: u64,
    /// Some position in it may be ahead of this shard.
    pub is_ahead: bool,
    /// It waits until this shard has what it took already.
    pub is_parked: bool,
    /// What was fetched for the first of `todo`, where memory does not reach back.
    pub page: Option<Page>,
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
    /// Whether the session still has to be told the topic's name and number.
    pub announce: bool,
    /// Where it resumes: whether everything after its position follows. Told with the name.
    pub recovered: Option<bool>,
}

/// A gap of which the reader knows the start better than we do, if `from` is `None`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ReplayGap {
    pub from: Option<Sequence>,
    pub reason: GapReason,
}

impl Replay {
    /// Adds a topic, or restarts it if it is there already.
    pub(crate) fn add(&mut self, topic: ReplayTopic) {
        self.todo.retain(|known| known.topic != topic.topic);
        self.done.remove(&topic.topic);
        self.todo.push_back(topic);
    }

    /// Adds topics that are known not to be there yet.
    pub(crate) fn add_new(&mut self, topics: impl IntoIterator<Item = ReplayTopic>) {
        self.todo.extend(topics);
    }

    pub(crate) fn forget(&mut self, mut is_unwanted: impl FnMut(TopicIndex) -> bool) {
        self.todo.retain(|known| !is_unwanted(known.topic));
        self.done.retain(|topic, _| !is_unwanted(*topic));
    }

    /// Notes that the topic at `entry` was read up to `after`.
    pub(crate) fn advance(&mut self, entry: usize, after: Sequence, is_finished: bool) {
        let topic = &mut self.todo[entry];
        (topic.after, topic.gap, topic.announce) = (after, None, false);
        if is_finished {
            self.finished = entry + 1;
        }
    }

    /// Moves the topics that were read to their head to `done`.
    pub(crate) fn drop_finished(&mut self) {
        for topic in self.todo.drain(..std::mem::take(&mut self.finished)) {
            self.done.insert(topic.topic, topic.after);
        }
    }

    /// Whether nothing can be read before a page arrives.
    pub(crate) fn awaits_page(&self) -> bool {
        let first = self.todo.front().map(|wanted| wanted.topic);
        let page = self.page.as_ref().filter(|page| Some(page.topic) == first);
        page.is_some_and(|page| page.publications.is_none())
    }

    /// Whether `sequence` of `topic` was already read.
    pub(crate) fn has(&self, topic: TopicIndex, sequence: Sequence) -> bool {
        self.done.get(&topic).is_some_and(|through| sequence <= *through)
    }
}
