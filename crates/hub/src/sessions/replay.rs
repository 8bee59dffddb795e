//! Reading topics afresh, each from a sequence of its own: snapshots, resumes, long stalls.
//!
//! It exists only while it lasts. When every topic in it was read up to its head, the session goes
//! on with the shard's recent deliveries, in which `done` tells what it has already.

use std::collections::VecDeque;

use model::{HashMap, Sequence, Start, SubscriptionId, TopicName};

use crate::sending::encoder::Progress;
use crate::sessions::fetched::Page;
use crate::sessions::replay_queue::{Announce, ReplayTopic, Todo};
use crate::sessions::topic_search::Rewinding;
use crate::tables::index::{AudienceIndex, TopicIndex};
use crate::topics::topic::EpochIndex;

/// The topics that a session reads afresh.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    pub todo: Todo,
    /// What is to be put behind `todo`, a piece in each turn; nothing is read meanwhile.
    adding: VecDeque<Todo>,
    /// Its topics that are looked for because it fell off the recent deliveries; these are not read meanwhile.
    pub rewinding: Vec<Rewinding>,
    /// How many of `todo`, from the front, are finished and wait for `drop_finished`.
    finished: usize,
    /// Topics that were read, and up to where.
    pub done: HashMap<TopicIndex, Sequence>,
    /// What is delivered up to this may be in `done`: the newest when the last topic was read, or when this shard had caught up
    /// with one that the session was ahead in.
    pub done_at: u64,
    /// Topics in which some position in it may be ahead of this shard.
    pub ahead: Vec<AheadIn>,
    /// How often topics had changed over to another epoch when these were last looked at.
    pub renewals_seen: u64,
    /// Topics are about to be taken from the session: of these nothing more is told.
    pub is_losing_topics: bool,
    /// It waits until this shard has what it took already.
    pub is_parked: bool,
    /// It was sent ahead in topics that it skips in, and has not read on in the recent deliveries since.
    pub has_skipped_ahead: bool,
    /// The subscriptions that are to be told when they are complete.
    pub completing: Vec<Completing>,
    /// What was fetched for the first of `todo`, where memory does not reach back.
    pub page: Option<Page>,
    /// Where `todo` is in order of name, for a reader that keeps no positions: what it has of the others.
    pub in_order: Option<Box<InOrder>>,
}

/// A subscription that is complete once everything up to a delivery was sent.
#[derive(Clone, Debug)]
pub(crate) struct Completing {
    pub subscription: SubscriptionId,
    /// The newest delivery when it was made.
    pub through: u64,
    /// What was under way in pieces when all else was sent, by number.
    pub pieces: Option<Vec<(u32, Sequence)>>,
}

/// The reading of topics in order of name, begun on this connection or on an earlier one, and gone on with where
/// that one was cut: from `first` to the greatest name, then from the least to `first`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InOrder {
    /// The topic that an earlier connection was at.
    pub first: Option<TopicName>,
    /// Of those before `first`, which earlier connections read, the reader has everything before this.
    passed_before_ms: u64,
    /// Of those that no connection came to it has everything before this ...
    unread_before_ms: u64,
    /// ... or nothing, and they start where it asked for.
    is_start_unread: bool,
    /// What is read on this connection is read to here at least.
    begun_ms: u64,
}

impl InOrder {
    /// The reading of topics from `start`, begun now.
    pub(crate) fn begin(start: &Start, now_ms: u64) -> Self {
        let begun = Self {
            first: None,
            passed_before_ms: now_ms,
            unread_before_ms: now_ms,
            is_start_unread: true,
            begun_ms: now_ms,
        };
        let Start::Resume(resume) = start else { return begun };
        match &resume.unread {
            None => {
                Self { unread_before_ms: resume.has_before_ms, is_start_unread: false, ..begun }
            }
            Some(unread) => Self {
                first: Some(unread.after.clone()),
                passed_before_ms: resume.has_before_ms,
                unread_before_ms: unread.has_before_ms,
                is_start_unread: unread.start.is_some(),
                ..begun
            },
        }
    }

    /// From where the reader could go on in `topic`.
    pub(crate) fn progress_in(&self, topic: &TopicName) -> Progress {
        let (has_before_ms, unread_before_ms, is_start_unread) = match &self.first {
            None => (self.begun_ms, self.unread_before_ms, self.is_start_unread),
            Some(first) if topic >= first => {
                (self.passed_before_ms, self.unread_before_ms, self.is_start_unread)
            }
            // All those that no connection had come to are read by now.
            Some(_) => (self.begun_ms, self.passed_before_ms, false),
        };
        Progress::Afresh { has_before_ms, unread_before_ms, is_start_unread }
    }
}

/// A topic in which a session may have more than this shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AheadIn {
    pub topic: TopicIndex,
    /// Of which epoch its position is.
    pub epoch: EpochIndex,
}

impl Replay {
    /// Adds topics, or restarts those that are there already; answers whether `go_on_adding` has to follow.
    pub(crate) fn add(&mut self, topics: Todo) -> bool {
        const FEW: usize = 256;
        if self.adding.is_empty() && self.todo.is_empty() {
            self.todo = topics;
            return false;
        }
        if self.adding.is_empty() && topics.len() <= FEW && !self.todo.is_mostly_void() {
            topics.iter().for_each(|topic| self.todo.push(*topic));
            return false;
        }
        let was_adding = !self.adding.is_empty();
        if !was_adding {
            self.adding.push_back(std::mem::take(&mut self.todo));
        }
        match self.adding.back_mut() {
            Some(last) if topics.len() <= FEW => topics.iter().for_each(|it| last.push(*it)),
            _ => self.adding.push_back(topics),
        }
        !was_adding
    }

    /// Adds one topic, or restarts it.
    pub(crate) fn add_one(&mut self, topic: ReplayTopic) {
        self.todo.push(topic);
    }

    /// Goes on with what is to be added; answers whether that is all.
    pub(crate) fn go_on_adding(&mut self, steps: &mut usize) -> bool {
        while let Some(mut topics) = self.adding.pop_front() {
            loop {
                if *steps == 0 {
                    self.adding.push_front(topics);
                    return false;
                }
                *steps -= 1;
                match topics.pop() {
                    None => break,
                    // What comes later restarts it.
                    Some(Some(topic)) if !self.adding.iter().any(|it| it.contains(topic.topic)) => {
                        self.todo.push(topic);
                    }
                    Some(_) => {}
                }
            }
        }
        true
    }

    /// Whether the topics of an audience are looked for.
    pub(crate) fn is_rewinding(&self, audience: AudienceIndex) -> bool {
        self.rewinding.iter().any(|rewinding| rewinding.audience == audience)
    }

    pub(crate) fn take_rewinding(&mut self, audience: AudienceIndex) -> Option<Rewinding> {
        let at = self.rewinding.iter().position(|rewinding| rewinding.audience == audience)?;
        Some(self.rewinding.swap_remove(at))
    }

    /// Whether topics are being added.
    pub(crate) fn is_adding(&self) -> bool {
        !self.adding.is_empty()
    }

    /// Whether something is to be read afresh, or may be: recent deliveries are not read on before.
    pub(crate) fn is_reading(&self) -> bool {
        !self.todo.is_empty() || self.is_adding() || !self.rewinding.is_empty()
    }

    /// What was fetched, or asked for, of `wanted`.
    pub(crate) fn page_of(&self, wanted: &ReplayTopic) -> Option<&Page> {
        self.page.as_ref().filter(|page| page.is_of(wanted))
    }

    /// Notes that the topic at `entry` was read up to `after`.
    pub(crate) fn advance(&mut self, entry: usize, after: Sequence, is_finished: bool) {
        let topic = self.todo.entry_mut(entry);
        (topic.after, topic.gap) = (after, None);
        if after > Sequence::START {
            topic.announce = Announce::No;
        }
        if is_finished {
            self.finished = entry + 1;
        }
    }

    /// Notes that the topic at `entry` is not to be read: it was restarted later, or is not subscribed any more.
    pub(crate) fn pass_by(&mut self, entry: usize) {
        self.todo.drop_entry(entry);
        self.finished = entry + 1;
    }

    /// Moves the topics that were read to their head to `done`.
    pub(crate) fn drop_finished(&mut self) {
        for _ in 0..std::mem::take(&mut self.finished) {
            let Some(Some(topic)) = self.todo.pop() else { continue };
            self.done.insert(topic.topic, topic.after);
            self.page = self.page.take().filter(|page| page.topic != topic.topic);
        }
        if self.todo.is_empty() && !self.is_adding() {
            self.in_order = None;
        }
    }

    /// Whether the session reads topics afresh, or did and is yet to read on where it stopped in them.
    pub(crate) fn has_topics(&self) -> bool {
        self.is_reading() || !self.done.is_empty()
    }

    /// Whether some topics may be read afresh before the others are read on: those have had their turn.
    pub(crate) fn may_skip_ahead(&self) -> bool {
        !self.is_reading() && !self.has_skipped_ahead
    }

    /// Whether nothing can be read before a page arrives.
    pub(crate) fn awaits_page(&self) -> bool {
        let page = self.todo.front().and_then(|wanted| self.page_of(wanted));
        page.is_some_and(|page| page.publications.is_none())
    }

    /// Up to where it has a topic, or is to be told that it has.
    pub(crate) fn through(&self, topic: TopicIndex) -> Option<Sequence> {
        let wanted = self.todo.find(topic).map(|wanted| wanted.after);
        wanted.or_else(|| self.done.get(&topic).copied())
    }

    /// Whether `sequence` of `topic` was already read.
    pub(crate) fn has(&self, topic: TopicIndex, sequence: Sequence) -> bool {
        self.done.get(&topic).is_some_and(|through| sequence <= *through)
    }
}
