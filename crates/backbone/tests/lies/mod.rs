//! Backbones that are wrong in one way each, over one that is right.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};

use model::{
    AckLevel, Draft, Epoch, Limits, Moment, Payload, Position, Publication, Sequence, TopicName,
};
use tidegate_backbone::contract::Subject;
use tidegate_backbone::contract::stream::StreamSubject;
use tidegate_backbone::{Abilities, Backbone, BackboneEvent, MemoryBackbone, ReadWanted, Ticket};

/// One way to be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// It is honest.
    None,
    AnswersTwice,
    AnswersNot,
    AnswersWithAnotherTicket,
    TellsAnotherPayload,
    TellsTheNewerFirst,
    TellsAnotherPrevious,
    SaysThatItIsContiguous,
    TakesTheClockAsItIs,
    IgnoresKeys,
    RepeatsAnotherPosition,
    IgnoresWhatIsExpected,
    TakesAnyLevel,
    TellsAnOlderHead,
    TellsNoOthers,
    LosesOneOfOthers,
    TellsMoreThanItHas,
    IgnoresUnfollow,
    UnfollowsItsOwn,
    ReadsTooFew,
    ReadsBackwards,
    ReadsFromTheBeginning,
    ClaimsToBeComplete,
    ReadsWhatWasNeverKept,
    AnswersEarly,
    EndsItsEpoch,
    KeepsItsEpoch,
    ForgetsKeysOnTheWay,
    KeepsAfterAFault,
    PromisesWhatNobodyKnows,
    RefusesWhatNobodyKnows,
}

/// The lies, and the promise that each of them breaks.
pub const ALL: [(Lie, &str); 30] = [
    (Lie::AnswersTwice, "outcome"),
    (Lie::AnswersNot, "outcome"),
    (Lie::AnswersWithAnotherTicket, "outcome"),
    (Lie::TellsAnotherPayload, "payload"),
    (Lie::TellsTheNewerFirst, "order"),
    (Lie::TellsAnotherPrevious, "order"),
    (Lie::SaysThatItIsContiguous, "order"),
    (Lie::TakesTheClockAsItIs, "time"),
    (Lie::IgnoresKeys, "identity"),
    (Lie::RepeatsAnotherPosition, "identity"),
    (Lie::IgnoresWhatIsExpected, "expected"),
    (Lie::TakesAnyLevel, "levels"),
    (Lie::TellsAnOlderHead, "follow"),
    (Lie::TellsNoOthers, "follow"),
    (Lie::LosesOneOfOthers, "order"),
    (Lie::TellsMoreThanItHas, "follow"),
    (Lie::IgnoresUnfollow, "unfollow"),
    (Lie::UnfollowsItsOwn, "unfollow"),
    (Lie::ReadsTooFew, "read"),
    (Lie::ReadsBackwards, "read"),
    (Lie::ReadsFromTheBeginning, "read"),
    (Lie::ClaimsToBeComplete, "read"),
    (Lie::ReadsWhatWasNeverKept, "read"),
    (Lie::AnswersEarly, "safety"),
    (Lie::EndsItsEpoch, "safety"),
    (Lie::KeepsItsEpoch, "numbering"),
    (Lie::ForgetsKeysOnTheWay, "identity"),
    (Lie::KeepsAfterAFault, "faults"),
    (Lie::PromisesWhatNobodyKnows, "faults"),
    (Lie::RefusesWhatNobodyKnows, "faults"),
];

/// A subject whose backbone lies.
pub struct Lying(Liar);

/// The backbone that lies, and the honest one under it.
struct Liar {
    lie: Lie,
    honest: Box<dyn Subject>,
    /// What is to be told before anything else.
    events: VecDeque<BackboneEvent>,
    /// What is told after a newer one.
    held: Option<BackboneEvent>,
    unfollowed: BTreeSet<TopicName>,
    /// The newest position told.
    newest: Option<Position>,
    /// The clock when an append came.
    clocks: BTreeMap<Ticket, u64>,
    is_failing: bool,
    has_lied: bool,
    life: u64,
}

/// A process in memory.
struct InMemory {
    epoch: u64,
    renews: bool,
    backbone: MemoryBackbone,
}

impl InMemory {
    fn new(renews: bool) -> Self {
        static EPOCHS: AtomicU64 = AtomicU64::new(0);
        let epoch = EPOCHS.fetch_add(1_000, Ordering::Relaxed);
        Self { epoch, renews, backbone: in_memory(epoch) }
    }
}

fn in_memory(epoch: u64) -> MemoryBackbone {
    MemoryBackbone::new(Epoch::new(&format!("e{epoch}")), &Limits::default())
}

impl Subject for InMemory {
    fn backbone(&mut self) -> &mut dyn Backbone {
        &mut self.backbone
    }

    fn drive(&mut self) -> bool {
        false
    }

    fn restart(&mut self) {
        self.epoch += u64::from(self.renews);
        self.backbone = in_memory(self.epoch);
    }
}

impl Lying {
    pub fn new(lie: Lie) -> Self {
        let honest: Box<dyn Subject> = match lie {
            Lie::TakesAnyLevel => Box::new(InMemory::new(true)),
            Lie::KeepsItsEpoch | Lie::AnswersEarly => Box::new(InMemory::new(false)),
            _ => Box::new(StreamSubject::new()),
        };
        Self(Liar {
            lie,
            honest,
            events: VecDeque::new(),
            held: None,
            unfollowed: BTreeSet::new(),
            newest: None,
            clocks: BTreeMap::new(),
            is_failing: false,
            has_lied: false,
            life: 0,
        })
    }
}

impl Subject for Lying {
    fn backbone(&mut self) -> &mut dyn Backbone {
        &mut self.0
    }

    fn drive(&mut self) -> bool {
        self.0.honest.drive()
    }

    fn restart(&mut self) {
        self.0.honest.restart();
        self.0.events.clear();
        self.0.held = None;
        (self.0.is_failing, self.0.life) = (false, self.0.life + 1);
    }

    fn fail(&mut self) -> bool {
        self.0.is_failing = true;
        self.0.honest.fail()
    }

    fn publish_elsewhere(&mut self, draft: Draft) -> bool {
        self.0.honest.publish_elsewhere(draft)
    }
}

impl Backbone for Liar {
    fn append(&mut self, ticket: Ticket, mut draft: Draft, mut level: AckLevel, now: Moment) {
        self.clocks.insert(ticket, now.unix_ms);
        match self.lie {
            Lie::IgnoresKeys => draft.idempotency_key = None,
            Lie::IgnoresWhatIsExpected => draft.expected = None,
            Lie::TakesAnyLevel | Lie::AnswersEarly => level = AckLevel::Memory,
            Lie::ForgetsKeysOnTheWay => {
                let life = self.life;
                draft.idempotency_key =
                    draft.idempotency_key.map(|key| format!("{key} {life}").into());
            }
            Lie::PromisesWhatNobodyKnows if self.is_failing && draft.idempotency_key.is_some() => {
                let (topic, position) = (draft.topic, self.newest.clone().expect("one was kept"));
                self.events.push_back(BackboneEvent::Repeated { ticket, topic, position });
                return;
            }
            Lie::KeepsAfterAFault if self.is_failing => {
                let Position { epoch, sequence } = self.newest.clone().expect("one was kept");
                let publication = Publication::after(sequence, draft.payload, sequence.next(), now);
                let position = Position { epoch, sequence: sequence.next() };
                self.newest = Some(position.clone());
                let (ticket, topic) = (Some(ticket), draft.topic);
                let kept = BackboneEvent::Kept { ticket, topic, position, publication };
                self.events.push_back(kept);
                return;
            }
            _ => {}
        }
        self.honest.backbone().append(ticket, draft, level, now);
    }

    fn follow(&mut self, topic: &TopicName) {
        self.unfollowed.remove(topic);
        self.honest.backbone().follow(topic);
    }

    fn unfollow(&mut self, topic: &TopicName) {
        self.unfollowed.insert(topic.clone());
        if self.lie != Lie::IgnoresUnfollow {
            self.honest.backbone().unfollow(topic);
        }
    }

    fn read(&mut self, ticket: Ticket, topic: &TopicName, mut wanted: ReadWanted) {
        if self.lie == Lie::ReadsFromTheBeginning {
            wanted.after = Sequence::START;
        }
        self.honest.backbone().read(ticket, topic, wanted);
    }

    fn abilities(&self) -> Abilities {
        // What the honest one can do, without asking it: that would take it mutably.
        let honest = match self.lie {
            Lie::TakesAnyLevel | Lie::KeepsItsEpoch | Lie::AnswersEarly => in_memory(0).abilities(),
            _ => StreamSubject::new().backbone().abilities(),
        };
        match self.lie {
            Lie::SaysThatItIsContiguous => Abilities { is_contiguous: true, ..honest },
            Lie::AnswersEarly => Abilities { level_max: AckLevel::Disk, ..honest },
            _ => honest,
        }
    }

    fn poll_event(&mut self) -> Option<BackboneEvent> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        loop {
            let event = self.honest.backbone().poll_event()?;
            if let Some(event) = self.twist(event) {
                return Some(event);
            }
        }
    }
}

impl Liar {
    /// What is told of an event instead of it.
    fn twist(&mut self, event: BackboneEvent) -> Option<BackboneEvent> {
        Some(match event {
            BackboneEvent::Kept { ticket, topic, position, publication } => {
                self.newest = Some(position.clone());
                let (ticket, publication) = self.twist_kept(ticket, publication)?;
                let position = self.twist_epoch(position);
                let is_own = ticket.is_some();
                if self.lie == Lie::UnfollowsItsOwn && is_own && self.unfollowed.contains(&topic) {
                    return None;
                }
                let kept = BackboneEvent::Kept { ticket, topic, position, publication };
                return self.twist_order(kept);
            }
            BackboneEvent::Repeated { ticket, topic, position } => {
                let position = match (self.lie, &self.newest) {
                    (Lie::RepeatsAnotherPosition, Some(newest)) => newest.clone(),
                    _ => self.twist_epoch(position),
                };
                BackboneEvent::Repeated { ticket, topic, position }
            }
            BackboneEvent::Unknown { ticket, refusal } => match self.lie {
                Lie::RefusesWhatNobodyKnows => BackboneEvent::NotKept { ticket, refusal },
                _ => BackboneEvent::Unknown { ticket, refusal },
            },
            BackboneEvent::Read { ticket, publications, complete_after } => {
                self.twist_read(ticket, publications, complete_after)
            }
            BackboneEvent::State { topic, head, newest, complete_after } => {
                self.twist_state(topic, head, newest, complete_after)
            }
            other => other,
        })
    }

    fn twist_kept(
        &mut self,
        ticket: Option<Ticket>,
        publication: Publication,
    ) -> Option<(Option<Ticket>, Publication)> {
        let (previous, sequence) = (publication.previous(), publication.sequence());
        let again = |bytes: &[u8], previous, unix_ms| {
            let now = Moment { elapsed: std::time::Duration::ZERO, unix_ms };
            Publication::after(previous, Payload::new(publication.kind(), bytes), sequence, now)
        };
        let (payload, unix_ms) = (publication.payload(), publication.unix_ms());
        let is_first = !std::mem::replace(&mut self.has_lied, true);
        let twisted = match (self.lie, ticket) {
            (Lie::AnswersNot, Some(_)) if is_first => return None,
            (Lie::TellsNoOthers, None) => return None,
            (Lie::LosesOneOfOthers, None) if is_first => return None,
            (Lie::AnswersWithAnotherTicket, Some(Ticket(number))) => {
                return Some((Some(Ticket(number + 1_000)), publication));
            }
            (Lie::TellsAnotherPayload, _) => again(b"another", previous, unix_ms),
            (Lie::TellsAnotherPrevious, _) => again(payload, Sequence::START, unix_ms),
            (Lie::TakesTheClockAsItIs, Some(ticket)) => {
                again(payload, previous, self.clocks[&ticket])
            }
            _ => publication.clone(),
        };
        Some((ticket, twisted))
    }

    /// Tells something twice, or after the next one of its topic.
    fn twist_order(&mut self, kept: BackboneEvent) -> Option<BackboneEvent> {
        let topic_of = |event: &BackboneEvent| match event {
            BackboneEvent::Kept { topic, .. } => Some(topic.clone()),
            _ => None,
        };
        match self.lie {
            Lie::AnswersTwice => self.events.push_back(kept.clone()),
            Lie::TellsTheNewerFirst => match &self.held {
                None => {
                    self.held = Some(kept);
                    return None;
                }
                Some(held) if topic_of(held) == topic_of(&kept) => {
                    self.events.extend(self.held.take());
                }
                Some(_) => {}
            },
            _ => {}
        }
        Some(kept)
    }

    fn twist_epoch(&self, position: Position) -> Position {
        match self.lie {
            Lie::EndsItsEpoch if self.life > 0 => {
                let epoch = Epoch::new(&format!("{} {}", position.epoch, self.life));
                Position { epoch, ..position }
            }
            _ => position,
        }
    }

    fn twist_read(
        &self,
        ticket: Ticket,
        mut publications: Vec<Publication>,
        mut complete_after: Sequence,
    ) -> BackboneEvent {
        match self.lie {
            Lie::ReadsTooFew => drop(publications.pop()),
            Lie::ReadsBackwards => publications.reverse(),
            Lie::ClaimsToBeComplete => complete_after = Sequence::START,
            Lie::ReadsWhatWasNeverKept => {
                for publication in &mut publications {
                    let payload = Payload::new(publication.kind(), b"invented");
                    let (previous, sequence) = (publication.previous(), publication.sequence());
                    let unix_ms = publication.unix_ms();
                    let now = Moment { elapsed: std::time::Duration::ZERO, unix_ms };
                    *publication = Publication::after(previous, payload, sequence, now);
                }
            }
            _ => {}
        }
        BackboneEvent::Read { ticket, publications, complete_after }
    }

    fn twist_state(
        &self,
        topic: TopicName,
        head: Position,
        mut newest: Vec<Publication>,
        mut complete_after: Sequence,
    ) -> BackboneEvent {
        let mut head = self.twist_epoch(head);
        match self.lie {
            Lie::TellsAnOlderHead => {
                head.sequence = newest.pop().map_or(head.sequence, |it| it.previous());
            }
            Lie::TellsMoreThanItHas => complete_after = Sequence::START,
            _ => {}
        }
        BackboneEvent::State { topic, head, newest, complete_after }
    }
}
