//! The subscriptions of a client and what each is at. Pure.
//!
//! A subscription outlives connections. It is `Waiting` while there is none, `Asked` from the command until the
//! answer, then `Live`; a break takes it back to `Waiting`. A refusal, or an unsubscribe, ends it.
//!
//! Each has an id on the wire, under which the server keeps its options and its place, whatever else is read. Records
//! name a reading, by number: a topic as it is read for those subscriptions that the topic's description lists.
//! docs/protocol.md#subscription-ids. A server without ids is told of subscriptions that do not overlap.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use model::{
    Advice, Code, Command, CommandId, DeltaKind, Event, Position, RandomState, Refusal, Selector,
    Start, Subscribe, Subscribed, SubscribedTopic, SubscriptionId as WireId, TopicName,
    Unsubscribe,
};
use protocol::native::ServerRecord;

use crate::backoff::Backoff;
use crate::parts;
use crate::payloads::{Payloads, Whole};
use crate::selectors::overlap;
use crate::subscription_id::SubscriptionId;
use crate::tracker::{Notification, Tracker};

/// The state of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubscriptionState {
    /// There is no connection, or the server put it off; it will be asked for again.
    Waiting,
    /// The server was asked and has not answered yet.
    Asked,
    /// The server sends its publications.
    Live,
}

/// One subscription.
#[derive(Debug)]
struct Subscription {
    wanted: Subscribe,
    wire_id: WireId,
    tracker: Tracker,
    state: SubscriptionState,
    /// The newest `subscribe`: only its answer counts.
    asked_as: Option<CommandId>,
    /// How many of its commands are not complete.
    open_count: usize,
    /// The numbers that serve it.
    readings: BTreeSet<u32>,
    /// Topics that are asked for by name, because their places had no room in the message before, and under which id.
    named: Option<(WireId, Vec<TopicName>)>,
    /// The topics of the next messages.
    unnamed: VecDeque<Vec<TopicName>>,
    /// It was live once: what comes next must join on to what was read.
    was_live: bool,
    /// It is to be asked for.
    is_wished: bool,
    /// The pauses when the server puts it off.
    backoff: Backoff,
}

impl Subscription {
    fn reads(&self, topic: &TopicName) -> bool {
        self.wanted.selectors.iter().any(|selector| selector.matches(topic.as_str()))
    }

    /// The command that asks under an id, from `positions`.
    fn command(
        &self,
        id: Option<WireId>,
        selectors: Vec<Selector>,
        positions: Vec<(TopicName, Position)>,
    ) -> Subscribe {
        // A topic without a position came into being meanwhile: all of it is news.
        let start = if self.was_live { Start::All } else { self.wanted.start.clone() };
        Subscribe { subscription: id, selectors, start, positions, ..self.wanted.clone() }
    }
}

/// A topic as it is read for some subscriptions.
#[derive(Debug)]
struct Reading {
    topic: TopicName,
    readers: BTreeSet<SubscriptionId>,
}

/// Something to say.
#[derive(Debug)]
enum PendingCommand {
    Ask(SubscriptionId),
    /// The next topics by name.
    AskMore(SubscriptionId),
    Drop(Unsubscribe),
}

/// All subscriptions of one client.
#[derive(Debug, Default)]
pub struct Subscriptions {
    all: BTreeMap<SubscriptionId, Subscription>,
    /// The same by their ids on the wire; those that are asked for in several messages have two at a time.
    wire_ids: HashMap<WireId, SubscriptionId, RandomState>,
    /// Those whose answer is awaited, by the number of the command.
    asked: HashMap<CommandId, SubscriptionId, RandomState>,
    readings: HashMap<u32, Reading, RandomState>,
    payloads: Payloads,
    is_connected: bool,
    has_ids: bool,
    /// Bytes that a command may have.
    bytes_max: usize,
    /// Makes the pauses.
    seed: u64,
    next_id: u64,
    last_wire_id: u32,
    pending: VecDeque<PendingCommand>,
    notices: VecDeque<(SubscriptionId, Notification)>,
    /// Those that the server put off, and until when.
    postponed: BTreeMap<SubscriptionId, Instant>,
}

impl Subscriptions {
    /// None yet; `seed` makes their pauses.
    pub fn new(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// Adds one. It is asked for when there is a connection.
    pub fn add(&mut self, wanted: Subscribe) -> SubscriptionId {
        let id = SubscriptionId(self.next_id);
        self.next_id += 1;
        let tracker = Tracker::new(&wanted.start, &wanted.positions);
        let wire_id = self.next_wire_id();
        let subscription = Subscription {
            wanted,
            wire_id,
            tracker,
            state: SubscriptionState::Waiting,
            asked_as: None,
            open_count: 0,
            readings: BTreeSet::new(),
            named: None,
            unnamed: VecDeque::new(),
            was_live: false,
            is_wished: false,
            backoff: Backoff::one_of(self.seed, id.0),
        };
        self.wire_ids.insert(wire_id, id);
        self.all.insert(id, subscription);
        if self.is_connected {
            self.enqueue(id);
        }
        id
    }

    /// Ends one. Answers whether there was such a one.
    pub fn remove(&mut self, id: SubscriptionId) -> bool {
        let Some(ended) = self.end(id) else { return false };
        if ended.state != SubscriptionState::Waiting {
            let gone = match self.has_ids {
                true => Unsubscribe::Subscription(ended.wire_id),
                false => Unsubscribe::Selectors(ended.wanted.selectors),
            };
            self.pending.push_back(PendingCommand::Drop(gone));
        }
        true
    }

    /// The state of a subscription; `None` if it does not exist (any more).
    pub fn state(&self, id: SubscriptionId) -> Option<SubscriptionState> {
        self.all.get(&id).map(|known| known.state)
    }

    /// Where a subscription is in each of its topics.
    pub fn positions(&self, id: SubscriptionId) -> Vec<(TopicName, Position)> {
        let places = self.all.get(&id).map(|known| known.tracker.positions());
        let owned = |(topic, at): (&TopicName, &Position)| (topic.clone(), at.clone());
        places.into_iter().flatten().map(owned).collect()
    }

    /// When [`Subscriptions::handle_wake`] has something to do.
    pub fn wake_at(&self) -> Option<Instant> {
        self.postponed.values().min().copied()
    }

    /// Asks for everything, each from where it was left, in commands of at most `bytes_max`, of a server that has ids for
    /// subscriptions or not.
    pub fn handle_connected(&mut self, bytes_max: usize, has_ids: bool) {
        (self.is_connected, self.has_ids) = (true, has_ids);
        // Without ids nothing can be said of a subscription in several messages.
        self.bytes_max = if has_ids { bytes_max } else { usize::MAX };
        self.all.keys().copied().collect::<Vec<_>>().into_iter().for_each(|id| self.enqueue(id));
    }

    /// Notes that the connection is gone, with what was of it. Positions stay.
    pub fn handle_disconnect(&mut self) {
        self.is_connected = false;
        self.pending.clear();
        self.postponed.clear();
        self.payloads = Payloads::default();
        self.readings.clear();
        self.asked.clear();
        for known in self.all.values_mut() {
            if known.was_live {
                known.tracker.handle_disconnect();
            }
            (known.asked_as, known.state) = (None, SubscriptionState::Waiting);
            known.is_wished = false;
            known.readings.clear();
            known.unnamed.clear();
            if let Some((named, _)) = known.named.take() {
                self.wire_ids.remove(&named);
            }
            known.backoff.reset();
        }
    }

    /// Asks again for what was put off.
    pub fn handle_wake(&mut self, now: Instant) {
        if self.postponed.is_empty() {
            return;
        }
        let is_due = |(id, due_at): (&SubscriptionId, &Instant)| (*due_at <= now).then_some(*id);
        let due: Vec<SubscriptionId> = self.postponed.iter().filter_map(is_due).collect();
        for id in due {
            self.postponed.remove(&id);
            self.enqueue(id);
        }
    }

    /// Takes what the server says, if it concerns a subscription.
    pub fn handle_record(&mut self, record: ServerRecord<'_>) {
        match record {
            ServerRecord::Event(Event::Subscribed(subscribed)) => {
                self.handle_subscribed(&subscribed);
            }
            ServerRecord::Event(Event::Topic(topic)) => self.handle_topic(&topic),
            ServerRecord::Event(Event::Complete { subscription }) => {
                self.handle_complete(subscription);
            }
            ServerRecord::Event(Event::Unsubscribed {
                id: None, subscription, selectors, ..
            }) => self.handle_taken_away(subscription, &selectors),
            record => {
                if let Some((number, whole)) = self.payloads.take(record) {
                    whole.into_iter().for_each(|whole| self.tell(number, whole));
                }
            }
        }
    }

    /// Takes a refusal, if it is of a subscription: puts that off, or ends it. Answers whether it was.
    pub fn handle_refused(&mut self, command: CommandId, refusal: &Refusal, now: Instant) -> bool {
        let Some(id) = self.asked.remove(&command) else { return false };
        let is_asked = |known: &Subscription| known.asked_as == Some(command);
        if self.all.get(&id).is_some_and(is_asked)
            && !(refusal.code == Code::TooManySubscriptions && self.halve(id))
        {
            self.put_off_or_end(id, refusal, now);
        }
        true
    }

    /// Has topics that are asked for by name asked for in two messages, because there is no room for all at a time. Answers
    /// whether that can be.
    fn halve(&mut self, id: SubscriptionId) -> bool {
        let Some(known) = self.all.get_mut(&id) else { return false };
        let Some((_, topics)) = known.named.as_mut().filter(|(_, topics)| topics.len() > 1) else {
            return false;
        };
        let mut first = std::mem::take(topics);
        let second = first.split_off(first.len() / 2);
        known.unnamed.push_front(second);
        known.unnamed.push_front(first);
        known.open_count -= 1;
        self.forget_named(id);
        self.pending.push_back(PendingCommand::AskMore(id));
        true
    }

    fn put_off_or_end(&mut self, id: SubscriptionId, refusal: &Refusal, now: Instant) {
        match refusal.code.advice() {
            Advice::RetryNow | Advice::RetryLater => {
                self.leave(id);
                let Some(known) = self.all.get_mut(&id) else { return };
                self.postponed.insert(id, now + known.backoff.next_pause(Duration::ZERO));
                (known.asked_as, known.state) = (None, SubscriptionState::Waiting);
            }
            Advice::ChangeFirst | Advice::AuthenticateFirst => self.refuse(id, refusal.clone()),
        }
    }

    fn refuse(&mut self, id: SubscriptionId, refusal: Refusal) {
        self.end(id);
        self.notices.push_back((id, Notification::Ended(refusal.into())));
    }

    /// The next command, with the id `as_id`.
    pub fn poll_command(&mut self, as_id: CommandId) -> Option<Command> {
        while let Some(command) = self.pending.pop_front() {
            let asked = match command {
                PendingCommand::Drop(gone) => return Some(Command::Unsubscribe(gone)),
                PendingCommand::Ask(id) => self.ask(id, as_id),
                PendingCommand::AskMore(id) => self.ask_more(id, as_id),
            };
            if let Some(subscribe) = asked {
                return Some(Command::Subscribe(subscribe));
            }
        }
        None
    }

    /// The next update, and its subscription.
    pub fn poll_notice(&mut self) -> Option<(SubscriptionId, Notification)> {
        self.notices.pop_front()
    }

    fn next_wire_id(&mut self) -> WireId {
        self.last_wire_id += 1;
        WireId(NonZeroU32::new(self.last_wire_id).expect("fewer than 2^32 subscriptions"))
    }

    fn enqueue(&mut self, id: SubscriptionId) {
        let Some(known) = self.all.get_mut(&id) else { return };
        if !std::mem::replace(&mut known.is_wished, true) {
            self.pending.push_back(PendingCommand::Ask(id));
        }
    }

    /// Asks for one, from where it is: under its id that replaces what the server had.
    fn ask(&mut self, id: SubscriptionId, as_id: CommandId) -> Option<Subscribe> {
        self.all.get(&id).filter(|known| known.is_wished)?;
        if let Some(refusal) = self.overlapping(id) {
            self.refuse(id, refusal);
            return None;
        }
        self.leave(id);
        self.forget_named(id);
        let (bytes_max, has_ids) = (self.bytes_max, self.has_ids);
        let known = self.all.get_mut(&id)?;
        let owned = |(topic, at): (&TopicName, &Position)| (topic.clone(), at.clone());
        let places = known.tracker.positions().filter(|(topic, _)| known.reads(topic));
        let mut places: Vec<_> = places.map(owned).collect();
        places.sort_by(|(one, _), (other, _)| one.cmp(other));
        let wire_id = has_ids.then_some(known.wire_id);
        let mut asked = known.command(wire_id, known.wanted.selectors.clone(), Vec::new());
        (asked.positions, known.unnamed) = parts::split(bytes_max, &asked, places);
        (known.is_wished, known.open_count) = (false, 1);
        (known.asked_as, known.state) = (Some(as_id), SubscriptionState::Asked);
        self.asked.insert(as_id, id);
        if asked.options.delta != DeltaKind::None {
            self.payloads.expect_deltas();
        }
        Some(asked)
    }

    /// Why one cannot be asked for beside another: without ids the server would read what overlaps under the options and
    /// from the place of the last.
    fn overlapping(&self, id: SubscriptionId) -> Option<Refusal> {
        let selectors = &self.all.get(&id).filter(|_| !self.has_ids)?.wanted.selectors;
        let others = self
            .all
            .iter()
            .filter(|(other, known)| **other != id && known.state != SubscriptionState::Waiting);
        let is_shared = |theirs: &&Selector| selectors.iter().any(|own| overlap(own, theirs));
        let theirs = others.flat_map(|(_, known)| &known.wanted.selectors).find(is_shared)?;
        let text = format!(
            "cannot subscribe beside the subscription to `{}`: they overlap, and the server has no `ids`; use one \
             that has",
            theirs.as_str()
        );
        Some(Refusal::new(Code::MissingFeature, text))
    }

    /// Asks, by name and under an id of their own, for topics whose places had no room before: they join the same readings,
    /// and take them back to where the subscription is.
    fn ask_more(&mut self, id: SubscriptionId, as_id: CommandId) -> Option<Subscribe> {
        let topics = self.all.get_mut(&id)?.unnamed.pop_front()?;
        let wire_id = self.next_wire_id();
        let known = self.all.get_mut(&id)?;
        let place =
            |topic: &TopicName| Some((topic.clone(), known.tracker.position(topic)?.clone()));
        let positions = topics.iter().filter_map(place).collect();
        let selectors = topics.iter().map(Selector::of_topic).collect();
        let asked = known.command(Some(wire_id), selectors, positions);
        known.named = Some((wire_id, topics));
        known.open_count += 1;
        known.asked_as = Some(as_id);
        self.wire_ids.insert(wire_id, id);
        self.asked.insert(as_id, id);
        Some(asked)
    }

    /// Ends the subscription to those that were asked for by name.
    fn forget_named(&mut self, id: SubscriptionId) {
        let named = self.all.get_mut(&id).and_then(|known| known.named.take());
        if let Some((id, _)) = named {
            self.wire_ids.remove(&id);
            self.pending.push_back(PendingCommand::Drop(Unsubscribe::Subscription(id)));
        }
    }

    /// Takes one out of all readings: what comes is meant for others, until it is described again.
    fn leave(&mut self, id: SubscriptionId) {
        let Some(known) = self.all.get_mut(&id) else { return };
        for number in std::mem::take(&mut known.readings) {
            self.part(id, number);
        }
    }

    fn part(&mut self, id: SubscriptionId, number: u32) {
        let Some(reading) = self.readings.get_mut(&number) else { return };
        reading.readers.remove(&id);
        if reading.readers.is_empty() {
            self.readings.remove(&number);
            self.payloads.forget(number);
        }
    }

    fn handle_subscribed(&mut self, subscribed: &Subscribed) {
        let answered = subscribed.id.and_then(|id| self.answered(id));
        subscribed.topics.iter().for_each(|topic| self.handle_topic(topic));
        let is_first = |known: &&Subscription| known.named.is_none();
        if let Some(id) = answered
            && self.all.get(&id).filter(is_first).is_some()
        {
            self.pending.push_back(PendingCommand::AskMore(id));
        }
    }

    /// The subscription that was asked for with this command, live now, unless it ended or was asked for again since.
    fn answered(&mut self, command: CommandId) -> Option<SubscriptionId> {
        let id = self.asked.remove(&command)?;
        let known = self.all.get_mut(&id)?;
        if known.asked_as != Some(command) || known.state == SubscriptionState::Waiting {
            return None;
        }
        (known.state, known.was_live) = (SubscriptionState::Live, true);
        known.backoff.reset();
        Some(id)
    }

    /// Of those in several messages, one is complete when all of them are.
    fn handle_complete(&mut self, wire_id: WireId) {
        let Some(id) = self.wire_ids.get(&wire_id).copied() else { return };
        let live = |known: &&mut Subscription| known.state == SubscriptionState::Live;
        let Some(known) = self.all.get_mut(&id).filter(live) else { return };
        known.open_count = known.open_count.saturating_sub(1);
        let is_complete = known.open_count == 0 && known.unnamed.is_empty();
        if known.named.as_ref().is_some_and(|(named, _)| *named == wire_id) {
            self.forget_named(id);
            self.pending.push_back(PendingCommand::AskMore(id));
        }
        if is_complete {
            self.notices.push_back((id, Notification::Complete));
        }
    }

    /// Takes who is told what comes under a number, and where those begin of whom that is new.
    fn handle_topic(&mut self, topic: &SubscribedTopic) {
        let number = topic.number;
        let last = self.readings.remove(&number);
        for reader in last.iter().flat_map(|last| &last.readers) {
            if let Some(known) = self.all.get_mut(reader) {
                known.readings.remove(&number);
            }
        }
        self.payloads.handle_topic(topic);
        let before = last.filter(|last| last.topic == topic.topic).map(|last| last.readers);
        // Whoever was told it before goes on: a description may be for those alone that it lists.
        let mut described = self.readers_of(topic);
        described.extend(before.iter().flatten());
        let mut readers = BTreeSet::new();
        for id in described {
            let Some(known) = self.all.get_mut(&id) else { continue };
            let is_new = before.as_ref().is_none_or(|before| !before.contains(&id));
            // It is described for another: of the place that this one gave, or will give by name, it would say that.
            if is_new && topic.recovered.is_none() && known.tracker.is_before(topic) {
                continue;
            }
            if is_new {
                // What is under way beyond where it begins comes again.
                self.payloads.restart(number, topic.start);
            }
            known.readings.insert(number);
            let told = known.tracker.handle_topic(topic, is_new);
            self.notices.extend(told.into_iter().map(|told| (id, told)));
            readers.insert(id);
        }
        match readers.is_empty() {
            true => self.payloads.forget(number),
            false => {
                let reading = Reading { topic: topic.topic.clone(), readers };
                self.readings.insert(number, reading);
            }
        }
    }

    /// Those that are told what comes under a number, as far as they are live.
    fn readers_of(&self, topic: &SubscribedTopic) -> BTreeSet<SubscriptionId> {
        let live = |id: &SubscriptionId| self.state(*id) == Some(SubscriptionState::Live);
        if self.has_ids {
            let listed = topic.subscriptions.iter().filter_map(|id| self.wire_ids.get(id));
            return listed.copied().filter(live).collect();
        }
        let reading = self.all.iter().filter(|(_, known)| known.reads(&topic.topic));
        reading.map(|(id, _)| *id).filter(live).collect()
    }

    fn tell(&mut self, number: u32, whole: Whole) {
        let Some(Reading { readers, .. }) = self.readings.get(&number) else { return };
        match whole {
            Whole::Publication { topic, sequence, kind, payload, stated } => {
                // The last that tells it can have it without a copy, and most often there is only one.
                let mut left = readers.len();
                let mut rest = Some((payload, stated));
                for id in readers {
                    left -= 1;
                    let own = || match left {
                        0 => rest.take().unwrap_or_default(),
                        _ => rest.clone().unwrap_or_default(),
                    };
                    let known = self.all.get_mut(id);
                    let told = known.and_then(|known| {
                        known.tracker.handle_publication(&topic, sequence, kind, own)
                    });
                    self.notices.extend(told.map(|told| (*id, told)));
                }
            }
            Whole::Gap(gap) => {
                for id in readers {
                    let known = self.all.get_mut(id);
                    let told = known.and_then(|known| known.tracker.handle_gap(&gap));
                    self.notices.extend(told.map(|told| (*id, told)));
                }
            }
            Whole::Broken => self.ask_without_deltas(number),
        }
    }

    /// Has a reading told whole from where each reader is. From now on, not only once that is asked: what comes meanwhile
    /// would seem to follow what was lost.
    fn ask_without_deltas(&mut self, number: u32) {
        let readers = self.readings.get(&number).map(|reading| reading.readers.clone());
        for id in readers.unwrap_or_default() {
            self.leave(id);
            let Some(known) = self.all.get_mut(&id) else { continue };
            known.wanted.options.delta = DeltaKind::None;
            (known.state, known.asked_as) = (SubscriptionState::Asked, None);
            self.enqueue(id);
        }
    }

    fn handle_taken_away(&mut self, wire_id: Option<WireId>, gone: &[Selector]) {
        let named = wire_id.and_then(|wire_id| self.wire_ids.get(&wire_id));
        let hit: Vec<SubscriptionId> = match (wire_id, named) {
            (None, _) => self.all.keys().copied().collect(),
            (Some(_), named) => named.copied().into_iter().collect(),
        };
        for id in hit {
            let Some(known) = self.all.get_mut(&id) else { continue };
            let count = known.wanted.selectors.len();
            known.wanted.selectors.retain(|selector| !gone.contains(selector));
            if known.wanted.selectors.is_empty() {
                let text = "cannot keep the subscription: its reader was too far behind; read faster, or \
                            subscribe with conflation `lagging`";
                self.refuse(id, Refusal::new(Code::TooSlow, text));
            } else if known.wanted.selectors.len() < count {
                self.leave_unread(id);
            }
        }
    }

    /// Takes one out of the readings of topics that it does not select any more.
    fn leave_unread(&mut self, id: SubscriptionId) {
        let Some(known) = self.all.get_mut(&id) else { return };
        let mut readings = std::mem::take(&mut known.readings);
        let is_read = |number: &u32| {
            self.readings.get(number).is_some_and(|reading| known.reads(&reading.topic))
        };
        let unread: Vec<u32> = readings.iter().filter(|number| !is_read(number)).copied().collect();
        readings.retain(|number| !unread.contains(number));
        known.readings = readings;
        unread.into_iter().for_each(|number| self.part(id, number));
    }

    fn end(&mut self, id: SubscriptionId) -> Option<Subscription> {
        self.leave(id);
        self.forget_named(id);
        let ended = self.all.remove(&id)?;
        self.wire_ids.remove(&ended.wire_id);
        self.postponed.remove(&id);
        Some(ended)
    }
}

#[cfg(test)]
mod tests;
