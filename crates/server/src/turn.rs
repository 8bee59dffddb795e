//! A turn of a shard: how much of what peers ask for it does, and how long it waits before the next one. Steps are counted, not
//! time; what is left when they are spent waits, in order, for the next turn. docs/decisions/0028.

use std::time::Duration;

use model::Moment;

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
/// Steps that a turn takes to look for commands that waited for too long, in any case: a tenth of its own.
pub(crate) const STEPS_OF_A_LOOK: u64 = STEPS_PER_TURN / 10;
/// Bytes that are decoded, copied or told in the time of a step.
const BYTES_PER_STEP: usize = 64;

/// The turns of a shard, and its steps beside those that the hub and requests count themselves.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    steps: u64,
    /// All steps when the turn began, and when its present stage did.
    turn_began_at: u64,
    stage_began_at: u64,
    /// The most steps of a turn so far.
    peak: u64,
    /// The second in which was looked at what is due about once in one.
    swept_at: u32,
    /// A connection ended after this turn ordered publications and requests: the next one comes at once.
    has_leavings: bool,
    is_stopping: bool,
}

/// What a shard has to do next.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Next {
    /// There is work now.
    pub has_work: bool,
    /// Something is waited for that nobody tells of: room in a mailbox, or what is done in small parts.
    pub must_retry: bool,
    /// When something is due.
    pub due_at: Option<Duration>,
}

/// `work` is what a shard did since its start: the steps that are noted here, and those that its parts count.
impl Turn {
    /// The first turn comes after `now`.
    pub(crate) fn new(now: Moment) -> Self {
        Self { swept_at: now.coarse_seconds(), ..Self::default() }
    }

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

    /// Whether another second began since this answered so, and which.
    #[must_use = "it is told once"]
    pub(crate) fn poll_second(&mut self, now: Moment) -> Option<u32> {
        let now = now.coarse_seconds();
        let is_new = now != self.swept_at;
        self.swept_at = now;
        is_new.then_some(now)
    }

    /// Notes that a connection ended.
    pub(crate) fn note_leavings(&mut self) {
        self.has_leavings = true;
    }

    /// What connections left behind is about to be ordered.
    pub(crate) fn take_leavings(&mut self) {
        self.has_leavings = false;
    }

    /// No session is opened any more; turns end once all are closed.
    pub(crate) fn stop(&mut self) {
        self.is_stopping = true;
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping
    }

    /// How long to wait before the next turn.
    #[must_use]
    pub(crate) fn pause(&self, now: Moment, next: Next) -> Duration {
        const IDLE: Duration = Duration::from_millis(500);
        const RETRY: Duration = Duration::from_millis(1);
        if next.has_work || self.has_leavings {
            return Duration::ZERO;
        }
        let due = next.due_at.map(|at| at.saturating_sub(now.elapsed));
        let idle = due.map_or(IDLE, |due| due.min(IDLE));
        if next.must_retry { idle.min(RETRY) } else { idle }
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
        let mut budget = Turn::default();
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

    #[test]
    fn the_next_turn_comes_when_something_is_due_and_no_later_than_that() {
        let at = |ms| Moment { elapsed: Duration::from_millis(ms), unix_ms: 0 };
        let mut turn = Turn::new(at(2_000));
        let due_in =
            |ms: u64| Next { due_at: Some(Duration::from_millis(2_000 + ms)), ..Next::default() };
        let pause = |turn: &Turn, next| turn.pause(at(2_000), next).as_millis();
        assert_eq!(pause(&turn, Next::default()), 500);
        assert_eq!((pause(&turn, due_in(30)), pause(&turn, due_in(900))), (30, 500));
        assert_eq!(pause(&turn, Next { must_retry: true, ..due_in(30) }), 1);
        assert_eq!(pause(&turn, Next { must_retry: true, ..due_in(0) }), 0);
        assert_eq!(pause(&turn, Next { has_work: true, ..due_in(30) }), 0);
        turn.note_leavings();
        assert_eq!(pause(&turn, Next::default()), 0);
        turn.take_leavings();
        assert_eq!(pause(&turn, Next::default()), 500);
        assert_eq!((turn.poll_second(at(2_999)), turn.poll_second(at(3_000))), (None, Some(3)));
        assert_eq!(turn.poll_second(at(3_001)), None);
    }
}
