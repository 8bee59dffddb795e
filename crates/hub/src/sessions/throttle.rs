//! How much a session may be sent: one bucket for bytes, one for publications.
//!
//! Each fills with its rate and holds a quarter of a second's worth. What is sent is taken out, also
//! beyond the bottom: the session then rests until the buckets are filled to zero again.

use std::num::NonZeroU32;
use std::time::Duration;

use model::Rates;
use smallvec::SmallVec;

use crate::sessions::steps::Lag;
use crate::tables::index::AudienceIndex;

/// What one session was sent, against what it may be.
#[derive(Debug)]
pub(crate) struct Throttle {
    bytes: Option<Bucket>,
    messages: Option<Bucket>,
    /// It is sent nothing but answers until then.
    pub rests_until: Option<Duration>,
    /// What it is told next, of each priority.
    pub rounds: SmallVec<[Round; 1]>,
}

/// How much may be sent in one go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allowance {
    pub bytes: usize,
    pub messages: usize,
}

impl Allowance {
    pub(crate) const UNBOUNDED: Self = Self { bytes: usize::MAX, messages: usize::MAX };
}

#[derive(Debug)]
struct Bucket {
    per_second: f64,
    credit: f64,
    filled_at: Duration,
}

impl Bucket {
    /// Seconds of its rate that it holds.
    const SECONDS: f64 = 0.25;

    fn new(rate: NonZeroU32, now: Duration) -> Self {
        let per_second = f64::from(rate.get());
        Self { per_second, credit: (per_second * Self::SECONDS).max(1.0), filled_at: now }
    }

    fn fill(&mut self, now: Duration) {
        let seconds = now.saturating_sub(self.filled_at).as_secs_f64();
        let most = (self.per_second * Self::SECONDS).max(1.0);
        self.credit = (self.credit + seconds * self.per_second).min(most);
        self.filled_at = now;
    }

    /// How long until something may be taken out again.
    fn pause(&self) -> Duration {
        Duration::from_secs_f64((-self.credit).max(0.0) / self.per_second)
    }
}

impl Throttle {
    /// A throttle with these rates; `None` if they bound nothing.
    pub(crate) fn new(rates: Rates, now: Duration) -> Option<Self> {
        let bucket = |rate: Option<NonZeroU32>| rate.map(|rate| Bucket::new(rate, now));
        let (bytes, messages) = (bucket(rates.bytes), bucket(rates.messages));
        let is_bound = bytes.is_some() || messages.is_some();
        let (rests_until, rounds) = (None, SmallVec::new());
        is_bound.then_some(Self { bytes, messages, rests_until, rounds })
    }

    /// How much may be sent now; at least one publication.
    pub(crate) fn allowance(&mut self, now: Duration) -> Allowance {
        let credit = |bucket: &mut Option<Bucket>| match bucket {
            None => usize::MAX,
            Some(bucket) => {
                bucket.fill(now);
                bucket.credit.max(1.0) as usize
            }
        };
        Allowance { bytes: credit(&mut self.bytes), messages: credit(&mut self.messages) }
    }

    /// Takes out what was sent; answers until when the session then has to rest.
    pub(crate) fn charge(
        &mut self,
        bytes: usize,
        messages: usize,
        now: Duration,
    ) -> Option<Duration> {
        let mut pause = Duration::ZERO;
        for (bucket, amount) in [(&mut self.bytes, bytes), (&mut self.messages, messages)] {
            if let Some(bucket) = bucket {
                bucket.fill(now);
                bucket.credit -= amount as f64;
                // With less than one left a publication would only go into debt.
                let lacks = if bucket.credit < 1.0 {
                    (1.0 - bucket.credit) / bucket.per_second
                } else {
                    0.0
                };
                pause = pause.max(bucket.pause()).max(Duration::from_secs_f64(lacks));
            }
        }
        self.rests_until = (!pause.is_zero()).then(|| now + pause);
        self.rests_until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_in_the_long_run_is_what_the_rate_says() {
        let rates = Rates { bytes: NonZeroU32::new(1_000), messages: None };
        let mut throttle = Throttle::new(rates, Duration::ZERO).expect("bound");
        let (mut now, mut sent) = (Duration::ZERO, 0);
        while now < Duration::from_secs(60) {
            let allowed = throttle.allowance(now).bytes.min(700);
            sent += allowed;
            now = throttle.charge(allowed, 1, now).unwrap_or(now + Duration::from_millis(1));
        }
        assert!((59_000..=61_000).contains(&sent), "{sent} bytes in a minute");
    }

    #[test]
    fn a_large_message_is_sent_whole_and_paid_for_afterwards() {
        let rates = Rates { bytes: NonZeroU32::new(1_000), messages: NonZeroU32::new(10) };
        let mut throttle = Throttle::new(rates, Duration::ZERO).expect("bound");
        let until = throttle.charge(10_250, 1, Duration::ZERO).expect("in debt");
        assert!(
            (Duration::from_secs(10)..Duration::from_millis(10_010)).contains(&until),
            "{until:?}"
        );
        assert_eq!(Throttle::new(Rates::default(), Duration::ZERO).map(|_| ()), None);
    }
}

/// What a session is told next, of its subscriptions of one priority.
#[derive(Debug)]
pub(crate) struct Round {
    pub(crate) priority: i8,
    /// Who read when it began and how far each could, and that no topic had another reader since: else it ends early.
    pub(crate) audiences: SmallVec<[(AudienceIndex, u64); 2]>,
    pub(crate) readers_changed: u64,
    /// After it up to `through` all that is to be told is in `numbers`.
    pub(crate) first: u64,
    pub through: u64,
    pub(crate) numbers: Vec<u64>,
}

impl Round {
    /// What is still to be told to one who stands at `cursor`.
    pub(crate) fn after(&self, cursor: u64) -> &[u64] {
        &self.numbers[self.numbers.partition_point(|number| *number <= cursor)..]
    }

    pub(crate) fn is_of(&self, lags: &[Lag], readers_changed: u64) -> bool {
        self.readers_changed == readers_changed
            && lags.iter().all(|lag| lag.cursor >= self.first)
            && reaching(lags, self.through).eq(self.audiences.iter().copied())
    }
}

/// How far each may read in a round.
pub(crate) fn reaching(lags: &[Lag], through: u64) -> impl Iterator<Item = (AudienceIndex, u64)> {
    lags.iter().map(move |lag| (lag.audience, lag.bound.min(through)))
}
