//! The subscriptions of a client and what each is at. Pure.
//!
//! A subscription outlives connections. It is `Waiting` while there is none, `Asked` from the command until the
//! answer, then `Live`; a break takes it back to `Waiting`. A refusal, or an unsubscribe, ends it.
//!
//! The server tells a session each topic once, however many selectors select it, and a `subscribe` restarts what
//! it overlaps with. So each subscription follows its own positions, and each `subscribe` asks for the earliest
//! place that any of them still needs: none is told anything twice, and none misses anything.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use model::{
    Advice, Code, Command, CommandId, Conflation, DeltaKind, Event, Position, RandomState, Refusal,
    Selector, Start, Subscribe, SubscribeOptions, Subscribed, SubscribedTopic, TopicName,
    Unsubscribe,
};
use protocol::native::ServerRecord;

use crate::backoff::Backoff;
use crate::errors::ClientError;
use crate::parts::{Part, Parts};
use crate::payloads::{Payloads, Whole};
use crate::selectors::Tree;
use crate::subscription_id::SubscriptionId;
use crate::tracker::{Notification, Tracker};
use crate::turns::{Taker, Turns};

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
    tracker: Tracker,
    state: SubscriptionState,
    /// The newest `subscribe`: only its answer counts.
    asked_as: Option<CommandId>,
    /// Where others that were asked for at the same time have the server read from: it may not be told again.
    described: BTreeMap<TopicName, SubscribedTopic>,
    /// It was live once: what comes next must join on to what was read.
    was_live: bool,
    /// It is to be asked for, or waits for others until then.
    is_wished: bool,
    /// It is asked for once its own last `subscribe` is answered, too.
    waits_for_itself: bool,
    /// The pauses when the server puts it off.
    backoff: Backoff,
}

impl Subscription {
    fn reads(&self, topic: &TopicName) -> bool {
        self.wanted.selectors.iter().any(|selector| selector.matches(topic.as_str()))
    }

    fn taker(&self, id: SubscriptionId) -> Taker<'_> {
        let (selectors, waits_for_itself) = (&*self.wanted.selectors, self.waits_for_itself);
        Taker { id, selectors, was_live: self.was_live, waits_for_itself }
    }

    /// How it is read. It goes for all that overlap when it is asked for last; deltas mean nothing less.
    fn manner(&self) -> SubscribeOptions {
        SubscribeOptions { delta: DeltaKind::None, ..self.wanted.options.clone() }
    }

    /// Its place among those that the server was asked for.
    fn order(&self) -> Option<u64> {
        self.asked_as.filter(|_| self.state != SubscriptionState::Waiting).map(|id| id.0)
    }

    /// Where it starts in a topic of which another has read up to `theirs`, if that can be said: the server
    /// knows better where there is the oldest, or what was acknowledged.
    fn join(&mut self, topic: &TopicName, theirs: &Position) -> Option<Position> {
        let back = match self.wanted.start {
            _ if self.was_live || self.wanted.name.is_some() => return None,
            Start::Now => 0,
            Start::Snapshot => 1,
            Start::Last(count) => count,
            Start::All | Start::Since(_) | Start::Resume(_) => return None,
        };
        let sequence = theirs.sequence.back(back);
        self.tracker.join(topic, theirs, sequence);
        Some(Position { epoch: theirs.epoch.clone(), sequence })
    }
}

/// The former state of a subscription whose selectors ended.
#[derive(Debug)]
struct Ended {
    selectors: Vec<Selector>,
    manner: SubscribeOptions,
    order: Option<u64>,
}

impl Ended {
    fn of(subscription: &Subscription) -> Self {
        let (selectors, manner) = (subscription.wanted.selectors.clone(), subscription.manner());
        Self { selectors, manner, order: subscription.order() }
    }
}

/// Something to say.
#[derive(Debug)]
enum PendingCommand {
    Ask(SubscriptionId),
    Drop(Vec<Selector>),
}

/// All subscriptions of one client.
#[derive(Debug, Default)]
pub struct Subscriptions {
    all: BTreeMap<SubscriptionId, Subscription>,
    /// The same, by what they select.
    tree: Tree,
    /// The subscriptions with exactly a selector.
    holders: HashMap<Selector, BTreeSet<SubscriptionId>, RandomState>,
    /// In how many manners they are read, and how many each.
    manners: HashMap<SubscribeOptions, usize, RandomState>,
    /// Those whose answer is awaited, by the number of the command.
    asked: HashMap<CommandId, SubscriptionId, RandomState>,
    turns: Turns,
    /// Places that do not go into one command.
    parts: Parts,
    /// The subscriptions that may take what was described before their answer, by topic.
    noted: HashMap<TopicName, Vec<SubscriptionId>, RandomState>,
    payloads: Payloads,
    is_connected: bool,
    /// Makes the pauses.
    seed: u64,
    next_id: u64,
    pending: VecDeque<PendingCommand>,
    notices: VecDeque<(SubscriptionId, Notification)>,
    /// Those that the server put off, and until when.
    postponed: BTreeMap<SubscriptionId, Instant>,
    /// The readers of each topic, as far as they were looked up; forgotten when anything changes.
    readers: HashMap<TopicName, Arc<[SubscriptionId]>, RandomState>,
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
        let subscription = Subscription {
            wanted,
            tracker,
            state: SubscriptionState::Waiting,
            asked_as: None,
            described: BTreeMap::new(),
            was_live: false,
            is_wished: false,
            waits_for_itself: false,
            backoff: Backoff::one_of(self.seed, id.0),
        };
        self.enroll(id, &subscription);
        self.all.insert(id, subscription);
        if self.is_connected {
            self.enqueue(id);
        }
        id
    }

    /// Ends one; what others still read stays subscribed. Answers whether there was such a one.
    pub fn remove(&mut self, id: SubscriptionId) -> bool {
        let Some(ended) = self.end(id) else { return false };
        if ended.state != SubscriptionState::Waiting {
            let mut selectors = ended.wanted.selectors.clone();
            selectors.retain(|selector| !self.holders.contains_key(selector));
            if !selectors.is_empty() {
                self.pending.push_back(PendingCommand::Drop(selectors));
            }
            self.ask_for_what_is_left(&[Ended::of(&ended)]);
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

    /// How many nodes of selectors were looked at: what tests count in place of time.
    #[cfg(test)]
    fn steps(&self) -> usize {
        self.tree.steps() + self.turns.steps()
    }

    /// When [`Subscriptions::handle_wake`] has something to do.
    pub fn wake_at(&self) -> Option<Instant> {
        self.postponed.values().min().copied()
    }

    /// Takes how many bytes a command may have for the server of the next connection.
    pub fn handle_limit(&mut self, message_bytes_max: usize) {
        self.parts.handle_limit(message_bytes_max);
    }

    /// Asks for everything, each from where it was left.
    pub fn handle_connected(&mut self) {
        self.is_connected = true;
        self.all.keys().copied().collect::<Vec<_>>().into_iter().for_each(|id| self.enqueue(id));
    }

    /// Notes that the connection is gone, with what was of it. Positions stay.
    pub fn handle_disconnect(&mut self) {
        self.is_connected = false;
        self.pending.clear();
        self.postponed.clear();
        self.payloads = Payloads::default();
        self.readers.clear();
        self.asked.clear();
        self.turns = Turns::default();
        self.parts.clear();
        self.noted.clear();
        for known in self.all.values_mut() {
            if known.was_live {
                known.tracker.handle_disconnect();
            }
            (known.asked_as, known.state) = (None, SubscriptionState::Waiting);
            (known.is_wished, known.waits_for_itself) = (false, false);
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
            ServerRecord::Event(Event::Pong { id: Some(id) }) => {
                let freed = self.turns.handle_pong(id);
                self.free(freed);
            }
            ServerRecord::Event(Event::Unsubscribed { id: None, selectors, .. }) => {
                self.handle_taken_away(&selectors);
            }
            record => {
                self.forget_noted(&record);
                for whole in self.payloads.take(record) {
                    self.tell(whole);
                }
            }
        }
    }

    /// Takes a refusal, if it is of a subscription: puts that off, or ends it. Answers whether it was.
    pub fn handle_refused(&mut self, id: CommandId, refusal: &Refusal, now: Instant) -> bool {
        let command = id;
        if let Some(part) = self.parts.handle_answered(command) {
            self.handle_part_refused(part, refusal, now);
            return true;
        }
        let Some(id) = self.asked.remove(&command) else { return false };
        if self.all.get(&id).is_some_and(|known| known.asked_as == Some(command)) {
            self.put_off_or_end(id, refusal, now);
        }
        true
    }

    fn handle_part_refused(&mut self, part: Part, refusal: &Refusal, now: Instant) {
        let Part { of, topics } = part;
        let is_live = self.state(of) == Some(SubscriptionState::Live);
        let may_be_fewer = refusal.code == Code::TooManySubscriptions;
        if is_live && !(may_be_fewer && self.parts.halve(of, topics)) {
            self.put_off_or_end(of, refusal, now);
        }
    }

    fn put_off_or_end(&mut self, id: SubscriptionId, refusal: &Refusal, now: Instant) {
        match refusal.code.advice() {
            Advice::RetryNow | Advice::RetryLater => {
                let Some(known) = self.all.get_mut(&id) else { return };
                self.postponed.insert(id, now + known.backoff.next_pause(Duration::ZERO));
                (known.asked_as, known.state) = (None, SubscriptionState::Waiting);
                self.parts.remove(id);
                let freed = self.turns.place(id);
                self.free(freed);
            }
            Advice::ChangeFirst | Advice::AuthenticateFirst => {
                self.end(id);
                self.notices.push_back((id, Notification::Ended(refusal.clone().into())));
            }
        }
    }

    /// The next command, with the id `as_id`.
    pub fn poll_command(&mut self, as_id: CommandId) -> Option<Command> {
        while let Some(command) = self.pending.pop_front() {
            match command {
                PendingCommand::Drop(selectors) => {
                    return Some(Command::Unsubscribe(Unsubscribe::Selectors(selectors)));
                }
                PendingCommand::Ask(id) => {
                    if let Some(subscribe) = self.ask(id, as_id) {
                        return Some(Command::Subscribe(subscribe));
                    }
                }
            }
        }
        let part = self.ask_for_next_part(as_id).map(Command::Subscribe);
        part.or_else(|| self.turns.poll_ping(as_id).then_some(Command::Ping))
    }

    /// The next update, and its subscription.
    pub fn poll_notice(&mut self) -> Option<(SubscriptionId, Notification)> {
        self.notices.pop_front()
    }

    fn enqueue(&mut self, id: SubscriptionId) {
        let Some(known) = self.all.get_mut(&id) else { return };
        if !std::mem::replace(&mut known.is_wished, true) {
            self.pending.push_back(PendingCommand::Ask(id));
        }
    }

    /// Has those asked for that waited for others, unless they have to wait for one more.
    fn free(&mut self, waited: Vec<SubscriptionId>) {
        let is_there = |id: &SubscriptionId| self.all.get(id).is_some_and(|known| known.is_wished);
        self.pending.extend(waited.into_iter().filter(is_there).map(PendingCommand::Ask));
    }

    /// Asks for one, unless it has to wait for others.
    fn ask(&mut self, id: SubscriptionId, as_id: CommandId) -> Option<Subscribe> {
        let known = self.all.get(&id).filter(|known| known.is_wished)?;
        if self.turns.must_wait(&known.taker(id)) {
            return None;
        }
        let positions = self.places_for(id)?;
        let known = self.all.get(&id)?;
        // A topic without a position came into being meanwhile: all of it is news.
        let start = if known.was_live { Start::All } else { known.wanted.start.clone() };
        let asked = Subscribe { start, positions: Vec::new(), ..known.wanted.clone() };
        let (positions, later) = self.parts.split(id, &asked, positions);
        let is_placed = self.is_placed(id, &positions);
        let known = self.all.get_mut(&id)?;
        (known.asked_as, known.state) = (Some(as_id), SubscriptionState::Asked);
        (known.is_wished, known.waits_for_itself) = (false, false);
        known.tracker.handle_asked();
        known.tracker.handle_later(&later);
        known.described.clear();
        if known.wanted.options.delta != DeltaKind::None {
            self.payloads.expect_deltas();
        }
        if !is_placed {
            self.turns.begin(&known.taker(id));
        }
        self.asked.insert(as_id, id);
        Some(Subscribe { positions, ..asked })
    }

    /// Asks for topics by name, each from its place; their pattern goes on reading them.
    fn ask_for_next_part(&mut self, as_id: CommandId) -> Option<Subscribe> {
        let all = &self.all;
        let is_live = |of| all.get(&of).is_some_and(|it| it.state == SubscriptionState::Live);
        let part = self.parts.next(is_live)?;
        let place = |topic: &TopicName| Some((topic.clone(), self.place_for(part.of, topic)?));
        let positions = part.topics.iter().filter_map(place).collect();
        let selectors = part.topics.iter().map(Selector::of_topic).collect();
        let options = self.all.get(&part.of)?.wanted.options.clone();
        self.parts.handle_asked(as_id, part);
        Some(Subscribe {
            subscription: None,
            selectors,
            start: Start::All,
            positions,
            name: None,
            options,
        })
    }

    /// Gives names back that were asked for on account of their places alone.
    fn handle_part_answered(&mut self, part: Part) {
        let selectors = part.topics.iter().map(Selector::of_topic);
        let selectors = selectors.filter(|it| !self.holders.contains_key(it)).collect::<Vec<_>>();
        if !selectors.is_empty() {
            self.pending.push_back(PendingCommand::Drop(selectors));
        }
    }

    /// Whether it is known where it will be in all that it reads: others need not wait for it.
    fn is_placed(&self, id: SubscriptionId, positions: &[(TopicName, Position)]) -> bool {
        let Some(known) = self.all.get(&id) else { return false };
        let given: BTreeSet<&str> = positions.iter().map(|(topic, _)| topic.as_str()).collect();
        let is_settled = |other: &SubscriptionId| {
            let state = self.all.get(other).map(|other| other.state);
            *other != id && state == Some(SubscriptionState::Live) && !self.turns.is_open(*other)
        };
        known.wanted.selectors.iter().all(|selector| match selector.as_topic() {
            Some(topic) => given.contains(topic),
            // Another has the same pattern, and knows where it is in all of its topics.
            None => self.holders.get(selector).is_some_and(|all| all.iter().any(is_settled)),
        })
    }

    /// Has those that overlapped with what ended read under their own options.
    ///
    /// For the server all that overlap, also by way of others, are read as the newest of them says.
    fn ask_for_what_is_left(&mut self, ended: &[Ended]) {
        let mut manners = self.manners.keys().chain(ended.iter().map(|it| &it.manner));
        let first = manners.next();
        if manners.all(|manner| Some(manner) == first) {
            return;
        }
        let (mut seen, mut newest) = (BTreeSet::new(), Vec::new());
        let mut in_force =
            ended.iter().max_by_key(|it| it.order).map(|it| (it.order, it.manner.clone()));
        for neighbour in ended.iter().flat_map(|it| self.tree.all(&it.selectors)) {
            let part = self.part_of(neighbour, &mut seen);
            let last = part.into_iter().max_by_key(|(id, _)| self.all[id].order());
            let Some((id, manner)) = last else { continue };
            let order = self.all[&id].order();
            if in_force.as_ref().is_none_or(|(known, _)| *known < order) {
                in_force = Some((order, manner.clone()));
            }
            newest.push((order, id, manner));
        }
        newest.sort_by_key(|(order, ..)| *order);
        for (_, id, manner) in newest {
            if in_force.as_ref().is_some_and(|(_, known)| *known != manner) {
                self.ask_again(id);
            }
        }
    }

    /// Those asked for that overlap with one, also by way of others; notes in `seen` who was looked at.
    fn part_of(
        &self,
        one: SubscriptionId,
        seen: &mut BTreeSet<SubscriptionId>,
    ) -> Vec<(SubscriptionId, SubscribeOptions)> {
        let (mut part, mut unvisited) = (Vec::new(), vec![one]);
        while let Some(id) = unvisited.pop() {
            let known = self.all.get(&id).filter(|known| known.order().is_some());
            let Some(known) = known.filter(|_| seen.insert(id)) else { continue };
            part.push((id, known.manner()));
            unvisited.extend(self.tree.all(&known.wanted.selectors));
        }
        part
    }

    /// Has one asked for again from where it is. From now on, not only once it is asked: what comes meanwhile would
    /// seem to follow what was lost.
    fn ask_again(&mut self, id: SubscriptionId) {
        let Some(known) = self.all.get_mut(&id) else { return };
        known.waits_for_itself = known.state == SubscriptionState::Live;
        (known.state, known.asked_as) = (SubscriptionState::Asked, None);
        self.enqueue(id);
    }

    /// The earliest place that anybody needs of each topic that the subscription reads.
    fn places_for(&mut self, id: SubscriptionId) -> Option<Vec<(TopicName, Position)>> {
        let known = self.all.get(&id)?;
        let mut topics: BTreeSet<TopicName> =
            known.wanted.selectors.iter().filter_map(Selector::to_topic).collect();
        topics.extend(known.tracker.positions().map(|(topic, _)| topic.clone()));
        let is_pattern = |selector: &&Selector| selector.has_wildcard();
        let patterns: Vec<Selector> =
            known.wanted.selectors.iter().filter(is_pattern).cloned().collect();
        for other in self.tree.all(&patterns).iter().filter_map(|other| self.all.get(other)) {
            let theirs = other.tracker.positions().map(|(topic, _)| topic);
            topics.extend(theirs.filter(|topic| known.reads(topic)).cloned());
        }
        let place = |topic| self.place_for(id, &topic).map(|place| (topic, place));
        Some(topics.into_iter().filter_map(place).collect())
    }

    fn place_for(&mut self, id: SubscriptionId, topic: &TopicName) -> Option<Position> {
        let readers = self.readers_of(topic);
        let others =
            || readers.iter().filter(|other| **other != id).filter_map(|id| self.all.get(id));
        let mut place = self.all.get(&id)?.tracker.position(topic).cloned();
        if place.is_none() {
            let was_live = others().filter(|other| other.was_live);
            let known: Vec<_> = was_live.filter_map(|it| it.tracker.position(topic)).collect();
            let newest = known.last().map(|at| at.epoch.clone());
            // The furthest is the nearest to the newest that there is.
            let of_newest = known.into_iter().filter(|at| Some(&at.epoch) == newest.as_ref());
            let furthest = of_newest.max_by_key(|at| at.sequence).cloned();
            place = furthest.and_then(|theirs| self.all.get_mut(&id)?.join(topic, &theirs));
        }
        // Also what is asked for and not read yet has its place from there.
        let is_placed = |it: &&Subscription| it.was_live || it.state == SubscriptionState::Asked;
        let others =
            || readers.iter().filter(|other| **other != id).filter_map(|id| self.all.get(id));
        let others = others().filter(is_placed).filter_map(|it| it.tracker.position(topic));
        let same = |at: &&Position| place.as_ref().is_some_and(|place| place.epoch == at.epoch);
        let earliest = others.filter(same).min_by_key(|at| at.sequence).cloned();
        match (place, earliest) {
            (Some(place), Some(theirs)) if theirs.sequence < place.sequence => Some(theirs),
            (place, _) => place,
        }
    }

    /// Those that read `topic`.
    fn readers_of(&mut self, topic: &TopicName) -> Arc<[SubscriptionId]> {
        if let Some(found) = self.readers.get(topic) {
            return Arc::clone(found);
        }
        let found: Arc<[SubscriptionId]> = self.tree.readers_of(topic).into_iter().collect();
        self.readers.insert(topic.clone(), Arc::clone(&found));
        found
    }

    /// The readers of `topic` that are live: until its answer, what comes is meant for others.
    fn tell_live(
        &mut self,
        topic: &TopicName,
        mut take: impl FnMut(&mut Tracker, &mut Vec<Notification>),
    ) {
        let mut told = Vec::new();
        for id in self.readers_of(topic).iter() {
            let live = |known: &&mut Subscription| known.state == SubscriptionState::Live;
            if let Some(known) = self.all.get_mut(id).filter(live) {
                take(&mut known.tracker, &mut told);
                self.notices.extend(told.drain(..).map(|told| (*id, told)));
            }
        }
    }

    fn handle_subscribed(&mut self, subscribed: &Subscribed) {
        let answered = subscribed.id.and_then(|id| self.answered(id));
        // All who read these topics are read to from there, whoever asked.
        subscribed.topics.iter().for_each(|topic| self.handle_topic(topic));
        if let Some(id) = answered {
            let freed = self.turns.handle_answered(id);
            self.free(freed);
        }
        if let Some(part) = subscribed.id.and_then(|id| self.parts.handle_answered(id)) {
            self.handle_part_answered(part);
        }
    }

    /// The subscription that was asked for with this command, live now, unless it ended or was asked for again since.
    fn answered(&mut self, command: CommandId) -> Option<SubscriptionId> {
        let id = self.asked.remove(&command)?;
        let known = self.all.get_mut(&id)?;
        if known.asked_as != Some(command) || known.state != SubscriptionState::Asked {
            return None;
        }
        (known.state, known.was_live) = (SubscriptionState::Live, true);
        known.backoff.reset();
        for topic in std::mem::take(&mut known.described).into_values() {
            let is_unfinished = self.payloads.is_unfinished(&topic.topic);
            let told = known.tracker.handle_noted(&topic, is_unfinished);
            self.notices.extend(told.into_iter().map(|told| (id, told)));
        }
        self.adopt_numbering(id);
        Some(id)
    }

    /// Takes the numbering that others were told of meanwhile: the server does not describe a topic again to a pattern if
    /// another selects it by name, and the place in the old numbering means nothing.
    fn adopt_numbering(&mut self, id: SubscriptionId) {
        let Some(known) = self.all.get(&id) else { return };
        let live = |other: &SubscriptionId| {
            let other = self.all.get(other).filter(|_| *other != id);
            other.filter(|other| other.state == SubscriptionState::Live)
        };
        let adopted = |(topic, own): (&TopicName, &Position)| {
            let readers = self.tree.readers_of(topic);
            let mut theirs =
                readers.iter().filter_map(live).filter_map(|it| it.tracker.described(topic));
            let at = theirs.find(|at| at.epoch != own.epoch)?;
            let (epoch, head, start) = (at.epoch.clone(), at.sequence, at.sequence);
            let (number, recovered) = (self.payloads.number_of(topic), Some(false));
            let subscriptions = Vec::new();
            let topic = topic.clone();
            Some(SubscribedTopic { topic, number, subscriptions, epoch, head, start, recovered })
        };
        let mut adopted: Vec<_> = known.tracker.undescribed().filter_map(adopted).collect();
        adopted.sort_by(|one, other| one.topic.cmp(&other.topic));
        let Some(known) = self.all.get_mut(&id) else { return };
        for topic in adopted {
            let told = known.tracker.handle_topic(&topic, false);
            self.notices.extend(told.into_iter().map(|told| (id, told)));
        }
    }

    fn handle_topic(&mut self, topic: &SubscribedTopic) {
        self.payloads.handle_topic(topic);
        for id in self.readers_of(&topic.topic).iter() {
            let is_overtaken = self.is_overtaken(*id, topic);
            let Some(known) = self.all.get_mut(id) else { continue };
            let is_known = known.was_live || known.tracker.position(&topic.topic).is_some();
            if known.state == SubscriptionState::Asked && known.asked_as.is_some() && is_known {
                known.described.insert(topic.topic.clone(), topic.clone());
                self.noted.entry(topic.topic.clone()).or_default().push(*id);
            }
            if is_overtaken {
                known.tracker.handle_overtaken(topic);
                if known.state == SubscriptionState::Live {
                    self.ask_again(*id);
                }
            }
        }
        let is_unfinished = self.payloads.is_unfinished(&topic.topic);
        self.tell_live(&topic.topic, |tracker, told| {
            told.extend(tracker.handle_topic(topic, is_unfinished));
        });
    }

    /// Whether a topic that came into being meanwhile is read from beyond where a reader is: whoever was asked for
    /// after it did not know of the topic, and so gave no place.
    fn is_overtaken(&self, id: SubscriptionId, topic: &SubscribedTopic) -> bool {
        let is_read = |known: &&Subscription| {
            let waits = known.state == SubscriptionState::Asked && known.asked_as.is_none();
            known.state == SubscriptionState::Live || (waits && known.was_live)
        };
        let known = self.all.get(&id).filter(is_read);
        let Some(known) = known.filter(|_| topic.recovered != Some(false)) else { return false };
        let readers = self.tree.readers_of(&topic.topic);
        let others = || readers.iter().filter_map(|other| self.all.get(other));
        // Who skips may be read from further on at any time.
        let skips = |other: &Subscription| {
            let options = &other.wanted.options;
            options.filter.is_some() || options.conflation != Conflation::Off
        };
        known.tracker.is_before(topic, !self.turns.is_open(id))
            && !others().any(skips)
            && others().any(|other| other.order() > known.order())
    }

    /// Updates that others received since a topic was described have not reached the subscriptions without an answer.
    fn forget_noted(&mut self, record: &ServerRecord<'_>) {
        if self.noted.is_empty() {
            return;
        }
        let Some(topic) = self.payloads.name_of(record) else { return };
        for id in self.noted.remove(&topic).unwrap_or_default() {
            if let Some(known) = self.all.get_mut(&id) {
                known.described.remove(&topic);
            }
        }
    }

    fn tell(&mut self, whole: Whole) {
        match whole {
            Whole::Publication { topic, sequence, kind, payload } => {
                // The last that tells it can have it without a copy, and most often there is only one.
                let mut left = self.readers_of(&topic).len();
                let mut payload = Some(payload);
                self.tell_live(&topic, |tracker, told| {
                    left -= 1;
                    let own = || match left {
                        0 => payload.take().unwrap_or_default(),
                        _ => payload.clone().unwrap_or_default(),
                    };
                    told.extend(tracker.handle_publication(&topic, sequence, kind, own));
                });
            }
            Whole::Gap(gap) => {
                let topic = gap.topic.clone();
                self.tell_live(&topic, |tracker, told| told.extend(tracker.handle_gap(&gap)));
            }
            Whole::Broken(topic) => self.ask_without_deltas(&topic),
        }
    }

    /// Has `topic` told whole from where each reader is. Those who asked for it whole already wait for that.
    fn ask_without_deltas(&mut self, topic: &TopicName) {
        for id in self.readers_of(topic).iter() {
            let Some(known) = self.all.get_mut(id) else { continue };
            let delta = &mut known.wanted.options.delta;
            let took_deltas = std::mem::take(delta) != DeltaKind::None;
            let must_ask = match known.state {
                SubscriptionState::Live => true,
                SubscriptionState::Asked => took_deltas,
                SubscriptionState::Waiting => false,
            };
            if must_ask {
                self.ask_again(*id);
            }
        }
    }

    fn handle_taken_away(&mut self, gone: &[Selector]) {
        let holders = gone.iter().filter_map(|selector| self.holders.get(selector));
        let hit: BTreeSet<SubscriptionId> = holders.flatten().copied().collect();
        let mut ended = Vec::new();
        for id in hit {
            let has_parts = self.parts.has(id);
            let Some(mut known) = self.end(id) else { continue };
            let is_left = |selector: &&Selector| !gone.contains(selector);
            let left: Vec<_> = known.wanted.selectors.iter().filter(is_left).cloned().collect();
            let lost = Ended::of(&known);
            if left.is_empty() {
                let text = "cannot keep the subscription: its reader was too far behind; read faster, or \
                            subscribe with conflation `lagging`";
                let error: ClientError = Refusal::new(Code::TooSlow, text).into();
                self.notices.push_back((id, Notification::Ended(error)));
            } else {
                known.wanted.selectors = left;
                self.enroll(id, &known);
                self.all.insert(id, known);
                if has_parts {
                    self.ask_again(id);
                }
            }
            ended.push(lost);
        }
        self.forget_unread();
        self.ask_for_what_is_left(&ended);
    }

    fn enroll(&mut self, id: SubscriptionId, subscription: &Subscription) {
        self.readers.clear();
        self.tree.add(id, &subscription.wanted.selectors);
        for selector in &subscription.wanted.selectors {
            self.holders.entry(selector.clone()).or_default().insert(id);
        }
        *self.manners.entry(subscription.manner()).or_default() += 1;
    }

    fn strike(&mut self, id: SubscriptionId, subscription: &Subscription) {
        self.readers.clear();
        self.tree.remove(id, &subscription.wanted.selectors);
        for selector in &subscription.wanted.selectors {
            if let Entry::Occupied(mut holders) = self.holders.entry(selector.clone()) {
                holders.get_mut().remove(&id);
                if holders.get().is_empty() {
                    holders.remove();
                }
            }
        }
        if let Entry::Occupied(mut count) = self.manners.entry(subscription.manner()) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    fn end(&mut self, id: SubscriptionId) -> Option<Subscription> {
        let ended = self.all.remove(&id)?;
        self.strike(id, &ended);
        self.postponed.remove(&id);
        self.parts.remove(id);
        let freed = self.turns.place(id);
        self.free(freed);
        self.forget_unread();
        Some(ended)
    }

    fn forget_unread(&mut self) {
        let tree = &self.tree;
        self.payloads.forget_unless(|topic| !tree.readers_of(topic).is_empty());
    }
}

#[cfg(test)]
mod tests;
