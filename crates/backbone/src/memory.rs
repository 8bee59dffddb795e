//! The embedded memory backbone: it gives numbers and remembers them, nothing else.
//!
//! The publications themselves are kept by the hub's history, the only one in memory.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use foldhash::fast::RandomState;
use model::{AckLevel, Draft, Epoch, Limits, Moment, Position, Publication, Sequence, TopicName};

use crate::{Backbone, BackboneEvent, Ticket};

/// Orders publications for as long as the process lives: its epoch ends with it.
///
/// Cost per topic that was ever published to: one map entry of 24 bytes (the name is shared).
pub struct MemoryBackbone {
    epoch: Epoch,
    heads: HashMap<TopicName, Sequence, RandomState>,
    keys: KeyWindow,
    events: VecDeque<BackboneEvent>,
}

impl MemoryBackbone {
    /// An empty backbone whose positions are of `epoch`, which must never have been used before.
    pub fn new(epoch: Epoch, limits: &Limits) -> Self {
        Self {
            epoch,
            heads: HashMap::default(),
            keys: KeyWindow::new(limits.idempotency_keys_max, limits.idempotency_window_ms),
            events: VecDeque::new(),
        }
    }

    fn position(&self, sequence: Sequence) -> Position {
        Position { epoch: self.epoch.clone(), sequence }
    }

    fn head_of(&self, topic: &TopicName) -> Position {
        self.position(self.heads.get(topic).copied().unwrap_or(Sequence::START))
    }
}

impl Backbone for MemoryBackbone {
    fn append(&mut self, ticket: Ticket, draft: Draft, _level: AckLevel, now: Moment) {
        let Draft { topic, payload, idempotency_key } = draft;
        if let Some(key) = &idempotency_key
            && let Some(sequence) = self.keys.find(&topic, key, now)
        {
            let position = self.position(sequence);
            self.events.push_back(BackboneEvent::Repeated { ticket, topic, position });
            return;
        }
        let sequence = match self.heads.get_mut(&topic) {
            Some(head) => {
                *head = head.next();
                *head
            }
            None => {
                let first = Sequence::START.next();
                self.heads.insert(topic.clone(), first);
                first
            }
        };
        if let Some(key) = idempotency_key {
            self.keys.remember(topic.clone(), key, sequence, now);
        }
        self.events.push_back(BackboneEvent::Kept {
            ticket: Some(ticket),
            position: self.position(sequence),
            publication: Publication::new(payload, sequence, now),
            topic,
        });
    }

    fn head(&mut self, topic: &TopicName) {
        let position = self.head_of(topic);
        self.events.push_back(BackboneEvent::Head { topic: topic.clone(), position });
    }

    fn follow(&mut self, topic: &TopicName) {
        // Nobody else publishes here: the head is all there is to tell.
        self.head(topic);
    }

    fn unfollow(&mut self, _topic: &TopicName) {}

    fn poll_event(&mut self) -> Option<BackboneEvent> {
        self.events.pop_front()
    }
}

/// The idempotency keys of the last while, bounded by count and by time.
struct KeyWindow {
    count_max: usize,
    window: Duration,
    known: HashMap<(TopicName, Box<str>), Sequence, RandomState>,
    by_age: VecDeque<(Duration, TopicName, Box<str>)>,
}

impl KeyWindow {
    fn new(count_max: usize, window: Duration) -> Self {
        Self { count_max, window, known: HashMap::default(), by_age: VecDeque::new() }
    }

    fn find(&mut self, topic: &TopicName, key: &str, now: Moment) -> Option<Sequence> {
        self.forget_old(now);
        self.known.get(&(topic.clone(), key.into())).copied()
    }

    fn remember(&mut self, topic: TopicName, key: Box<str>, sequence: Sequence, now: Moment) {
        self.by_age.push_back((now.elapsed, topic.clone(), key.clone()));
        self.known.insert((topic, key), sequence);
        self.forget_old(now);
    }

    fn forget_old(&mut self, now: Moment) {
        while let Some((kept_at, _, _)) = self.by_age.front() {
            let is_old = now.elapsed.saturating_sub(*kept_at) >= self.window;
            if !is_old && self.by_age.len() <= self.count_max {
                return;
            }
            if let Some((_, topic, key)) = self.by_age.pop_front() {
                self.known.remove(&(topic, key));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use model::{Payload, PayloadKind};

    use super::*;
    use crate::contract;

    fn memory(limits: &Limits) -> MemoryBackbone {
        MemoryBackbone::new(Epoch::new("e1"), limits)
    }

    #[test]
    fn it_keeps_the_contract() {
        contract::check(|| memory(&Limits::default()));
    }

    #[test]
    fn keys_are_forgotten_by_time_and_by_count() {
        let limits = Limits { idempotency_keys_max: 2, ..Limits::default() };
        let mut backbone = memory(&limits);
        let mut sequence_of = |key: &str, seconds: u64| {
            let draft = Draft {
                topic: TopicName::parse("a", &limits).expect("valid"),
                payload: Payload::new(PayloadKind::Text, b"x"),
                idempotency_key: Some(key.into()),
            };
            let now = Moment { elapsed: Duration::from_secs(seconds), unix_ms: 0 };
            backbone.append(Ticket(0), draft, AckLevel::Memory, now);
            match backbone.poll_event() {
                Some(BackboneEvent::Kept { position, .. }) => (true, position.sequence.get()),
                Some(BackboneEvent::Repeated { position, .. }) => (false, position.sequence.get()),
                other => panic!("unexpected {other:?}"),
            }
        };
        assert_eq!(sequence_of("one", 0), (true, 1));
        assert_eq!(sequence_of("one", 1), (false, 1));
        assert_eq!(sequence_of("two", 2), (true, 2));
        assert_eq!(sequence_of("three", 3), (true, 3), "the third key pushes the first out");
        assert_eq!(sequence_of("one", 4), (true, 4));
        assert_eq!(sequence_of("one", 4 + 300), (true, 5), "the window is over");
    }
}
