//! Pending operations: what takes more than one turn, because it looks at every topic that a pattern selects.
//!
//! The operations of a shard share `attached_per_turn` names in each turn, and take turns among each other. How many may
//! be pending is bounded: a `subscribe` that would add to more is refused. What ends a subscription is never refused; a
//! session that waits for its topics carries out no other command, so that it adds a few at most.

use std::collections::VecDeque;

use model::Selector;

use crate::tables::index::{AudienceIndex, SessionIndex, ShardIndex};

/// What takes more than one turn.
#[derive(Debug)]
pub(crate) enum Operation {
    /// Lets an audience read what its patterns select.
    Attach(AudienceIndex),
    /// Takes an audience that is closed out of what its patterns select.
    Detach(AudienceIndex),
    /// Grants what a session asked for that is to be in an audience.
    Grant(AudienceIndex, SessionIndex),
    /// Puts what a session is to read afresh behind what it reads already.
    Add(SessionIndex),
    /// Has a session that fell off the recent deliveries read an audience's topics afresh.
    Rewind(AudienceIndex, SessionIndex),
    /// Tells another shard of the topics at home here that its pattern selects.
    Introduce(ShardIndex, Selector),
    /// Asks the homes of topics that a session is ahead in; so many of them were asked.
    AskHomes(SessionIndex, usize),
}

/// The operations of a shard that are not done.
#[derive(Debug)]
pub(crate) struct PendingOperations {
    queue: VecDeque<Operation>,
    /// Names that may still be looked at in this turn.
    steps: usize,
}

impl PendingOperations {
    /// Those of a shard that begins its first turn.
    pub(crate) fn new(steps: usize) -> Self {
        Self { queue: VecDeque::new(), steps }
    }

    /// Takes the names that an operation may look at which begins now: others of this turn keep as many.
    pub(crate) fn take_share(&mut self) -> usize {
        let share = self.steps.div_ceil(2);
        self.steps -= share;
        share
    }

    /// Begins a turn with so many names; answers what each operation may look at before the next has its part.
    pub(crate) fn begin_turn(&mut self, steps: usize) -> usize {
        const PARTS: usize = 8;
        self.steps = steps;
        steps.div_ceil(PARTS)
    }

    /// The next operation to go on with in this turn, and the names that it may look at: `share` at most.
    pub(crate) fn pop(&mut self, share: usize) -> Option<(Operation, usize)> {
        if self.steps == 0 {
            return None;
        }
        let operation = self.queue.pop_front()?;
        let share = share.min(self.steps);
        // It may begin others.
        self.steps -= share;
        Some((operation, share))
    }

    /// Gives back what is left of a share, and keeps the operation if it is not done.
    pub(crate) fn settle(&mut self, left: usize, undone: Option<Operation>) {
        self.steps += left;
        self.queue.extend(undone);
    }

    /// How many are pending.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use crate::tables::index::Slot;

    fn add(session: u32) -> Operation {
        Operation::Add(SessionIndex(Slot::of(session, NonZeroU32::MIN)))
    }

    #[test]
    fn one_operation_leaves_names_for_the_others() {
        let mut pending = PendingOperations::new(16);
        assert_eq!((pending.take_share(), pending.take_share()), (8, 4));
        pending.settle(3, Some(add(1)));
        assert_eq!(pending.begin_turn(16), 2);
        let (_, share) = pending.pop(2).expect("one is pending");
        assert_eq!((share, pending.len()), (2, 0));
        pending.settle(0, Some(add(1)));
        assert_eq!(pending.len(), 1);
    }

    #[test]
    fn a_turn_ends_with_its_names() {
        let mut pending = PendingOperations::new(1);
        pending.settle(0, Some(add(1)));
        pending.settle(0, Some(add(2)));
        let share = pending.begin_turn(1);
        assert!(pending.pop(share).is_some());
        assert!(pending.pop(share).is_none(), "the next turn goes on with it");
        assert_eq!(pending.len(), 1);
    }
}
