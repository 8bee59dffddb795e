//! How much of what peers ask for a shard does in one turn. Steps are counted, not time; what is left when they are
//! spent waits, in order, for the next turn. docs/decisions/0028.

use engine::Io;

use crate::shard::Shard;

/// Steps that a turn takes before what else peers ask for waits for the next one: a few milliseconds.
const STEPS_PER_TURN: u64 = 50_000;
/// What connections ask for takes half of them, and mail of other shards and the API the other half: however much
/// connections ask for, mail has its turn.
const STEPS_PER_STAGE: u64 = STEPS_PER_TURN / 2;
/// What a command costs however little it asks for: about half a microsecond.
pub(crate) const STEPS_OF_A_COMMAND: u64 = 8;
/// The same for a message of another shard.
pub(crate) const STEPS_OF_MAIL: u64 = 8;
/// The same for an HTTP request.
pub(crate) const STEPS_OF_A_REQUEST: u64 = 32;
/// Bytes that are decoded, copied or told in the time of a step.
const BYTES_PER_STEP: usize = 64;

/// Steps of a shard, beside those that the hub and requests count themselves.
#[derive(Debug, Default)]
pub(crate) struct TurnBudget {
    steps: u64,
    /// All steps when the turn began, and when its present stage did.
    turn_began_at: u64,
    stage_began_at: u64,
    /// The most steps of a turn so far.
    peak: u64,
}

impl TurnBudget {
    /// The most steps that a turn took so far.
    pub(crate) fn peak(&self) -> u64 {
        self.peak
    }
}

impl<I: Io> Shard<I> {
    /// Steps so far in what peers choose the number or the size of.
    pub(crate) fn work(&self) -> u64 {
        self.hub.work() + self.asking.under_way.work() + self.turn_budget.steps
    }

    /// Counts steps of the shard itself.
    pub(crate) fn note_work(&mut self, steps: u64) {
        self.turn_budget.steps += steps;
    }

    /// Counts bytes that are decoded, copied or told.
    pub(crate) fn note_bytes(&mut self, bytes: usize) {
        self.note_work(steps_of_bytes(bytes));
    }

    pub(crate) fn begin_turn(&mut self) {
        self.turn_budget.turn_began_at = self.work();
        self.begin_stage();
    }

    pub(crate) fn begin_stage(&mut self) {
        self.turn_budget.stage_began_at = self.work();
    }

    pub(crate) fn end_turn(&mut self) {
        let steps = self.work() - self.turn_budget.turn_began_at;
        self.turn_budget.peak = self.turn_budget.peak.max(steps);
    }

    /// Steps that are left of the present stage of the turn.
    pub(crate) fn steps_left(&self) -> u64 {
        STEPS_PER_STAGE.saturating_sub(self.work() - self.turn_budget.stage_began_at)
    }

    /// Whether this stage of the turn did enough of what peers asked for: the rest of it waits for the next turn.
    pub(crate) fn has_worked_enough(&self) -> bool {
        self.steps_left() == 0
    }
}

/// Steps in which so many bytes are decoded, copied or told.
pub(crate) fn steps_of_bytes(bytes: usize) -> u64 {
    (bytes / BYTES_PER_STEP) as u64
}
