//! Sessions on their way into an audience: who waits, what each asked for, and how far that was granted.

use std::collections::{BTreeMap, VecDeque};

use model::{
    CommandId, HashMap, HashSet, Position, Selector, Sequence, Start, SubscribedTopic,
    SubscriptionId, TopicName,
};

use crate::sessions::replay::{AheadIn, InOrder};
use crate::sessions::replay_queue::{ReplayTopic, Todo};
use crate::tables::index::{AudienceIndex, SessionIndex, TopicIndex};
use crate::topics::name_walk::Walk;

/// What one `subscribe` asked for, to be answered when the audience's topics are known.
#[derive(Debug)]
pub(crate) struct Wish {
    pub id: Option<CommandId>,
    /// The subscription, if it has an id.
    pub subscription: Option<SubscriptionId>,
    pub selectors: Vec<Selector>,
    pub start: Start,
    /// By name, each topic once.
    pub(crate) positions: Vec<(TopicName, Position)>,
    /// Whether the session is told from where it could go on.
    pub(crate) is_resumable: bool,
}

impl Wish {
    pub(crate) fn new(
        id: Option<CommandId>,
        subscription: Option<SubscriptionId>,
        selectors: Vec<Selector>,
        start: Start,
        mut positions: Vec<(TopicName, Position)>,
        is_resumable: bool,
    ) -> Self {
        // Where one is named twice the first counts.
        positions.sort_by(|(one, _), (other, _)| one.cmp(other));
        positions.dedup_by(|(one, _), (other, _)| one == other);
        Self { id, subscription, selectors, start, positions, is_resumable }
    }

    pub(crate) fn position_in(&self, topic: &TopicName) -> Option<&Position> {
        let at = self.positions.binary_search_by(|(named, _)| named.cmp(topic)).ok()?;
        Some(&self.positions[at].1)
    }
}

/// How far a wish was granted.
#[derive(Debug)]
pub(crate) struct Grant {
    /// Through what its patterns select; `None` if it has none.
    pub(crate) walk: Option<Walk>,
    /// For a reader without positions.
    pub(crate) in_order: Option<Box<InOrder>>,
    /// Topics that it names, in order, which are not among `added` yet.
    pub(crate) named: VecDeque<(TopicName, ReplayTopic)>,
    /// All topics that it names.
    pub(crate) names: HashSet<TopicIndex>,
    /// How these are told.
    pub(crate) told: Vec<SubscribedTopic>,
    /// What is to be read afresh.
    pub(crate) added: Todo,
    /// Whether topics of which there is nothing to read are added too: older deliveries will be read, in which they
    /// must not come twice.
    pub(crate) adds_all: bool,
    /// Topics in which the session has more than this shard.
    pub(crate) ahead: Vec<AheadIn>,
    /// Whether the session has everything that was published when this began.
    pub(crate) is_whole: bool,
    pub(crate) has_gap: bool,
    pub(crate) begun_ms: u64,
    /// A topic of which it has a position that nobody was told.
    pub(crate) beyond: Option<TopicIndex>,
}

impl Grant {
    /// Adds what it names and what comes before `topic` in order of name, or the rest of it.
    pub(crate) fn add_named_before(&mut self, topic: Option<&TopicName>) {
        let first = self.in_order.as_ref().and_then(|it| it.first.clone());
        let place =
            |name: &TopicName| (first.as_ref().is_some_and(|first| name < first), name.clone());
        let end = topic.map(place);
        while let Some((name, wanted)) = self.named.front()
            && end.as_ref().is_none_or(|end| place(name) < *end)
        {
            self.added.push(*wanted);
            self.named.pop_front();
        }
    }

    pub(crate) fn note(&mut self, wanted: &ReplayTopic, head: Sequence) {
        self.has_gap |= wanted.gap.is_some();
        self.is_whole &= wanted.after == head && wanted.gap.is_none();
        if wanted.after > head {
            self.ahead.push(AheadIn { topic: wanted.topic, epoch: wanted.epoch });
        }
    }
}

/// The sessions that wait for one audience's topics.
#[derive(Debug, Default)]
pub(crate) struct Joins {
    // Boxed: a node of the map has room for eleven, and most audiences have one.
    pub(crate) waiting: BTreeMap<SessionIndex, Box<PendingJoin>>,
    /// How many of them read something already.
    pub(crate) reading_on: usize,
}

impl Joins {
    /// Whether one of them reads something of it already.
    pub(crate) fn reads_on(&self) -> bool {
        self.reading_on > 0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) fn into_waiting(self) -> impl Iterator<Item = (SessionIndex, PendingJoin)> {
        self.waiting.into_iter().map(|(session, join)| (session, *join))
    }

    pub(crate) fn insert(&mut self, session: SessionIndex, join: PendingJoin) {
        self.reading_on += usize::from(join.cursor.is_some());
        self.waiting.insert(session, Box::new(join));
    }

    pub(crate) fn get(&self, session: SessionIndex) -> Option<&PendingJoin> {
        self.waiting.get(&session).map(|join| &**join)
    }

    pub(crate) fn remove(&mut self, session: SessionIndex) -> Option<PendingJoin> {
        let join = self.waiting.remove(&session)?;
        self.reading_on -= usize::from(join.cursor.is_some());
        Some(*join)
    }
}

/// A session that waits for its audience's topics.
#[derive(Debug)]
pub(crate) struct PendingJoin {
    /// Up to where it has everything that it read before; `None` if it read nothing of it.
    pub cursor: Option<u64>,
    pub wishes: VecDeque<Wish>,
    /// The audiences that it left, which stay open until this one reads its topics.
    pub left: Vec<AudienceIndex>,
    /// The newest delivery when its wishes began to be granted.
    pub since: Option<u64>,
    /// How far the first of them was granted.
    pub grant: Option<Box<Grant>>,
}

/// How far an audience was let read the topics that its patterns select.
#[derive(Debug)]
pub(crate) struct Attaching {
    pub(crate) walk: Walk,
    /// Whether the audience waits for the rest.
    pub(crate) is_awaited: bool,
}

/// Who is on the way into audiences, and which audiences are being let read their topics or taken out of them.
#[derive(Debug, Default)]
pub(crate) struct Joining {
    /// Sessions that wait for their audience's topics.
    pub joins: HashMap<AudienceIndex, Joins>,
    /// Audiences that do not read all topics yet that their patterns select.
    pub attaching: HashMap<AudienceIndex, Attaching>,
    /// Audiences that are closed and stand among the readers of topics still.
    pub detaching: HashMap<AudienceIndex, Walk>,
}
