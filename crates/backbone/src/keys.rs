//! The idempotency keys of the last while, bounded by count and by time.
//!
//! The window is counted on the monotonic clock: a step of the wall clock neither forgets a key early nor
//! keeps one too long. Only keys found on a disk come with a wall time, which says how old they were.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use model::planted::{Fault, is_planted};
use model::{Limits, Moment, RandomState, Sequence, TopicName};

/// Which publication each key stood for.
pub(crate) struct KeyWindow {
    count_max: usize,
    window: Duration,
    known: HashMap<(TopicName, Arc<str>), Sequence, RandomState>,
    by_age: VecDeque<Aging>,
}

/// A use of a key, that is forgotten when its time is up.
struct Aging {
    until: Duration,
    topic: TopicName,
    key: Arc<str>,
    /// A later use of the same key stands for another one.
    sequence: Sequence,
}

/// The time that keys grow old by.
fn clock(now: Moment) -> Duration {
    match is_planted(Fault::KeysByTheWallClock) {
        true => Duration::from_millis(now.unix_ms),
        false => now.elapsed,
    }
}

impl KeyWindow {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            count_max: limits.idempotency_keys_max,
            window: limits.idempotency_window_ms,
            known: HashMap::default(),
            by_age: VecDeque::new(),
        }
    }

    pub(crate) fn find(&mut self, topic: &TopicName, key: &str, now: Moment) -> Option<Sequence> {
        self.forget_old(clock(now));
        self.known.get(&(topic.clone(), key.into())).copied()
    }

    /// Remembers a key that is kept now.
    pub(crate) fn remember(
        &mut self,
        topic: TopicName,
        key: Box<str>,
        sequence: Sequence,
        now: Moment,
    ) {
        let now = clock(now);
        self.remember_until(topic, key.into(), sequence, now.saturating_add(self.window));
        self.forget_old(now);
    }

    /// Remembers a key that a disk kept since `unix_ms`; keys are given in order of time.
    pub(crate) fn restore(
        &mut self,
        topic: TopicName,
        key: Box<str>,
        sequence: Sequence,
        unix_ms: u64,
        now: Moment,
    ) {
        let age = Duration::from_millis(now.unix_ms.saturating_sub(unix_ms));
        let until = clock(now).saturating_add(self.window.saturating_sub(age));
        self.remember_until(topic, key.into(), sequence, until);
        self.forget_old(clock(now));
    }

    fn remember_until(
        &mut self,
        topic: TopicName,
        key: Arc<str>,
        sequence: Sequence,
        until: Duration,
    ) {
        self.by_age.push_back(Aging {
            until,
            topic: topic.clone(),
            key: Arc::clone(&key),
            sequence,
        });
        self.known.insert((topic, key), sequence);
    }

    fn forget_old(&mut self, now: Duration) {
        while let Some(oldest) = self.by_age.front() {
            if oldest.until > now && self.by_age.len() <= self.count_max {
                return;
            }
            let Some(Aging { topic, key, sequence, .. }) = self.by_age.pop_front() else { return };
            let place = (topic, key);
            if self.known.get(&place) == Some(&sequence) {
                self.known.remove(&place);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic() -> TopicName {
        TopicName::parse("a", &Limits::default()).expect("valid")
    }

    fn at(seconds: u64, unix_ms: u64) -> Moment {
        Moment { elapsed: Duration::from_secs(seconds), unix_ms }
    }

    fn sequence(number: u64) -> Sequence {
        Sequence::new(number).expect("small")
    }

    #[test]
    fn a_key_that_is_used_again_is_known_for_its_own_time() {
        let mut keys = KeyWindow::new(&Limits::default());
        keys.restore(topic(), "k".into(), sequence(1), 0, at(0, 290_000));
        keys.restore(topic(), "k".into(), sequence(2), 280_000, at(0, 290_000));
        assert_eq!(keys.find(&topic(), "k", at(11, 0)), Some(sequence(2)), "the older use is over");
        assert_eq!(keys.find(&topic(), "k", at(289, 0)), Some(sequence(2)));
        assert_eq!(keys.find(&topic(), "k", at(290, 0)), None);
        assert!(keys.known.is_empty() && keys.by_age.is_empty());
    }

    #[test]
    fn steps_of_the_wall_clock_change_nothing() {
        let mut keys = KeyWindow::new(&Limits::default());
        keys.remember(topic(), "k".into(), sequence(1), at(10, 1_000_000));
        assert_eq!(keys.find(&topic(), "k", at(11, u64::MAX)), Some(sequence(1)), "a step forward");
        keys.remember(topic(), "l".into(), sequence(2), at(12, 5));
        assert_eq!(keys.find(&topic(), "k", at(309, 0)), Some(sequence(1)), "a step back");
        assert_eq!(keys.find(&topic(), "k", at(310, 0)), None);
        // What a disk kept may seem to come from the future: it is known for one whole window.
        keys.restore(topic(), "m".into(), sequence(3), 2_000_000, at(400, 1_000_000));
        assert_eq!(keys.find(&topic(), "m", at(699, 0)), Some(sequence(3)));
        assert_eq!(keys.find(&topic(), "m", at(700, 0)), None);
    }
}
