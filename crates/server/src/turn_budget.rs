//! How much of what peers ask for a shard does in one turn. Steps are counted, not time; what is left when they are
//! spent waits, in order, for the next turn. docs/decisions/0028.

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

/// `work` is what a shard did since its start: the steps that are noted here, and those that its parts count.
impl TurnBudget {
    /// Steps that were noted here.
    pub(crate) fn steps(&self) -> u64 {
        self.steps
    }

    /// Counts steps of the shard itself.
    pub(crate) fn note(&mut self, steps: u64) {
        self.steps += steps;
    }

    pub(crate) fn begin_turn(&mut self, work: u64) {
        self.turn_began_at = work;
        self.stage_began_at = work;
    }

    pub(crate) fn begin_stage(&mut self, work: u64) {
        self.stage_began_at = work;
    }

    pub(crate) fn end_turn(&mut self, work: u64) {
        self.peak = self.peak.max(work - self.turn_began_at);
    }

    /// Steps that are left of the present stage of the turn.
    pub(crate) fn steps_left(&self, work: u64) -> u64 {
        STEPS_PER_STAGE.saturating_sub(work - self.stage_began_at)
    }

    /// The most steps that a turn took so far.
    pub(crate) fn peak(&self) -> u64 {
        self.peak
    }
}

/// Steps in which so many bytes are decoded, copied or told.
pub(crate) fn steps_of_bytes(bytes: usize) -> u64 {
    (bytes / BYTES_PER_STEP) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_has_half_of_a_turn_and_the_next_one_as_much() {
        let mut budget = TurnBudget::default();
        budget.begin_turn(1_000);
        assert_eq!(budget.steps_left(1_000), STEPS_PER_STAGE);
        assert_eq!(budget.steps_left(1_000 + 2 * STEPS_PER_STAGE), 0);
        budget.begin_stage(31_000);
        assert_eq!(budget.steps_left(31_010), STEPS_PER_STAGE - 10);
        budget.end_turn(41_000);
        budget.begin_turn(41_000);
        budget.end_turn(42_000);
        assert_eq!(budget.peak(), 40_000);
    }
}
