//! Which subscriptions may be asked for now. Pure.
//!
//! A `subscribe` has the server restart what it overlaps with, from a place that only this one gives. While nobody
//! here knows where another is in what they share, that would lose what the other has not been told yet: so it
//! waits until the other is answered and, if that has patterns, until their topics were told, before the `pong` to
//! a `ping`. Those that were live before do not wait for each other: all of them give their places.

use std::collections::{BTreeSet, HashMap};

use model::{CommandId, RandomState, Selector};

use crate::selectors::Tree;
use crate::subscription_id::SubscriptionId;

/// Those that are asked for and those that wait for them.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// Those of which the server knows where they are, but nobody here does.
    fresh: Tree,
    /// The same, of those that were live before.
    returning: Tree,
    open: HashMap<SubscriptionId, Vec<Selector>, RandomState>,
    /// Of these, those that were answered, but whose patterns' topics may be on their way.
    unsettled: BTreeSet<SubscriptionId>,
    /// The same, once a ping was sent on their account: by its number, and which ping that is of each.
    settling: HashMap<CommandId, Vec<SubscriptionId>, RandomState>,
    settled_by: HashMap<SubscriptionId, CommandId, RandomState>,
    /// Which subscription waits for which. One that waits for several waits for one after the other.
    waiting_for: HashMap<SubscriptionId, Vec<SubscriptionId>, RandomState>,
}

/// Somebody who is to be asked for.
pub(crate) struct Taker<'a> {
    pub(crate) id: SubscriptionId,
    pub(crate) selectors: &'a [Selector],
    /// It gives its places.
    pub(crate) was_live: bool,
    /// It waits for the answer to its own last `subscribe`, too.
    pub(crate) waits_for_itself: bool,
}

impl Turns {
    /// Whether somebody has to wait for another; [`Turns::place`] answers it when that is over.
    pub(crate) fn must_wait(&mut self, taker: &Taker<'_>) -> bool {
        let in_the_way = |id: SubscriptionId| id != taker.id || taker.waits_for_itself;
        let found = self.fresh.first(taker.selectors, in_the_way);
        let found = found.or_else(|| {
            (!taker.was_live).then(|| self.returning.first(taker.selectors, in_the_way)).flatten()
        });
        if let Some(found) = found {
            self.waiting_for.entry(found).or_default().push(taker.id);
        }
        found.is_some()
    }

    /// Notes that one is asked for of which nobody here knows where it will be.
    pub(crate) fn begin(&mut self, taker: &Taker<'_>) {
        let tree = if taker.was_live { &mut self.returning } else { &mut self.fresh };
        tree.add(taker.id, taker.selectors);
        self.open.insert(taker.id, taker.selectors.to_vec());
    }

    /// Notes that the server answered one; answers who need not wait for it any more.
    pub(crate) fn handle_answered(&mut self, id: SubscriptionId) -> Vec<SubscriptionId> {
        let has_patterns = |selectors: &Vec<Selector>| selectors.iter().any(Selector::has_wildcard);
        if self.open.get(&id).is_some_and(has_patterns) {
            self.unsettled.insert(id);
            return vec![];
        }
        self.place(id)
    }

    /// Notes that what was answered before a ping is known whole.
    pub(crate) fn handle_pong(&mut self, ping: CommandId) -> Vec<SubscriptionId> {
        let settled = self.settling.remove(&ping).unwrap_or_default();
        let is_meant = |id: &SubscriptionId| self.settled_by.get(id) == Some(&ping);
        let settled: Vec<_> = settled.into_iter().filter(is_meant).collect();
        settled.into_iter().flat_map(|id| self.place(id)).collect()
    }

    /// Notes that nobody has to wait for one: it is known where it is, or it is not asked for any more.
    pub(crate) fn place(&mut self, id: SubscriptionId) -> Vec<SubscriptionId> {
        let Some(selectors) = self.open.remove(&id) else { return vec![] };
        self.unsettled.remove(&id);
        self.settled_by.remove(&id);
        self.fresh.remove(id, &selectors);
        self.returning.remove(id, &selectors);
        self.waiting_for.remove(&id).unwrap_or_default()
    }

    /// Whether nobody here knows yet where one is.
    pub(crate) fn is_open(&self, id: SubscriptionId) -> bool {
        self.open.contains_key(&id)
    }

    /// How many nodes of selectors were looked at.
    #[cfg(test)]
    pub(crate) fn steps(&self) -> usize {
        self.fresh.steps() + self.returning.steps()
    }

    /// Whether a ping is to be sent under this number, because somebody waits for topics that may be on their way.
    pub(crate) fn poll_ping(&mut self, ping: CommandId) -> bool {
        if self.waiting_for.is_empty() || self.unsettled.is_empty() {
            return false;
        }
        let settling: Vec<_> = std::mem::take(&mut self.unsettled).into_iter().collect();
        self.settled_by.extend(settling.iter().map(|id| (*id, ping)));
        self.settling.insert(ping, settling);
        true
    }
}
