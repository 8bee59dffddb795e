//! The steps in which a session catches up, and how far it may go in one turn.

use model::{HashMap, HashSet, Sequence};

use crate::sending::batch::Builder;
use crate::sending::encoder::Encoder;
use crate::sessions::throttle::Allowance;
use crate::tables::index::{AudienceIndex, SessionIndex, TopicIndex};
use crate::topics::conflation_keys::EntityIndex;

/// What a session knows after a message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum CatchUpStep {
    /// Of which epoch the replay topic at `entry` is.
    Renewed { entry: usize },
    /// The name and number of the replay topic at `entry`; its gap is still to be told.
    Announced { entry: usize },
    /// The replay topic at `entry` was read up to `after`, and if `is_finished` to its head.
    Replay { entry: usize, after: Sequence, is_finished: bool },
    /// The replay topic at `entry` is not to be read.
    PassBy { entry: usize },
    /// Every delivery up to this one that concerns its subscriptions of this priority.
    Delivery { number: u64, priority: i8 },
    /// The same, and the topic must be read afresh after `after`: this shard lost publications of it
    /// that the store still has.
    Rewind { delivery: u64, priority: i8, topic: TopicIndex, after: Sequence },
    /// The same, and the topic is taken from the session: it lags too far behind.
    TakeAway { delivery: u64, priority: i8, topic: TopicIndex },
}

/// A membership that is behind: it has everything up to `cursor` and may read up to `bound`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lag {
    pub audience: AudienceIndex,
    pub priority: i8,
    pub cursor: u64,
    pub bound: u64,
}

/// Bytes gathered for one session in one go; it gets the rest in later turns.
pub(crate) const CATCH_UP_BYTES: usize = 64 << 10;

/// Deliveries looked at for one session in one go.
pub(crate) const WALK_MAX: u64 = 4_096;

/// How much may be gathered in one go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    pub(crate) start: usize,
    pub(crate) allowance: Allowance,
}

impl Budget {
    pub(crate) fn new(allowance: Allowance, start: usize) -> Self {
        let bytes = allowance.bytes.min(CATCH_UP_BYTES);
        Self { start, allowance: Allowance { bytes, ..allowance } }
    }

    pub(crate) fn is_used_up<E: Encoder>(&self, builder: &Builder<'_, E, CatchUpStep>) -> bool {
        self.is_full(builder) || builder.steps as u64 >= WALK_MAX
    }

    /// Whether as much was gathered as may be sent.
    pub(crate) fn is_full<E: Encoder>(&self, builder: &Builder<'_, E, CatchUpStep>) -> bool {
        builder.out.len() - self.start >= self.allowance.bytes
            || builder.publications >= self.allowance.messages
    }
}

/// What the reading of deliveries must know.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    /// Topics read afresh in this very go: their recent deliveries are told already.
    pub replayed: HashSet<TopicIndex>,
    /// Where there are filters: the newest accepted delivery about each thing.
    pub accepted: HashMap<(TopicIndex, EntityIndex), u64>,
    /// Whether it is a round, in which nothing is left out any more.
    pub is_round: bool,
    /// Whom it is told.
    pub reader: Option<SessionIndex>,
}
