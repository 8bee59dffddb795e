//! The idempotency keys of the last while, bounded by count and by time.

use std::collections::{HashMap, VecDeque};

use foldhash::fast::RandomState;
use model::{Limits, Moment, Sequence, TopicName};

/// Which publication each key stood for.
pub(crate) struct KeyWindow {
    count_max: usize,
    window_ms: u64,
    known: HashMap<(TopicName, Box<str>), Sequence, RandomState>,
    by_age: VecDeque<(u64, TopicName, Box<str>)>,
}

impl KeyWindow {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            count_max: limits.idempotency_keys_max,
            window_ms: u64::try_from(limits.idempotency_window_ms.as_millis()).unwrap_or(u64::MAX),
            known: HashMap::default(),
            by_age: VecDeque::new(),
        }
    }

    pub(crate) fn find(&mut self, topic: &TopicName, key: &str, now: Moment) -> Option<Sequence> {
        self.forget_old(now.unix_ms);
        self.known.get(&(topic.clone(), key.into())).copied()
    }

    /// Remembers a key that was kept at `unix_ms`; keys are given in order of time.
    pub(crate) fn remember(
        &mut self,
        topic: TopicName,
        key: Box<str>,
        sequence: Sequence,
        unix_ms: u64,
    ) {
        self.by_age.push_back((unix_ms, topic.clone(), key.clone()));
        self.known.insert((topic, key), sequence);
        self.forget_old(unix_ms);
    }

    fn forget_old(&mut self, now_ms: u64) {
        while let Some((kept_ms, _, _)) = self.by_age.front() {
            let is_old = now_ms.saturating_sub(*kept_ms) >= self.window_ms;
            if !is_old && self.by_age.len() <= self.count_max {
                return;
            }
            if let Some((_, topic, key)) = self.by_age.pop_front() {
                self.known.remove(&(topic, key));
            }
        }
    }
}
