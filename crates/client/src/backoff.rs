//! Pauses between attempts to connect: they grow, and no two clients have the same.

use std::time::Duration;

/// Growing, jittered pauses. The random part comes from a seed, so that tests repeat.
#[derive(Clone, Debug)]
pub struct Backoff {
    attempt: u32,
    state: u64,
}

const FIRST: Duration = Duration::from_millis(250);
const LAST: Duration = Duration::from_secs(30);

impl Backoff {
    /// Pauses that depend on `seed`: clients with the same have the same.
    pub fn new(seed: u64) -> Self {
        Self { attempt: 0, state: seed | 1 }
    }

    /// The pauses of one of several things that share a seed.
    pub(crate) fn one_of(seed: u64, index: u64) -> Self {
        Self::new(seed.wrapping_add(index.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
    }

    /// Starts again with short pauses, after a connection stood.
    pub fn reset(&mut self) {
        self.attempt = 0;
    }

    /// The next pause: between half of and the whole of 250 ms, doubled at each attempt, at most
    /// 30 s; never shorter than what the server asked for, and then up to a quarter longer, for it asked
    /// everybody the same.
    pub fn next_pause(&mut self, asked: Duration) -> Duration {
        let whole = FIRST.saturating_mul(1 << self.attempt.min(10)).min(LAST);
        self.attempt += 1;
        // xorshift64*: cheap, and good enough to spread clients.
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        let random = self.state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33;
        let share = random as f64 / f64::from(1u32 << 31);
        whole.mul_f64(0.5 + share / 2.0).max(asked.mul_f64(1.0 + share / 4.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_stay_bounded_and_obey_the_server() {
        let mut backoff = Backoff::new(7);
        let mut whole = FIRST;
        for _ in 0..20 {
            let pause = backoff.next_pause(Duration::ZERO);
            assert!(pause >= whole / 2 && pause <= whole, "{pause:?} of {whole:?}");
            whole = (whole * 2).min(LAST);
        }
        backoff.reset();
        assert!(backoff.next_pause(Duration::ZERO) <= FIRST);
        let asked = backoff.next_pause(Duration::from_secs(60));
        assert!((60..=75).contains(&asked.as_secs()), "{asked:?}");
    }
}
