//! The embedded memory backbone: it gives numbers and remembers them, nothing else.
//!
//! The publications themselves are kept by the hub's history, the only one in memory.

use std::collections::{HashMap, VecDeque};

use model::{
    AckLevel, Draft, Epoch, Limits, Moment, PARTITIONS, Position, Publication, RandomState,
    Sequence, TopicName, partition_of,
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
    /// Where the sequences of a topic have holes, because the topics of a partition are numbered together.
    partitions: Option<Box<Partitions>>,
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
            partitions: None,
            heads: HashMap::default(),
            keys: KeyWindow::new(limits),
            events: VecDeque::new(),
            times: LatestTime::default(),
        }
    }

    /// Numbers the topics of a partition together and passes over some numbers, as a broker's stream does that others
    /// write to as well. For tests: everything that reads sequences must do without their being dense.
    #[must_use]
    pub fn with_holes(self) -> Self {
        Self { partitions: Some(Box::default()), ..self }
    }

    /// Labels publications with times that others share.
    #[must_use]
    pub fn with_times(self, times: LatestTime) -> Self {
        Self { times, ..self }
    }

    fn position(&self, sequence: Sequence) -> Position {
        Position { epoch: self.epoch.clone(), sequence }
    }

    /// Gives the next place in a topic: the sequence before it there, and its own.
    fn place(&mut self, topic: &TopicName) -> (Sequence, Sequence) {
        let known = self.heads.get_mut(topic);
        let previous = known.as_deref().copied().unwrap_or(Sequence::START);
        let sequence = match &mut self.partitions {
            Some(partitions) => partitions.next(topic),
            None => previous.next(),
        };
        match known {
            Some(head) => *head = sequence,
            None => drop(self.heads.insert(topic.clone(), sequence)),
        }
        (previous, sequence)
    }

    fn head_of(&self, topic: &TopicName) -> Position {
        self.position(self.heads.get(topic).copied().unwrap_or(Sequence::START))
    }
}

/// The newest number of each partition.
#[derive(Default)]
struct Partitions([Sequence; PARTITIONS as usize]);

impl Partitions {
    /// The next number in the partition of a topic: in three cases of four it is right after the last one, so that a topic that
    /// is alone there has sequences that are dense for a while, and in the fourth up to seven numbers are others'.
    fn next(&mut self, topic: &TopicName) -> Sequence {
        const OTHERS: [u64; 8] = [0, 3, 0, 0, 7, 0, 0, 0];
        let newest = &mut self.0[usize::from(partition_of(topic))];
        let others = OTHERS[(newest.get() % 8) as usize];
        let sequence = Sequence::new(newest.get() + others).unwrap_or(Sequence::MAX);
        *newest = sequence.next();
        *newest
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
        let (previous, sequence) = self.place(&topic);
        if let Some(key) = idempotency_key {
            self.keys.remember(topic.clone(), key, sequence, now);
        }
        self.events.push_back(BackboneEvent::Kept {
            ticket: Some(ticket),
            position: self.position(sequence),
            publication: Publication::after(previous, payload, sequence, self.times.label(now)),
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
            is_contiguous: self.partitions.is_none(),
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

    fn with_holes(life: u64) -> MemoryBackbone {
        memory_of(life).with_holes()
    }

    /// A process, of which nothing is left once it is killed.
    struct Process {
        lives: u64,
        start: fn(u64) -> MemoryBackbone,
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
            self.backbone = (self.start)(self.lives);
        }
    }

    #[test]
    fn it_keeps_the_contract_with_and_without_holes() {
        for start in [memory_of, with_holes] {
            let lives = std::cell::Cell::new(0);
            contract::check(&mut || {
                lives.set(lives.get() + 1);
                let backbone = start(lives.get());
                Box::new(Process { lives: lives.get(), start, backbone })
            });
        }
    }

    #[test]
    fn a_topic_of_a_partition_has_holes_where_others_are_and_says_what_was_before() {
        let limits = Limits::default();
        let mut backbone = with_holes(1);
        let mut place_of = |name: &str| {
            let draft = Draft {
                topic: TopicName::parse(name, &limits).expect("valid"),
                payload: Payload::new(PayloadKind::Text, b"x"),
                idempotency_key: None,
                expected: None,
            };
            let now = Moment { elapsed: Duration::ZERO, unix_ms: 0 };
            backbone.append(Ticket(0), draft, AckLevel::Memory, now);
            match backbone.poll_event() {
                Some(BackboneEvent::Kept { position, publication, .. }) => {
                    assert_eq!(position.sequence, publication.sequence());
                    (publication.previous().get(), position.sequence.get())
                }
                other => panic!("unexpected {other:?}"),
            }
        };
        // Two of one partition, and one of another.
        let places = ["room/1", "a/b/c/d/e/f/g/h/i", "a", "room/1", "room/1"].map(&mut place_of);
        assert_eq!(places, [(0, 1), (0, 5), (0, 1), (1, 6), (6, 7)]);
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
