//! Where a bridge meets its server. Pure: `sessions` carries out what it decides.
//!
//! A bridge has two sessions. One reads, as far as there is credit; the other asks, so that no answer waits behind what there
//! is no credit for. Questions are asked in order, one at a time, until the server answers. A session that ends is
//! opened again, and reading goes on from the stored positions; what comes twice by that is the bridge's to recognise, by
//! its position.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use model::{
    Acknowledge, Advice, Command, CommandId, Draft, Event, Gap, HistoryPage, HistoryQuery,
    HistoryStart, Limits, Payload, PayloadKind, Position, Publication, Publish, Refusal, Selector,
    Start, Subscribe, SubscribeOptions, TopicName,
};
use server::{Credit, Told};

use crate::positions::PositionStore;

/// How long to wait before what should have worked is tried again.
pub(crate) const PAUSE: Duration = Duration::from_secs(1);

/// The settings of one bridge.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    /// The subscriptions of the bridge.
    pub topics: Vec<Selector>,
    pub positions: PositionStore,
    pub limits: Limits,
    /// Publications that may be read and not settled.
    pub pending_max: usize,
    /// Payload bytes of these, beyond which nothing more is read.
    pub pending_bytes_max: usize,
}

/// Something for the server to do.
#[derive(Debug)]
pub(crate) enum Request {
    /// Have positions stored.
    Acknowledge(Vec<(TopicName, Position)>),
    /// Publish the first of these that is not refused for good.
    Publish(VecDeque<Outgoing>),
    /// Read what a topic's history has after a position, at most so many.
    Fetch(TopicName, Position, usize),
}

/// Something to be published.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Outgoing {
    pub topic: TopicName,
    pub kind: PayloadKind,
    pub payload: Vec<u8>,
    /// Makes a repetition answer with the position of the first.
    pub key: String,
}

/// An event for a bridge.
#[derive(Debug, PartialEq)]
pub(crate) enum Heard {
    Publication {
        topic: TopicName,
        position: Position,
        publication: Publication,
    },
    Gap(Gap),
    /// The positions are stored, as far as they were not refused.
    Acknowledged,
    /// It is published, or refused in each form.
    Published(Result<(), Refusal>),
    /// A page, or why there is none.
    Page {
        topic: TopicName,
        after: Position,
        page: Result<HistoryPage, Refusal>,
    },
    /// Something is tried again, or given up: for the log.
    Trouble(&'static str, Option<Refusal>),
}

/// The number of a session: each that is opened has another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SessionNumber(pub u64);

/// An action on sessions.
#[derive(Debug, PartialEq)]
pub(crate) enum Action {
    Open(SessionNumber),
    Close(SessionNumber),
    Send(SessionNumber, CommandId, Command),
    Grant(SessionNumber, Credit),
}

#[derive(Debug)]
enum Step {
    /// Reads the stored positions, then subscribes.
    ReadPositions {
        left: VecDeque<TopicName>,
        found: HashMap<TopicName, Position>,
    },
    Acknowledge(VecDeque<Acknowledge>),
    Publish(VecDeque<Outgoing>),
    Fetch(TopicName, Position, usize),
}

/// The state of a bridge's sessions.
#[derive(Debug)]
pub(crate) struct Gate {
    rules: Rules,
    reading: Option<SessionNumber>,
    asking: Option<SessionNumber>,
    numbers: u64,
    ids: u64,
    /// The front one is being carried out.
    steps: VecDeque<Step>,
    /// The command that is to be answered.
    in_flight: Option<CommandId>,
    pause_until: Option<Instant>,
    is_shut: bool,
    /// Where reading went on, in topics of which nothing was told since.
    resumed: HashMap<TopicName, Position>,
    /// The totals that the reading session told, and may tell.
    told: Credit,
    granted: Credit,
    pending: (usize, usize),
    actions: VecDeque<Action>,
    heard: VecDeque<Heard>,
}

impl Gate {
    pub(crate) fn new(rules: Rules) -> Self {
        Self {
            rules,
            reading: None,
            asking: None,
            numbers: 0,
            ids: 0,
            steps: VecDeque::new(),
            in_flight: None,
            pause_until: None,
            is_shut: false,
            resumed: HashMap::new(),
            told: Credit::default(),
            granted: Credit::default(),
            pending: (0, 0),
            actions: VecDeque::new(),
            heard: VecDeque::new(),
        }
    }

    /// Asks the server for something.
    pub(crate) fn ask(&mut self, request: Request) {
        self.steps.push_back(match request {
            Request::Acknowledge(positions) => {
                Step::Acknowledge(self.rules.positions.commands(positions))
            }
            Request::Publish(forms) => Step::Publish(forms),
            Request::Fetch(topic, after, limit) => Step::Fetch(topic, after, limit),
        });
    }

    /// Hears what was read and is not settled yet: publications, and bytes of payloads.
    pub(crate) fn handle_pending(&mut self, count: usize, bytes: usize) {
        self.pending = (count, bytes);
        self.grant();
    }

    /// Reads nothing more.
    pub(crate) fn shut(&mut self) {
        self.is_shut = true;
        self.close_reading();
        if let Some(Step::ReadPositions { .. }) = self.steps.front() {
            // Its answer is not awaited any more.
            self.in_flight = None;
        }
        self.steps.retain(|step| !matches!(step, Step::ReadPositions { .. }));
    }

    /// The next action on sessions.
    pub(crate) fn poll_action(&mut self, now: Instant) -> Option<Action> {
        if self.pause_until.is_some_and(|until| until <= now) {
            self.pause_until = None;
        }
        if self.actions.is_empty() && self.pause_until.is_none() {
            self.go_on();
        }
        self.actions.pop_front()
    }

    /// The next event for the bridge.
    pub(crate) fn poll_heard(&mut self) -> Option<Heard> {
        self.heard.pop_front()
    }

    /// When [`Gate::poll_action`] may have more, if nothing else happens.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        self.pause_until
    }

    fn go_on(&mut self) {
        let asking = match self.asking {
            Some(asking) => asking,
            None => {
                let asking = self.open();
                self.asking = Some(asking);
                asking
            }
        };
        let is_read = |step: &Step| matches!(step, Step::ReadPositions { .. });
        if !self.is_shut && self.reading.is_none() && !self.steps.iter().any(is_read) {
            let left = self.rules.positions.topics(&self.rules.limits);
            // What is under way is answered first.
            let at = usize::from(self.in_flight.is_some());
            self.steps.insert(at, Step::ReadPositions { left, found: HashMap::new() });
        }
        while self.in_flight.is_none()
            && let Some(step) = self.steps.front()
        {
            match command_of(step) {
                Some(command) => {
                    let id = self.next_id();
                    self.in_flight = Some(id);
                    self.actions.push_back(Action::Send(asking, id, command));
                }
                None => self.finish(),
            }
        }
    }

    /// Ends the front step, of which nothing is left to be done.
    fn finish(&mut self) {
        match self.steps.pop_front() {
            Some(Step::ReadPositions { found, .. }) => self.subscribe(found),
            Some(Step::Acknowledge(_)) => self.heard.push_back(Heard::Acknowledged),
            Some(Step::Publish(_)) => self.heard.push_back(Heard::Published(Ok(()))),
            Some(Step::Fetch(..)) | None => {}
        }
    }

    fn open(&mut self) -> SessionNumber {
        self.numbers += 1;
        let number = SessionNumber(self.numbers);
        self.actions.push_back(Action::Open(number));
        number
    }

    fn next_id(&mut self) -> CommandId {
        self.ids += 1;
        CommandId(self.ids)
    }

    /// Reads on from the stored positions; all that there is of a topic of which nothing is known.
    fn subscribe(&mut self, found: HashMap<TopicName, Position>) {
        let number = self.open();
        (self.reading, self.told, self.granted) =
            (Some(number), Credit::default(), Credit::default());
        let topics = &self.rules.topics;
        let is_read = |topic: &TopicName| topics.iter().any(|it| it.matches(topic.as_str()));
        self.resumed = found.into_iter().filter(|(topic, _)| is_read(topic)).collect();
        let positions = self.resumed.iter().map(|(topic, at)| (topic.clone(), at.clone()));
        let command = Command::Subscribe(Subscribe {
            subscription: None,
            selectors: topics.clone(),
            start: Start::All,
            positions: positions.collect(),
            name: None,
            options: SubscribeOptions::default(),
        });
        let id = self.next_id();
        self.actions.push_back(Action::Send(number, id, command));
        self.grant();
    }

    /// Lets the server tell as much as there is room for, on top of what it told.
    fn grant(&mut self) {
        let Some(reading) = self.reading else { return };
        let free = |max: usize, used: usize| max.saturating_sub(used) as u64;
        let credit = Credit {
            count: self.told.count + free(self.rules.pending_max, self.pending.0),
            bytes: self.told.bytes + free(self.rules.pending_bytes_max, self.pending.1),
        };
        let more = Credit {
            count: credit.count.max(self.granted.count),
            bytes: credit.bytes.max(self.granted.bytes),
        };
        if more != self.granted {
            self.granted = more;
            self.actions.push_back(Action::Grant(reading, more));
        }
    }

    /// Takes what a session was told.
    pub(crate) fn handle_told(&mut self, number: SessionNumber, told: Told, now: Instant) {
        match told {
            Told::Closed if Some(number) == self.asking => {
                (self.asking, self.in_flight) = (None, None);
                self.pause(now);
            }
            Told::Event(event) if Some(number) == self.asking => self.handle_answer(event, now),
            told if Some(number) == self.reading => self.handle_read(told, now),
            // Of a session that is given up.
            _ => {}
        }
    }

    fn handle_read(&mut self, told: Told, now: Instant) {
        match told {
            Told::Publication { topic, position, publication } => {
                self.told.count += 1;
                self.told.bytes += publication.kept_bytes() as u64;
                self.resumed.remove(&topic);
                self.heard.push_back(Heard::Publication { topic, position, publication });
            }
            Told::Event(Event::Gap(mut gap)) => {
                self.told.count += 1;
                let resumed = self.resumed.remove(&gap.topic);
                let last = resumed.filter(|position| position.epoch == gap.epoch);
                gap.from = gap.from.or(last.map(|position| position.sequence.next()));
                self.heard.push_back(Heard::Gap(gap));
            }
            Told::Event(Event::Subscribed(_) | Event::Lag { .. }) => {}
            Told::Event(event) => {
                let refusal = match event {
                    Event::Refused { refusal, .. } | Event::Closing { refusal, .. } => {
                        Some(refusal)
                    }
                    _ => None,
                };
                self.give_reading_up(refusal, now);
            }
            Told::Closed => self.give_reading_up(None, now),
        }
    }

    fn give_reading_up(&mut self, refusal: Option<Refusal>, now: Instant) {
        self.heard.push_back(Heard::Trouble("cannot read; trying again", refusal));
        self.close_reading();
        self.pause(now);
    }

    fn close_reading(&mut self) {
        if let Some(reading) = self.reading.take() {
            self.actions.push_back(Action::Close(reading));
        }
    }

    /// Tries again in a while.
    fn pause(&mut self, now: Instant) {
        self.pause_until = Some(now + PAUSE);
    }

    fn handle_answer(&mut self, event: Event, now: Instant) {
        let (id, answer) = match event {
            Event::Refused { id, refusal } => (id, Err(refusal)),
            Event::History { id, page, .. } => (id, Ok(Some(page))),
            Event::Acknowledged { id } | Event::Published { id, .. } => (id, Ok(None)),
            _ => return,
        };
        if id.is_none() || id != self.in_flight {
            return;
        }
        self.in_flight = None;
        match answer {
            Ok(page) => self.advance(page),
            Err(refusal) if refusal.code.advice() == Advice::ChangeFirst => {
                self.give_up(refusal, now)
            }
            Err(_) => self.pause(now),
        }
    }

    /// Notes that what was asked is done.
    fn advance(&mut self, page: Option<HistoryPage>) {
        let Some(step) = self.steps.front_mut() else { return };
        match step {
            Step::ReadPositions { left, found } => {
                left.pop_front();
                let values = page.iter().flat_map(|page| &page.publications);
                let limits = &self.rules.limits;
                found.extend(values.flat_map(|it| PositionStore::read(it.payload(), limits)));
            }
            Step::Acknowledge(left) => drop(left.pop_front()),
            Step::Publish(forms) => forms.clear(),
            Step::Fetch(topic, after, _) => {
                let (topic, after) = (topic.clone(), after.clone());
                if let Some(page) = page {
                    self.heard.push_back(Heard::Page { topic, after, page: Ok(page) });
                }
                self.steps.pop_front();
            }
        }
    }

    /// Takes a refusal that asking again would not change.
    fn give_up(&mut self, refusal: Refusal, now: Instant) {
        let Some(step) = self.steps.front_mut() else { return };
        match step {
            Step::ReadPositions { .. } => {
                self.heard.push_back(Heard::Trouble("cannot read; trying again", Some(refusal)));
                self.pause(now);
            }
            Step::Acknowledge(left) => {
                left.pop_front();
                let what = "cannot remember what was delivered; it comes again later";
                self.heard.push_back(Heard::Trouble(what, Some(refusal)));
            }
            Step::Publish(forms) => {
                forms.pop_front();
                if forms.is_empty() {
                    self.heard.push_back(Heard::Published(Err(refusal)));
                    self.steps.pop_front();
                }
            }
            Step::Fetch(topic, after, _) => {
                let (topic, after) = (topic.clone(), after.clone());
                self.heard.push_back(Heard::Page { topic, after, page: Err(refusal) });
                self.steps.pop_front();
            }
        }
    }
}

/// The next command of a step, unless it is done.
fn command_of(step: &Step) -> Option<Command> {
    match step {
        Step::ReadPositions { left, .. } => left.front().map(|topic| {
            let (topic, start) = (topic.clone(), HistoryStart::Last(1));
            Command::History(HistoryQuery { topic, start, limit: 1 })
        }),
        Step::Acknowledge(left) => left.front().map(|it| Command::Acknowledge(it.clone())),
        Step::Publish(forms) => forms.front().map(|it| {
            Command::Publish(Publish {
                draft: Draft {
                    topic: it.topic.clone(),
                    payload: Payload::new(it.kind, &it.payload),
                    idempotency_key: Some(it.key.as_str().into()),
                    expected: None,
                },
            })
        }),
        Step::Fetch(topic, after, limit) => {
            let (topic, start) = (topic.clone(), HistoryStart::After(after.sequence));
            Some(Command::History(HistoryQuery { topic, start, limit: *limit }))
        }
    }
}

#[cfg(test)]
mod tests;
