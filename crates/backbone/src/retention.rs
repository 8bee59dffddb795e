//! Retention on disk for each topic: by count, by age, by bytes.

use std::collections::VecDeque;
use std::time::Duration;

use model::{Publication, Sequence, TopicName};

/// How much of a topic stays on disk. The newest publication always does: the numbering goes on from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Publications.
    pub count: u64,
    /// Bytes of their payloads.
    pub bytes: u64,
    /// How old they may grow.
    pub age: Option<Duration>,
}

/// Tells the retention of a topic.
pub type RetentionOf = Box<dyn Fn(&TopicName) -> Retention + Send>;

/// One of a topic's oldest records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Front {
    pub sequence: Sequence,
    pub bytes: u64,
    pub unix_ms: u64,
}

/// The records of one topic on disk.
#[derive(Debug)]
pub(crate) struct Kept {
    retention: Retention,
    oldest: Sequence,
    oldest_ms: u64,
    newest: Sequence,
    bytes: u64,
    /// The oldest records, as far as they were looked at.
    front: VecDeque<Front>,
    /// Whether somebody will come back when the oldest grows too old.
    pub is_due: bool,
}

impl Kept {
    pub fn new(retention: Retention) -> Self {
        Self {
            retention,
            oldest: Sequence::START,
            oldest_ms: 0,
            newest: Sequence::START,
            bytes: 0,
            front: VecDeque::new(),
            is_due: false,
        }
    }

    /// Counts a record that is on disk now.
    pub fn push(&mut self, publication: &Publication) {
        if self.oldest == Sequence::START {
            (self.oldest, self.oldest_ms) = (publication.sequence(), publication.unix_ms());
        }
        self.newest = publication.sequence();
        self.bytes += publication.kept_bytes() as u64;
    }

    /// Whether its records are removed when they grow old.
    pub fn ages(&self) -> bool {
        self.retention.age.is_some() && self.oldest < self.newest
    }

    /// When its oldest record grows too old, unless that is the newest too.
    pub fn due_at(&self) -> Option<u64> {
        let age = self.retention.age.filter(|_| self.oldest < self.newest)?;
        let age_ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        Some(self.oldest_ms.saturating_add(age_ms).saturating_add(1))
    }

    /// Whether the oldest record need not stay.
    pub fn is_too_much(&self, now_ms: u64) -> bool {
        let count = self.newest.get() - self.oldest.get() + 1;
        self.oldest < self.newest
            && (count > self.retention.count
                || self.bytes > self.retention.bytes
                || self.due_at().is_some_and(|at| at <= now_ms))
    }

    /// The oldest record, to be removed, if it need not stay. `load` reads records from a sequence on.
    ///
    /// # Errors
    /// The error of `load`.
    pub fn pop_unwanted<Error>(
        &mut self,
        now_ms: u64,
        load: impl Fn(Sequence) -> Result<Vec<Front>, Error>,
    ) -> Result<Option<Sequence>, Error> {
        if !self.is_too_much(now_ms) {
            return Ok(None);
        }
        if self.front.is_empty() {
            self.front = load(self.oldest)?.into();
        }
        let Some(first) = self.front.pop_front() else { return Ok(None) };
        if self.front.is_empty() {
            self.front = load(first.sequence.next())?.into();
        }
        self.bytes = self.bytes.saturating_sub(first.bytes);
        if let Some(next) = self.front.front() {
            (self.oldest, self.oldest_ms) = (next.sequence, next.unix_ms);
        }
        Ok(Some(first.sequence))
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use model::{Moment, Payload, PayloadKind};

    use super::*;

    /// Ten records of 10 bytes, a millisecond apart; answers which ones are removed at `now_ms`.
    fn removed(retention: Retention, now_ms: u64) -> Vec<u64> {
        let mut kept = Kept::new(retention);
        let mut all = Vec::new();
        let mut sequence = Sequence::START;
        for unix_ms in 1..=10 {
            sequence = sequence.next();
            let moment = Moment { elapsed: Duration::ZERO, unix_ms };
            let payload = Payload::new(PayloadKind::Text, b"0123456789");
            kept.push(&Publication::new(payload, sequence, moment));
            all.push(Front { sequence, bytes: 10, unix_ms });
        }
        let load = |from: Sequence| {
            let rest = all.iter().filter(|front| front.sequence >= from);
            Ok::<_, Infallible>(rest.take(3).copied().collect())
        };
        let mut removed = Vec::new();
        while let Ok(Some(sequence)) = kept.pop_unwanted(now_ms, load) {
            removed.push(sequence.get());
        }
        removed
    }

    #[test]
    fn the_oldest_go_by_count_bytes_and_age_and_the_newest_stays() {
        let all = Retention { count: u64::MAX, bytes: u64::MAX, age: None };
        let age = |ms| Some(Duration::from_millis(ms));
        let cases = [
            (all, vec![]),
            (Retention { count: 7, ..all }, vec![1, 2, 3]),
            (Retention { bytes: 55, ..all }, vec![1, 2, 3, 4, 5]),
            (Retention { age: age(92), ..all }, (1..=7).collect()),
            (Retention { age: age(92), count: 2, ..all }, (1..=8).collect()),
            (Retention { age: age(1), ..all }, (1..=9).collect()),
            (Retention { count: 0, bytes: 0, age: None }, (1..=9).collect()),
        ];
        for (retention, expected) in cases {
            assert_eq!(removed(retention, 100), expected, "{retention:?}");
        }
    }
}
