//! The publications of one topic that are still kept, oldest first: each follows the one before it.

use std::collections::VecDeque;

use model::{Moment, Publication, Sequence, TopicPolicy};

/// A kept publication and the delivery number under which this shard's readers were given it.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub delivery: u64,
    pub publication: Publication,
}

/// The kept publications of one topic, and what is known of those no longer kept.
#[derive(Debug, Default)]
pub(crate) struct History {
    kept: VecDeque<Kept>,
    bytes: usize,
    /// Delivery number of the newest publication that was dropped; 0 before any was.
    dropped_through: u64,
    /// A timer is set for when the oldest will be too old.
    pub is_timed: bool,
}

/// Where a reader stands that took everything up to some delivery number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// It took this sequence last.
    After(Sequence),
    /// It lacks publications that are gone, the last of them being this one.
    Lost(Sequence),
}

impl History {
    /// Keeps `publication`, and drops what `policy` no longer wants.
    pub(crate) fn push(
        &mut self,
        delivery: u64,
        publication: Publication,
        policy: &TopicPolicy,
        now: Moment,
    ) {
        if self.newest().is_some_and(|newest| !publication.follows(newest.sequence())) {
            self.lose(delivery);
        }
        self.bytes += publication.kept_bytes();
        self.kept.push_back(Kept { delivery, publication });
        self.drop_unwanted(policy, now);
    }

    /// Drops what `policy` no longer wants. The newest stays if it is to be retained.
    pub(crate) fn drop_unwanted(&mut self, policy: &TopicPolicy, now: Moment) {
        let stay = usize::from(policy.retain);
        let oldest_ms = policy
            .history_age
            .map(|age| now.unix_ms.saturating_sub(u64::try_from(age.as_millis()).unwrap_or(0)));
        while self.kept.len() > stay {
            let oldest = &self.kept[0].publication;
            let is_wanted = self.kept.len() <= policy.held_count()
                && self.bytes <= policy.held_bytes()
                && oldest_ms.is_none_or(|limit| oldest.unix_ms() >= limit);
            if is_wanted {
                return;
            }
            self.drop_oldest();
        }
    }

    /// When the oldest will be too old, if it then goes.
    pub(crate) fn oldest_goes_ms(&self, policy: &TopicPolicy) -> Option<u64> {
        let age_ms = u64::try_from(policy.history_age?.as_millis()).ok()?;
        let oldest = self.oldest().filter(|_| self.kept.len() > usize::from(policy.retain))?;
        Some(oldest.unix_ms().saturating_add(age_ms).saturating_add(1))
    }

    /// Forgets everything: what follows does not join on to it. `delivery` told the readers so.
    pub(crate) fn lose(&mut self, delivery: u64) {
        self.kept.clear();
        (self.bytes, self.dropped_through) = (0, delivery);
    }

    /// Drops the oldest until so many are left; answers how many payload bytes those had.
    pub(crate) fn drop_to(&mut self, count: usize) -> u64 {
        let before = self.bytes;
        while self.kept.len() > count {
            self.drop_oldest();
        }
        self.kept.shrink_to(count * 2);
        (before - self.bytes) as u64
    }

    pub(crate) fn len(&self) -> usize {
        self.kept.len()
    }

    fn drop_oldest(&mut self) {
        if let Some(oldest) = self.kept.pop_front() {
            self.bytes -= oldest.publication.kept_bytes();
            self.dropped_through = oldest.delivery;
        }
    }

    pub(crate) fn newest(&self) -> Option<&Publication> {
        self.kept.back().map(|kept| &kept.publication)
    }

    pub(crate) fn oldest(&self) -> Option<&Publication> {
        self.kept.front().map(|kept| &kept.publication)
    }

    /// Everything after this is kept, if something is.
    pub(crate) fn kept_after(&self) -> Option<Sequence> {
        self.oldest().map(Publication::previous)
    }

    /// After what the newest `count` come, if so many are kept. There is one at least.
    pub(crate) fn before_newest(&self, count: usize) -> Option<Sequence> {
        let first = self.kept.len().checked_sub(count)?;
        self.kept.get(first).map(|kept| kept.publication.previous())
    }

    /// How many of the kept publications come after one sequence, through another.
    pub(crate) fn count_between(&self, after: Sequence, through: Sequence) -> u64 {
        let end = |at| self.kept.partition_point(|kept| kept.publication.sequence() <= at) as u64;
        end(through).saturating_sub(end(after))
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Publication> {
        self.kept.iter().map(|kept| &kept.publication)
    }

    /// The first of the kept publications that is not older than a moment: the times of a topic only grow.
    pub(crate) fn first_since(&self, unix_ms: u64) -> Option<&Publication> {
        let at = self.kept.partition_point(|kept| kept.publication.unix_ms() < unix_ms);
        self.kept.get(at).map(|kept| &kept.publication)
    }

    /// The kept publications after `sequence`, oldest first.
    pub(crate) fn after(&self, sequence: Sequence) -> impl Iterator<Item = &Publication> {
        let from = self.kept.partition_point(|kept| kept.publication.sequence() <= sequence);
        self.kept.range(from..).map(|kept| &kept.publication)
    }

    /// The kept publications before `sequence`, oldest first.
    pub(crate) fn before(
        &self,
        sequence: Sequence,
    ) -> impl DoubleEndedIterator<Item = &Publication> {
        let end = self.kept.partition_point(|kept| kept.publication.sequence() < sequence);
        self.kept.range(..end).map(|kept| &kept.publication)
    }

    /// Whether every publication delivered after `delivery` is still kept.
    pub(crate) fn reaches_back_to(&self, delivery: u64) -> bool {
        self.dropped_through <= delivery
    }

    /// Delivery numbers of the kept publications delivered after `delivery`.
    pub(crate) fn deliveries_after(&self, delivery: u64) -> impl Iterator<Item = u64> {
        let from = self.kept.partition_point(|kept| kept.delivery <= delivery);
        self.kept.range(from..).map(|kept| kept.delivery)
    }

    /// Where a reader stands that took everything up to delivery number `delivery`, when the
    /// topic's newest publication is `head` and was delivered as `head_delivery`.
    pub(crate) fn place_at(&self, delivery: u64, head: Sequence, head_delivery: u64) -> Place {
        if head_delivery <= delivery {
            return Place::After(head);
        }
        let from = self.kept.partition_point(|kept| kept.delivery <= delivery);
        match self.kept.get(from) {
            Some(first_missed) => {
                let before = first_missed.publication.previous();
                let is_whole = from > 0 || self.dropped_through <= delivery;
                if is_whole { Place::After(before) } else { Place::Lost(before) }
            }
            None => Place::Lost(head),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use model::{Payload, PayloadKind};

    use super::*;

    fn at(unix_ms: u64) -> Moment {
        Moment { elapsed: Duration::from_millis(unix_ms), unix_ms }
    }

    fn history(policy: &TopicPolicy, deliveries: &[u64]) -> History {
        let mut history = History::default();
        let mut sequence = Sequence::START;
        for &delivery in deliveries {
            sequence = sequence.next();
            let payload = Payload::new(PayloadKind::Text, b"0123456789");
            let publication = Publication::new(payload, sequence, at(delivery));
            history.push(delivery, publication, policy, at(delivery));
        }
        history
    }

    fn sequences(history: &History) -> Vec<u64> {
        history.iter().map(|publication| publication.sequence().get()).collect()
    }

    #[test]
    fn it_keeps_by_count_bytes_and_age() {
        let whole = TopicPolicy::default();
        let cases = [
            (TopicPolicy { history_count: 2, ..whole.clone() }, vec![3, 4]),
            (TopicPolicy { history_bytes: Some(35), ..whole.clone() }, vec![2, 3, 4]),
            (
                TopicPolicy { history_age: Some(Duration::from_millis(10)), ..whole.clone() },
                vec![3, 4],
            ),
            (TopicPolicy { history_count: 0, ..whole.clone() }, vec![4]),
            (TopicPolicy { history_count: 0, retain: false, ..whole }, vec![]),
        ];
        for (policy, expected) in cases {
            assert_eq!(sequences(&history(&policy, &[10, 20, 30, 40])), expected, "{policy:?}");
        }
    }

    #[test]
    fn it_keeps_what_follows_over_a_hole_in_the_numbering_and_forgets_what_does_not() {
        let policy = TopicPolicy::default();
        let mut history = History::default();
        let mut push = |previous: u64, number: u64| {
            let sequence = |number| Sequence::new(number).expect("small");
            let payload = Payload::new(PayloadKind::Text, b"0123456789");
            let publication =
                Publication::after(sequence(previous), payload, sequence(number), at(number));
            history.push(number, publication, &policy, at(number));
            sequences(&history)
        };
        push(0, 3);
        assert_eq!(push(3, 7), [3, 7]);
        assert_eq!(push(7, 8), [3, 7, 8]);
        assert_eq!(push(9, 12), [12], "9 was never heard of");
    }

    #[test]
    fn a_place_is_exact_while_history_reaches_back() {
        let policy = TopicPolicy { history_count: 2, ..TopicPolicy::default() };
        let history = history(&policy, &[10, 20, 30, 40]);
        let sequence = |number| Sequence::new(number).expect("small");
        let cases = [
            (40, Place::After(sequence(4))),
            (35, Place::After(sequence(3))),
            (30, Place::After(sequence(3))),
            (25, Place::After(sequence(2))),
            (20, Place::After(sequence(2))),
            (19, Place::Lost(sequence(2))),
        ];
        for (delivery, place) in cases {
            assert_eq!(history.place_at(delivery, sequence(4), 40), place, "at {delivery}");
        }
    }
}
