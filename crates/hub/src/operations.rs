//! Pending operations: what takes more than one turn, because it looks at every topic that a pattern selects.
//!
//! The operations of a shard share `attached_per_turn` names in each turn, and take turns among each other. How many may
//! be pending is bounded: a `subscribe` that would add to more is refused. What ends a subscription is never refused; a
//! session that waits for its topics carries out no other command, so that it adds a few at most.

use std::collections::VecDeque;

use model::{Code, Refusal, Selector};

use crate::hub::Hub;
use crate::sending::encoder::Encoder;
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

impl<E: Encoder> Hub<E> {
    /// Whether a `subscribe` may begin operations.
    ///
    /// # Errors
    /// `operations_pending_max` are pending.
    pub(crate) fn check_operations(&self) -> Result<(), Refusal> {
        let len_max = self.settings.limits.operations_pending_max;
        if self.operations.len() < len_max {
            return Ok(());
        }
        let text = format!(
            "cannot subscribe to a pattern now: operations_pending_max ({len_max}) operations of this shard go through the \
             topics of patterns; try again later, or raise the limit in the configuration"
        );
        Err(Refusal::new(Code::TooManyOperations, text))
    }

    /// Begins an operation: most are done at once. One that takes longer leaves others of this turn a part of it.
    pub(crate) fn begin_operation(&mut self, operation: Operation) {
        let share = self.operations.steps.div_ceil(2);
        self.run_operation(operation, share);
    }

    /// Goes on with the operations for one turn.
    pub(crate) fn run_operations(&mut self) {
        const PARTS: usize = 8;
        self.operations.steps = self.settings.limits.attached_per_turn.max(1);
        let share = self.operations.steps.div_ceil(PARTS);
        while self.operations.steps > 0
            && let Some(operation) = self.operations.queue.pop_front()
        {
            self.run_operation(operation, share);
        }
    }

    fn run_operation(&mut self, mut operation: Operation, share: usize) {
        let share = share.min(self.operations.steps);
        let mut steps = share;
        // It may begin others.
        self.operations.steps -= share;
        let is_done = match &mut operation {
            Operation::Attach(audience) => self.go_on_attaching(*audience, &mut steps),
            Operation::Detach(audience) => self.go_on_detaching(*audience, &mut steps),
            Operation::Grant(audience, session) => {
                self.go_on_granting(*audience, *session, &mut steps)
            }
            Operation::Add(session) => self.go_on_adding(*session, &mut steps),
            Operation::Rewind(audience, session) => {
                self.go_on_rewinding(*audience, *session, &mut steps)
            }
            Operation::Introduce(to, selector) => self.go_on_introducing(*to, selector, &mut steps),
            Operation::AskHomes(session, asked) => {
                self.go_on_asking_homes(*session, asked, &mut steps)
            }
        };
        self.operations.steps += steps;
        if !is_done {
            self.operations.queue.push_back(operation);
        }
    }
}
