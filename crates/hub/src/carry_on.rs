//! Going on with pending operations: a share of the steps of a turn for each.

use model::{Code, Refusal};

use crate::hub::Hub;
use crate::operations::Operation;
use crate::sending::encoder::Encoder;

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
        let share = self.operations.take_share();
        self.run_operation(operation, share);
    }

    /// Goes on with the operations for one turn.
    pub(crate) fn run_operations(&mut self) {
        let part = self.operations.begin_turn(self.settings.limits.attached_per_turn.max(1));
        while let Some((operation, share)) = self.operations.pop(part) {
            self.run_operation(operation, share);
        }
    }

    fn run_operation(&mut self, mut operation: Operation, mut steps: usize) {
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
        self.operations.settle(steps, (!is_done).then_some(operation));
    }
}
