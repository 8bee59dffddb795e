//! When a simulated node has come to rest: nothing moves, and no timer is near.

use std::time::Duration;

/// A shard that has nothing to do waits this long.
const IDLE: Duration = Duration::from_millis(500);
/// Time that passes in a round in which something moves.
const ROUND: Duration = Duration::from_micros(100);
/// Rounds in a row in which nothing moves: mail between shards takes one each.
const QUIET_ROUNDS: u32 = 4;
/// A state that waits without a timer, such as a reader that is ahead of its shard, is looked at once a second and
/// waits for two seconds at most.
const PATIENCE: Duration = Duration::from_secs(4);
/// A node that has not come to rest by then never will.
const ROUNDS_MAX: u32 = 50_000;

/// Follows the rounds of a node to its rest. Time jumps where nobody has anything to do.
#[derive(Debug, Default)]
pub(crate) struct Rest {
    rounds: u32,
    quiet_rounds: u32,
    quiet_for: Duration,
    pause: Duration,
}

impl Rest {
    /// How much time passes before the next round.
    pub(crate) fn pause(&self) -> Duration {
        self.pause.max(ROUND)
    }

    /// Whether nothing will move any more.
    pub(crate) fn is_over(&self) -> bool {
        self.quiet_for >= PATIENCE
    }

    /// Hears of a round: how long the shards would wait, and whether nothing is on its way.
    ///
    /// # Panics
    /// The node does not come to rest.
    pub(crate) fn handle_round(&mut self, wait: Duration, is_quiet: bool) {
        self.rounds += 1;
        assert!(self.rounds < ROUNDS_MAX, "the node does not come to rest");
        self.pause = Duration::ZERO;
        if !is_quiet || wait.is_zero() {
            (self.quiet_rounds, self.quiet_for) = (0, Duration::ZERO);
            return;
        }
        self.quiet_rounds += 1;
        if self.quiet_rounds < QUIET_ROUNDS {
            return;
        }
        self.pause = wait;
        match wait < IDLE {
            true => self.quiet_for = Duration::ZERO,
            false => self.quiet_for += wait,
        }
    }
}
