//! Findings of clients: latencies by phase, and everything that must not happen.

use hdrhistogram::Histogram;

use crate::stamp::Stamp;

/// The findings of some clients.
#[derive(Debug)]
pub(crate) struct Findings {
    /// Nanoseconds from the intended send time to the client, by phase.
    pub latency_ns: Vec<Histogram<u64>>,
    /// The same for single clients, all phases together: (client, histogram).
    pub sampled: Vec<(usize, Histogram<u64>)>,
    pub delivered: u64,
    pub checks: Checks,
}

/// Everything that must not happen, counted over all clients and the whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Checks {
    /// Messages that never came, by the numbers in those that did.
    pub missing: u64,
    /// Messages that came twice, or after a later one.
    pub repeated: u64,
    /// Messages that are not what was sent.
    pub damaged: u64,
    /// Gaps that the server announced.
    pub gaps: u64,
    /// Connections that ended without our wish.
    pub closed: u64,
    /// Connections that could not be opened.
    pub refused: u64,
}

impl Checks {
    pub(crate) fn faults(&self) -> u64 {
        self.missing + self.repeated + self.damaged + self.gaps + self.closed + self.refused
    }
}

/// A histogram of nanoseconds from 1 µs to 10 min.
pub(crate) fn histogram(digits: u8) -> Histogram<u64> {
    Histogram::new_with_bounds(1_000, 600_000_000_000, digits).expect("valid bounds")
}

impl Findings {
    pub(crate) fn new(phases: usize) -> Self {
        Self {
            latency_ns: (0..phases).map(|_| histogram(3)).collect(),
            sampled: Vec::new(),
            delivered: 0,
            checks: Checks::default(),
        }
    }

    /// Takes in what other clients found.
    pub(crate) fn add(&mut self, other: Self) {
        for (mine, theirs) in self.latency_ns.iter_mut().zip(&other.latency_ns) {
            mine.add(theirs).expect("equal bounds");
        }
        self.sampled.extend(other.sampled);
        self.delivered += other.delivered;
        let (mine, theirs) = (&mut self.checks, other.checks);
        mine.missing += theirs.missing;
        mine.repeated += theirs.repeated;
        mine.damaged += theirs.damaged;
        mine.gaps += theirs.gaps;
        mine.closed += theirs.closed;
        mine.refused += theirs.refused;
    }
}

/// Takes note of a message's number in its topic. `next` holds what each topic's next should be.
pub(crate) fn check_number(next: &mut Vec<(u32, u32)>, stamp: Stamp, checks: &mut Checks) {
    let Stamp { topic, number, .. } = stamp;
    let at = match next.binary_search_by_key(&topic, |(known, _)| *known) {
        Ok(at) => at,
        Err(at) => {
            next.insert(at, (topic, number));
            at
        }
    };
    let expected = &mut next[at].1;
    match number.wrapping_sub(*expected) {
        0 => {}
        ahead @ 1..0x8000_0000 => checks.missing += u64::from(ahead),
        _ => {
            checks.repeated += 1;
            return;
        }
    }
    *expected = number.wrapping_add(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_and_repetitions_are_counted() {
        let (mut next, mut checks) = (Vec::new(), Checks::default());
        for (topic, number) in [(1, 5), (2, 1), (1, 6), (1, 9), (1, 7), (2, 1), (2, 2)] {
            check_number(&mut next, Stamp { intended_ns: 0, topic, number }, &mut checks);
        }
        assert_eq!((checks.missing, checks.repeated), (2, 2));
        assert_eq!(next, [(1, 10), (2, 3)]);
    }
}
