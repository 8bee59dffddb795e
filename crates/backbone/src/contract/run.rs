//! One subject, and everything that it was asked and told.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use model::{
    AckLevel, Draft, Epoch, Expected, Limits, Moment, Payload, PayloadKind, Position, Publication,
    Refusal, Sequence, TopicName,
};

use super::{Checked, Fresh, Subject, broken, ensure};
use crate::{Abilities, BackboneEvent, ReadWanted, Ticket};

/// The outcome of an append.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    Kept(Position),
    Repeated(Position),
    NotKept(Refusal),
    Unknown,
}

/// Where a topic stands, and what of it is at hand.
#[derive(Debug)]
pub(super) struct State {
    pub head: Position,
    pub newest: Vec<Publication>,
    pub complete_after: Sequence,
}

/// A page that was read.
#[derive(Debug)]
pub(super) struct Page {
    pub publications: Vec<Publication>,
    pub complete_after: Sequence,
}

impl Page {
    pub fn texts(&self) -> Vec<String> {
        self.publications.iter().map(text_of).collect()
    }
}

/// The last of a topic that was told.
#[derive(Clone, Debug)]
enum Last {
    At(Position),
    /// Others published what nobody told, or the process was another one.
    Unclear,
}

/// A subject, and the account of it that every event is held against.
pub(super) struct Run {
    subject: Box<dyn Subject>,
    tickets: u64,
    /// Appends that have no outcome yet: their topics and texts.
    asked: BTreeMap<Ticket, (TopicName, String)>,
    outcomes: BTreeMap<Ticket, Outcome>,
    states: VecDeque<(TopicName, State)>,
    pages: BTreeMap<Ticket, Page>,
    /// Publications of others that this backbone was told of: topic and text.
    pub heard: Vec<(TopicName, String)>,
    last: BTreeMap<TopicName, Last>,
    /// The newest own append that was answered with `Kept`, by topic.
    newest_own: BTreeMap<TopicName, Ticket>,
    followed: BTreeSet<TopicName>,
    /// Every position that was ever told, over all restarts, and what was there.
    given: BTreeMap<(TopicName, Epoch, Sequence), String>,
    newest_ms: u64,
    /// It was not restarted yet.
    is_first_life: bool,
}

impl Run {
    pub fn new(fresh: &mut Fresh<'_>) -> Self {
        Self {
            subject: fresh(),
            tickets: 0,
            asked: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            states: VecDeque::new(),
            pages: BTreeMap::new(),
            heard: Vec::new(),
            last: BTreeMap::new(),
            newest_own: BTreeMap::new(),
            followed: BTreeSet::new(),
            given: BTreeMap::new(),
            newest_ms: 0,
            is_first_life: true,
        }
    }

    pub fn abilities(&mut self) -> Abilities {
        self.subject.backbone().abilities()
    }

    /// Hands a draft over, as safe as the backbone can keep it.
    pub fn append(&mut self, draft: Draft) -> Ticket {
        let level = self.abilities().level_max;
        self.append_at(draft, level, moment(1_000))
    }

    pub fn append_at(&mut self, draft: Draft, level: AckLevel, now: Moment) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.asked.insert(ticket, (draft.topic.clone(), text_in(draft.payload.bytes())));
        self.subject.backbone().append(ticket, draft, level, now);
        ticket
    }

    /// The outcome of an append, once it is known.
    pub fn outcome_of(&mut self, ticket: Ticket) -> Checked<Outcome> {
        while !self.outcomes.contains_key(&ticket) {
            self.hear_one("outcome")?;
        }
        Ok(self.outcomes[&ticket].clone())
    }

    /// Publishes, and answers where it was kept.
    pub fn keep(&mut self, draft: Draft) -> Checked<Position> {
        let ticket = self.append(draft);
        match self.outcome_of(ticket)? {
            Outcome::Kept(position) => Ok(position),
            other => broken("outcome", format!("a draft that nothing is wrong with: {other:?}")),
        }
    }

    pub fn follow(&mut self, name: &str) -> Checked<State> {
        let name = topic(name);
        self.subject.backbone().follow(&name);
        self.followed.insert(name.clone());
        loop {
            if let Some(at) = self.states.iter().position(|(of, _)| *of == name) {
                let (_, state) = self.states.remove(at).expect("just found");
                return Ok(state);
            }
            self.hear_one("follow")?;
        }
    }

    pub fn unfollow(&mut self, name: &str) {
        let name = topic(name);
        self.subject.backbone().unfollow(&name);
        self.followed.remove(&name);
    }

    pub fn read(&mut self, name: &str, wanted: ReadWanted) -> Checked<Page> {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.subject.backbone().read(ticket, &topic(name), wanted);
        loop {
            if let Some(page) = self.pages.remove(&ticket) {
                return Ok(page);
            }
            self.hear_one("read")?;
        }
    }

    pub fn read_all(&mut self, name: &str) -> Checked<Page> {
        self.read(name, ReadWanted::after(Sequence::START, 1_000))
    }

    /// Somebody else publishes, if anybody can.
    pub fn publish_elsewhere(&mut self, name: &str, text: &str) -> bool {
        let name = topic(name);
        let is_done = self.subject.publish_elsewhere(draft(name.as_str(), text));
        if is_done && !self.followed.contains(&name) {
            self.last.insert(name, Last::Unclear);
        }
        is_done
    }

    pub fn fail(&mut self) -> bool {
        self.subject.fail()
    }

    /// Kills the process: what has no answer gets none, and nobody is followed any more.
    pub fn restart(&mut self) {
        self.subject.restart();
        self.asked.clear();
        self.followed.clear();
        self.newest_own.clear();
        self.last.clear();
        self.is_first_life = false;
    }

    /// The positions of a topic that were told, in order, and the texts there.
    pub fn told_of(&self, name: &str) -> Vec<(Position, String)> {
        let of_topic = self.given.iter().filter(|((topic, ..), _)| topic.as_str() == name);
        of_topic
            .map(|((_, epoch, sequence), text)| {
                (Position { epoch: epoch.clone(), sequence: *sequence }, text.clone())
            })
            .collect()
    }

    /// Hears everything that comes by itself, until nothing does; then nothing may be left to answer.
    pub fn settle(&mut self) -> Checked {
        loop {
            while let Some(event) = self.subject.backbone().poll_event() {
                self.hear(event)?;
            }
            if !self.subject.drive() {
                break;
            }
        }
        while let Some(event) = self.subject.backbone().poll_event() {
            self.hear(event)?;
        }
        let left = &self.asked;
        ensure(left.is_empty(), "outcome", || format!("appends without an answer: {left:?}"))?;
        let left = (self.states.len(), self.pages.len());
        ensure(left == (0, 0), "outcome", || format!("answers to no question: {left:?}"))
    }

    /// Hears the next event, for which the world may have to go on.
    fn hear_one(&mut self, promise: &'static str) -> Checked {
        loop {
            if let Some(event) = self.subject.backbone().poll_event() {
                return self.hear(event);
            }
            if !self.subject.drive() {
                let event = self.subject.backbone().poll_event();
                return match event {
                    Some(event) => self.hear(event),
                    None => {
                        broken(promise, "it was asked, nothing more happens, and no answer came")
                    }
                };
            }
        }
    }

    fn hear(&mut self, event: BackboneEvent) -> Checked {
        match event {
            BackboneEvent::Kept { ticket, topic, position, publication } => {
                self.hear_kept(ticket, topic, position, &publication)
            }
            BackboneEvent::Repeated { ticket, topic, position } => {
                let (asked, _) = self.settle_ticket(ticket, Outcome::Repeated(position))?;
                ensure(asked == topic, "payload", || format!("{topic} for an append to {asked}"))
            }
            BackboneEvent::NotKept { ticket, refusal } => {
                self.settle_ticket(ticket, Outcome::NotKept(refusal)).map(drop)
            }
            BackboneEvent::Unknown { ticket, .. } => {
                self.settle_ticket(ticket, Outcome::Unknown).map(drop)
            }
            BackboneEvent::Read { ticket, publications, complete_after } => {
                let page = Page { publications, complete_after };
                let is_new = self.pages.insert(ticket, page).is_none();
                ensure(is_new, "read", || format!("two answers to {ticket:?}"))
            }
            BackboneEvent::State { topic, head, newest, complete_after } => {
                self.last.insert(topic.clone(), Last::At(head.clone()));
                self.states.push_back((topic, State { head, newest, complete_after }));
                Ok(())
            }
            BackboneEvent::Through { .. }
            | BackboneEvent::NewLife { .. }
            | BackboneEvent::Cut { .. }
            | BackboneEvent::Joined { .. } => Ok(()),
        }
    }

    fn settle_ticket(&mut self, ticket: Ticket, outcome: Outcome) -> Checked<(TopicName, String)> {
        let text = format!("{ticket:?} waits for no answer and has {outcome:?}");
        let Some(asked) = self.asked.remove(&ticket) else { return broken("outcome", text) };
        self.outcomes.insert(ticket, outcome);
        Ok(asked)
    }

    fn hear_kept(
        &mut self,
        ticket: Option<Ticket>,
        topic: TopicName,
        position: Position,
        publication: &Publication,
    ) -> Checked {
        let text = text_of(publication);
        match ticket {
            Some(ticket) => {
                let asked = self.settle_ticket(ticket, Outcome::Kept(position.clone()))?;
                ensure(asked == (topic.clone(), text.clone()), "payload", || {
                    format!("{text} in {topic} for {} in {}", asked.1, asked.0)
                })?;
                let before = self.newest_own.insert(topic.clone(), ticket);
                ensure(before < Some(ticket), "order", || {
                    format!("{ticket:?} to {topic} is told after {before:?}")
                })?;
            }
            None => {
                let is_wanted = self.followed.contains(&topic);
                ensure(is_wanted, "unfollow", || format!("{topic} is told and nobody follows it"))?;
                self.heard.push((topic.clone(), text.clone()));
            }
        }
        self.check_place(&topic, &position, publication)?;
        self.last.insert(topic.clone(), Last::At(position.clone()));
        let place = (topic, position.epoch, position.sequence);
        match self.given.get(&place) {
            Some(before) if *before != text => {
                broken("numbering", format!("{place:?} was {before} and is {text}"))
            }
            _ => {
                self.given.insert(place, text);
                Ok(())
            }
        }
    }

    /// A publication's place follows the one before it, and its time is none of the past.
    fn check_place(
        &mut self,
        topic: &TopicName,
        position: &Position,
        publication: &Publication,
    ) -> Checked {
        let (sequence, previous) = (publication.sequence(), publication.previous());
        ensure(sequence == position.sequence && previous < sequence, "order", || {
            format!("{topic}: {publication:?} after {previous} at {position:?}")
        })?;
        let before = match self.last.get(topic) {
            None if self.is_first_life => Some(Sequence::START),
            Some(Last::At(last)) if last.epoch == position.epoch => Some(last.sequence),
            _ => None,
        };
        if let Some(before) = before {
            ensure(previous == before && publication.follows(before), "order", || {
                format!(
                    "{topic}: {sequence} comes after {previous}, and {before} was told before it"
                )
            })?;
        }
        let is_dense = !self.abilities().is_contiguous || sequence == previous.next();
        ensure(is_dense, "order", || format!("{topic}: a hole between {previous} and {sequence}"))?;
        let (unix_ms, newest_ms) = (publication.unix_ms(), self.newest_ms);
        self.newest_ms = unix_ms.max(newest_ms);
        ensure(unix_ms >= newest_ms, "time", || format!("{unix_ms} ms after {newest_ms} ms"))
    }
}

pub(super) fn topic(name: &str) -> TopicName {
    TopicName::parse(name, &Limits::default()).expect("a valid name")
}

/// A draft whose text tells it from all others of its clause.
pub(super) fn draft(name: &str, text: &str) -> Draft {
    Draft {
        topic: topic(name),
        payload: Payload::new(PayloadKind::Text, text.as_bytes()),
        idempotency_key: None,
        expected: None,
    }
}

pub(super) fn keyed(name: &str, text: &str, key: &str) -> Draft {
    Draft { idempotency_key: Some(key.into()), ..draft(name, text) }
}

pub(super) fn expecting(name: &str, text: &str, expected: Expected) -> Draft {
    Draft { expected: Some(expected), ..draft(name, text) }
}

pub(super) fn moment(unix_ms: u64) -> Moment {
    Moment { elapsed: Duration::from_secs(1), unix_ms }
}

fn text_of(publication: &Publication) -> String {
    text_in(publication.payload())
}

fn text_in(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
