//! What an audience has to get: deliveries gathered, a batch being sent, or a rest until the next may be cut.

use std::sync::Arc;
use std::time::Duration;

use model::HashSet;

use crate::audiences::delta::Delta;
use crate::sending::batch::{Mark, Taken};
use crate::sending::transfer::Transfer;
use crate::sessions::session::Membership;
use crate::tables::index::{AudienceIndex, SessionIndex, Slot};

/// A [`Work`] of a hub. The index of a closed work names no other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WorkIndex(pub Slot);

/// What an audience has to get: deliveries not yet cut into a batch, and the batch being sent.
#[derive(Debug)]
pub(crate) struct Work {
    pub audience: AudienceIndex,
    /// Deliveries for the next batch, oldest first.
    pub pending: Vec<u64>,
    /// Deliveries of the batch being sent.
    pub cut: Vec<u64>,
    /// What becomes of each of them; empty where all are told as they are.
    pub verdicts: Vec<Verdict>,
    pub is_prepared: bool,
    /// The batch with every publication whole.
    pub whole: Batch,
    /// The batch with deltas, for members who were in step before delivery `deltas_since`.
    pub deltas: Batch,
    /// 0 if there is no delta in it.
    pub deltas_since: u64,
    /// Members before `visited` have everything up to `through`, those from there to `end` have
    /// everything up to `since`, and those from `end` on joined with everything up to `through`.
    pub since: u64,
    pub through: u64,
    pub visited: usize,
    pub end: usize,
    pub is_active: bool,
    /// It stands among those that are dirty or active.
    pub is_listed: bool,
    /// Its audience is closed; its place is free once it is not listed any more.
    pub is_dropped: bool,
    /// The next batch is cut then, not earlier: the audience has an interval.
    pub rests_until: Option<Duration>,
    /// Sessions that step in once the next batch is cut.
    pub joiners: HashSet<SessionIndex>,
}

/// A batch as bytes, and what each member that takes all of it gets.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub bytes: Vec<u8>,
    pub marks: Vec<Mark<u64>>,
    pub taken: Taken,
    /// What is told in pieces, with the delivery of each.
    pub large: Vec<(u64, Transfer)>,
    pub is_encoded: bool,
}

/// Which of a work's batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Telling {
    Whole,
    Deltas,
}

impl Batch {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.marks.clear();
        self.large.clear();
        self.is_encoded = false;
    }
}

impl Work {
    pub(crate) fn empty() -> Self {
        Self {
            audience: AudienceIndex(0),
            pending: Vec::new(),
            cut: Vec::new(),
            verdicts: Vec::new(),
            is_prepared: false,
            whole: Batch::default(),
            deltas: Batch::default(),
            deltas_since: 0,
            since: 0,
            through: 0,
            visited: 0,
            end: 0,
            is_active: false,
            is_listed: false,
            is_dropped: false,
            rests_until: None,
            joiners: HashSet::default(),
        }
    }

    pub(crate) fn reset(&mut self) {
        self.pending.clear();
        self.clear_batch();
        self.joiners.clear();
        (self.is_active, self.rests_until) = (false, None);
        (self.is_listed, self.is_dropped) = (false, false);
        (self.visited, self.end) = (0, 0);
    }

    pub(crate) fn clear_batch(&mut self) {
        self.cut.clear();
        self.verdicts.clear();
        self.whole.clear();
        self.deltas.clear();
        (self.is_prepared, self.deltas_since) = (false, 0);
    }

    pub(crate) fn batch(&self, telling: Telling) -> &Batch {
        match telling {
            Telling::Whole => &self.whole,
            Telling::Deltas => &self.deltas,
        }
    }

    /// How a member is told: with deltas if it has what they are made from.
    pub(crate) fn telling_for(&self, membership: &Membership) -> Telling {
        match membership.was_in_step_before(self.deltas_since) {
            true => Telling::Deltas,
            false => Telling::Whole,
        }
    }

    /// The delta by which a delivery of the batch is told, if it is.
    pub(crate) fn delta_of(&self, delivery: u64) -> Option<Arc<Delta>> {
        let at = self.cut.binary_search(&delivery).ok()?;
        match self.verdicts.get(at)? {
            Verdict::Delta(delta) => Some(Arc::clone(delta)),
            _ => None,
        }
    }

    /// Up to where a session must have read to join the members in step, when `newest` is the newest
    /// delivery.
    pub(crate) fn joinable_at(&self, newest: u64) -> u64 {
        match (self.is_active, self.pending.is_empty()) {
            (true, _) => self.through,
            (false, false) => self.since,
            // Nothing is held back yet: its members have everything.
            (false, true) => newest,
        }
    }
}

/// What becomes of one delivery.
#[derive(Clone, Debug)]
pub(crate) enum Verdict {
    Tell,
    Delta(Arc<Delta>),
    Replaced,
    Filtered,
}
