//! The embedded memory backbone: it gives numbers and remembers them, nothing else.
//!
//! The publications themselves are kept by the hub's history, the only one in memory.

use std::collections::{HashMap, VecDeque};

use model::{
    AckLevel, Draft, Epoch, Limits, Moment, Position, Publication, RandomState, Sequence, TopicName,
};

use crate::keys::KeyWindow;
use crate::{
    Abilities, Backbone, BackboneEvent, LatestTime, ReadWanted, Ticket, check_expected, check_level,
};

/// Orders publications for as long as the process lives: its epoch ends with it.
///
/// Cost per topic that was ever published to: one map entry of 24 bytes (the name is shared).
pub struct MemoryBackbone {
    epoch: Epoch,
    heads: HashMap<TopicName, Sequence, RandomState>,
    keys: KeyWindow,
    events: VecDeque<BackboneEvent>,
    times: LatestTime,
}

impl MemoryBackbone {
    /// An empty backbone whose positions are of `epoch`, which must never have been used before.
    pub fn new(epoch: Epoch, limits: &Limits) -> Self {
        Self {
            epoch,
            heads: HashMap::default(),
            keys: KeyWindow::new(limits),
            events: VecDeque::new(),
            times: LatestTime::default(),
        }
    }

    /// Labels publications with times that others share.
    #[must_use]
    pub fn with_times(self, times: LatestTime) -> Self {
        Self { times, ..self }
    }

    fn position(&self, sequence: Sequence) -> Position {
        Position { epoch: self.epoch.clone(), sequence }
    }

    fn head_of(&self, topic: &TopicName) -> Position {
        self.position(self.heads.get(topic).copied().unwrap_or(Sequence::START))
    }
}

impl Backbone for MemoryBackbone {
    fn append(&mut self, ticket: Ticket, draft: Draft, level: AckLevel, now: Moment) {
        if let Err(refusal) = check_level(&draft, level, self.abilities().level_max) {
            self.events.push_back(BackboneEvent::NotKept { ticket, refusal });
            return;
        }
        if let Some(key) = &draft.idempotency_key
            && let Some(sequence) = self.keys.find(&draft.topic, key, now)
        {
            let (topic, position) = (draft.topic, self.position(sequence));
            self.events.push_back(BackboneEvent::Repeated { ticket, topic, position });
            return;
        }
        if draft.expected.is_some()
            && let Err(refusal) = check_expected(&draft, &self.head_of(&draft.topic))
        {
            self.events.push_back(BackboneEvent::NotKept { ticket, refusal });
            return;
        }
        let Draft { topic, payload, idempotency_key, .. } = draft;
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
            publication: Publication::new(payload, sequence, self.times.label(now)),
            topic,
        });
    }

    fn follow(&mut self, topic: &TopicName) {
        // Nobody else publishes here, and what memory holds, the hub holds: the head is all there is to tell.
        let head = self.head_of(topic);
        let (topic, newest, complete_after) = (topic.clone(), Vec::new(), head.sequence);
        self.events.push_back(BackboneEvent::State { topic, head, newest, complete_after });
    }

    fn unfollow(&mut self, _topic: &TopicName) {}

    fn read(&mut self, ticket: Ticket, topic: &TopicName, _wanted: ReadWanted) {
        let (publications, complete_after) = (Vec::new(), self.head_of(topic).sequence);
        self.events.push_back(BackboneEvent::Read { ticket, publications, complete_after });
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            is_contiguous: true,
            expects: true,
            has_keys: true,
            has_history: false,
            level_max: AckLevel::Memory,
        }
    }

    fn poll_event(&mut self) -> Option<BackboneEvent> {
        self.events.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use model::{Payload, PayloadKind};

    use super::*;
    use crate::contract;

    fn memory(limits: &Limits) -> MemoryBackbone {
        MemoryBackbone::new(Epoch::new("e1"), limits)
    }

    fn memory_of(life: u64) -> MemoryBackbone {
        MemoryBackbone::new(Epoch::new(&format!("e{life}")), &Limits::default())
    }

    /// A process, of which nothing is left once it is killed.
    struct Process {
        lives: u64,
        backbone: MemoryBackbone,
    }

    impl contract::Subject for Process {
        fn backbone(&mut self) -> &mut dyn Backbone {
            &mut self.backbone
        }

        fn drive(&mut self) -> bool {
            false
        }

        fn restart(&mut self) {
            self.lives += 1_000;
            self.backbone = memory_of(self.lives);
        }
    }

    #[test]
    fn it_keeps_the_contract() {
        let lives = std::cell::Cell::new(0);
        contract::check(&mut || {
            lives.set(lives.get() + 1);
            Box::new(Process { lives: lives.get(), backbone: memory_of(lives.get()) })
        });
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
                expected: None,
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
