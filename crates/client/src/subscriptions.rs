//! The subscriptions of a client and what each is at. Pure.
//!
//! A subscription outlives connections. It is `Waiting` while there is none, `Asked` from the command until the
//! answer, then `Live`; a break takes it back to `Waiting`. A refusal, or an unsubscribe, ends it.
//!
//! The server tells a session each topic once, however many selectors select it, and a `subscribe` restarts what
//! it overlaps with. So each subscription follows its own positions, and each `subscribe` asks for the earliest
//! place that any of them still needs: none is told anything twice, and none misses anything.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use model::{
    Advice, Code, Command, CommandId, DeltaKind, Event, Position, Refusal, Selector, Start,
    Subscribe, Subscribed, SubscribedTopic, TopicName, Unsubscribe,
};
use protocol::native::ServerRecord;

use crate::backoff::Backoff;
use crate::errors::ClientError;
use crate::payloads::{Payloads, Whole};
use crate::tracker::{Told, Tracker};

/// The name of a subscription within its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubscriptionId(u64);

/// What a subscription is at.
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
    /// It was live once: what comes next must join on to what was read.
    was_live: bool,
    /// The same, when it was asked for last.
    is_resumed: bool,
    /// Until when it is not known where it is: its patterns' topics are yet to be told.
    unknown_until: Option<Probe>,
    /// The pauses when the server puts it off.
    backoff: Backoff,
}

impl Subscription {
    fn reads(&self, topic: &TopicName) -> bool {
        self.wanted.selectors.iter().any(|selector| selector.matches(topic.as_str()))
    }

    fn overlaps(&self, other: &Self) -> bool {
        let theirs = &other.wanted.selectors;
        self.wanted.selectors.iter().any(|own| theirs.iter().any(|their| own.overlaps(their)))
    }

    /// Where it starts in a topic of which another has read up to `theirs`, if that can be said: the server
    /// knows better where there is the oldest, or what was acknowledged.
    fn join(&mut self, topic: &TopicName, theirs: &Position) -> Option<Position> {
        let back = match self.wanted.start {
            _ if self.was_live || self.wanted.name.is_some() => return None,
            Start::Now => 0,
            Start::Snapshot => 1,
            Start::Last(count) => count,
            Start::All | Start::Since(_) => return None,
        };
        let sequence = theirs.sequence.back(back);
        self.tracker.join(topic, theirs, sequence);
        Some(Position { epoch: theirs.epoch.clone(), sequence })
    }
}

/// A `pong`, before which the server tells the topics that a pattern selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Probe {
    /// It is to be asked for, if anybody waits.
    Wanted,
    Asked(CommandId),
}

/// Something to say.
#[derive(Debug)]
enum Wish {
    Ask(SubscriptionId),
    Drop(Vec<Selector>),
}

/// All subscriptions of one client.
#[derive(Debug, Default)]
pub struct Subscriptions {
    all: BTreeMap<SubscriptionId, Subscription>,
    payloads: Payloads,
    is_connected: bool,
    next_id: u64,
    wishes: VecDeque<Wish>,
    news: VecDeque<(SubscriptionId, Told)>,
    /// Those that the server put off, and until when.
    postponed: BTreeMap<SubscriptionId, Instant>,
    /// Who reads which topic, as far as it was looked up; forgotten when anything changes.
    readers: HashMap<TopicName, Arc<[SubscriptionId]>>,
}

impl Subscriptions {
    /// Adds one. It is asked for when there is a connection.
    pub fn add(&mut self, wanted: Subscribe) -> SubscriptionId {
        let id = SubscriptionId(self.next_id);
        self.next_id += 1;
        let tracker = Tracker::new(wanted.start == Start::Snapshot, &wanted.positions);
        let subscription = Subscription {
            wanted,
            tracker,
            state: SubscriptionState::Waiting,
            asked_as: None,
            was_live: false,
            is_resumed: false,
            unknown_until: None,
            backoff: Backoff::new(id.0),
        };
        self.all.insert(id, subscription);
        self.readers.clear();
        if self.is_connected {
            self.wishes.push_back(Wish::Ask(id));
        }
        id
    }

    /// Ends one; what others still read stays subscribed. Answers whether there was such a one.
    pub fn remove(&mut self, id: SubscriptionId) -> bool {
        let Some(ended) = self.end(id) else { return false };
        let is_read = |selector: &Selector| {
            self.all.values().any(|known| known.wanted.selectors.contains(selector))
        };
        let mut selectors = ended.wanted.selectors;
        selectors.retain(|selector| !is_read(selector));
        if ended.state != SubscriptionState::Waiting && !selectors.is_empty() {
            self.wishes.push_back(Wish::Drop(selectors));
        }
        true
    }

    /// What a subscription is at; `None` if there is none (any more).
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

    /// Asks for everything, each from where it was left.
    pub fn handle_connected(&mut self) {
        self.is_connected = true;
        self.wishes = self.all.keys().map(|id| Wish::Ask(*id)).collect();
    }

    /// Notes that the connection is gone, with what was of it. Positions stay.
    pub fn handle_disconnect(&mut self) {
        self.is_connected = false;
        self.wishes.clear();
        self.postponed.clear();
        self.payloads = Payloads::default();
        self.readers.clear();
        for known in self.all.values_mut() {
            if known.was_live {
                known.tracker.handle_disconnect();
            }
            (known.asked_as, known.state) = (None, SubscriptionState::Waiting);
            known.unknown_until = None;
            known.backoff.reset();
        }
    }

    /// Asks again for what was put off.
    pub fn handle_wake(&mut self, now: Instant) {
        let wishes = &mut self.wishes;
        self.postponed.retain(|id, due_at| {
            let is_due = *due_at <= now;
            if is_due {
                wishes.push_back(Wish::Ask(*id));
            }
            !is_due
        });
    }

    /// Takes what the server says, if it concerns a subscription.
    pub fn handle_record(&mut self, record: ServerRecord<'_>) {
        match record {
            ServerRecord::Event(Event::Subscribed(subscribed)) => {
                self.handle_subscribed(&subscribed);
            }
            ServerRecord::Event(Event::Topic(topic)) => self.handle_topic(&topic),
            ServerRecord::Event(Event::Pong { id: Some(id) }) => {
                for known in self.all.values_mut() {
                    known.unknown_until.take_if(|probe| *probe == Probe::Asked(id));
                }
            }
            ServerRecord::Event(Event::Unsubscribed { selectors, has_lagged: true, .. }) => {
                self.handle_taken_away(&selectors);
            }
            record => {
                for whole in self.payloads.take(record) {
                    self.tell(whole);
                }
            }
        }
    }

    /// Takes a refusal, if it is of a subscription: puts that off, or ends it. Answers whether it was.
    pub fn handle_refused(&mut self, id: CommandId, refusal: &Refusal, now: Instant) -> bool {
        let Some((&id, known)) = self.all.iter_mut().find(|(_, known)| known.asked_as == Some(id))
        else {
            return false;
        };
        match refusal.code.advice() {
            Advice::RetryNow | Advice::RetryLater => {
                self.postponed.insert(id, now + known.backoff.next_pause(Duration::ZERO));
                (known.asked_as, known.state) = (None, SubscriptionState::Waiting);
            }
            Advice::ChangeFirst | Advice::AuthenticateFirst => {
                self.end(id);
                self.news.push_back((id, Told::Ended(refusal.clone().into())));
            }
        }
        true
    }

    /// What to say next, under the number `as_id`.
    pub fn poll_command(&mut self, as_id: CommandId) -> Option<Command> {
        let Some(at) = self.wishes.iter().position(|wish| !self.must_wait(wish)) else {
            return self.probe(as_id);
        };
        match self.wishes.remove(at)? {
            Wish::Drop(selectors) => Some(Command::Unsubscribe(Unsubscribe { selectors })),
            Wish::Ask(id) => self.ask(id, as_id).map(Command::Subscribe),
        }
    }

    /// What to tell next, and of which subscription.
    pub fn poll_news(&mut self) -> Option<(SubscriptionId, Told)> {
        self.news.pop_front()
    }

    /// Two that overlap are not asked for at the same moment, unless both were live before, or it is known where
    /// the first one is: the second would restart what they share from a place that only the second gives.
    fn must_wait(&self, wish: &Wish) -> bool {
        let Wish::Ask(id) = wish else { return false };
        let Some(asking) = self.all.get(id) else { return false };
        let is_in_the_way = |known: &Subscription| {
            (known.state == SubscriptionState::Asked || known.unknown_until.is_some())
                && !(known.is_resumed && asking.was_live)
                && known.overlaps(asking)
        };
        self.all.iter().any(|(other, known)| other != id && is_in_the_way(known))
    }

    /// Finds out where those are that others wait for.
    fn probe(&mut self, as_id: CommandId) -> Option<Command> {
        if self.wishes.is_empty() {
            return None;
        }
        let all = self.all.values_mut().filter_map(|known| known.unknown_until.as_mut());
        let wanted = all.filter(|probe| **probe == Probe::Wanted);
        let count = wanted.map(|probe| *probe = Probe::Asked(as_id)).count();
        (count > 0).then_some(Command::Ping)
    }

    fn ask(&mut self, id: SubscriptionId, as_id: CommandId) -> Option<Subscribe> {
        let positions = self.places_for(id)?;
        let known = self.all.get_mut(&id)?;
        (known.asked_as, known.state) = (Some(as_id), SubscriptionState::Asked);
        known.is_resumed = known.was_live;
        if known.wanted.options.delta != DeltaKind::None {
            self.payloads.expect_deltas();
        }
        // A topic without a position came into being meanwhile: all of it is news.
        let start = if known.was_live { Start::All } else { known.wanted.start.clone() };
        Some(Subscribe { start, positions, ..known.wanted.clone() })
    }

    /// The earliest place that anybody needs of each topic that the subscription reads.
    fn places_for(&mut self, id: SubscriptionId) -> Option<Vec<(TopicName, Position)>> {
        let known = self.all.get(&id)?;
        let mut topics: BTreeSet<TopicName> =
            known.wanted.selectors.iter().filter_map(Selector::to_topic).collect();
        let has_pattern = known.wanted.selectors.iter().any(Selector::has_wildcard);
        topics.extend(known.tracker.positions().map(|(topic, _)| topic.clone()));
        if has_pattern {
            let others = self.all.values().flat_map(|other| other.tracker.positions());
            topics.extend(others.map(|(topic, _)| topic).filter(|it| known.reads(it)).cloned());
        }
        let place = |topic| self.place_for(id, &topic).map(|place| (topic, place));
        Some(topics.into_iter().filter_map(place).collect())
    }

    fn place_for(&mut self, id: SubscriptionId, topic: &TopicName) -> Option<Position> {
        let mut place = self.all.get(&id)?.tracker.position(topic).cloned();
        for &other in self.readers_of(topic).iter().filter(|other| **other != id) {
            let theirs = self.all.get(&other).filter(|other| other.was_live);
            let Some(theirs) = theirs.and_then(|it| it.tracker.position(topic)).cloned() else {
                continue;
            };
            place = place.or_else(|| self.all.get_mut(&id)?.join(topic, &theirs));
            let is_earlier =
                |place: &Position| place.epoch == theirs.epoch && theirs.sequence < place.sequence;
            if place.as_ref().is_some_and(is_earlier) {
                place = Some(theirs);
            }
        }
        place
    }

    /// Those that read `topic`.
    fn readers_of(&mut self, topic: &TopicName) -> Arc<[SubscriptionId]> {
        if let Some(found) = self.readers.get(topic) {
            return Arc::clone(found);
        }
        let readers = self.all.iter().filter(|(_, known)| known.reads(topic));
        let found: Arc<[SubscriptionId]> = readers.map(|(id, _)| *id).collect();
        self.readers.insert(topic.clone(), Arc::clone(&found));
        found
    }

    /// The readers of `topic` that are live: until its answer, what comes is meant for others.
    fn tell_live(&mut self, topic: &TopicName, mut take: impl FnMut(&mut Tracker, &mut Vec<Told>)) {
        let mut told = Vec::new();
        for id in self.readers_of(topic).iter() {
            let live = |known: &&mut Subscription| known.state == SubscriptionState::Live;
            if let Some(known) = self.all.get_mut(id).filter(live) {
                take(&mut known.tracker, &mut told);
                self.news.extend(told.drain(..).map(|told| (*id, told)));
            }
        }
    }

    fn handle_subscribed(&mut self, subscribed: &Subscribed) {
        subscribed.topics.iter().for_each(|topic| self.payloads.handle_topic(topic));
        let is_it = |known: &Subscription| {
            known.asked_as == subscribed.id && known.state == SubscriptionState::Asked
        };
        let Some((id, known)) = self.all.iter_mut().find(|(_, known)| is_it(known)) else {
            return;
        };
        (known.state, known.was_live) = (SubscriptionState::Live, true);
        let has_pattern = known.wanted.selectors.iter().any(Selector::has_wildcard);
        known.unknown_until = (has_pattern && !known.is_resumed).then_some(Probe::Wanted);
        known.backoff.reset();
        for topic in &subscribed.topics {
            let is_unfinished = self.payloads.is_unfinished(&topic.topic);
            let told = known.tracker.handle_topic(topic, is_unfinished);
            self.news.extend(told.into_iter().map(|told| (*id, told)));
        }
    }

    fn handle_topic(&mut self, topic: &SubscribedTopic) {
        self.payloads.handle_topic(topic);
        let is_unfinished = self.payloads.is_unfinished(&topic.topic);
        self.tell_live(&topic.topic, |tracker, told| {
            told.extend(tracker.handle_topic(topic, is_unfinished));
        });
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
                // From now on, not only once it is asked: what comes meanwhile would seem to follow what was lost.
                (known.state, known.asked_as) = (SubscriptionState::Asked, None);
                self.wishes.push_back(Wish::Ask(*id));
            }
        }
    }

    fn handle_taken_away(&mut self, gone: &[Selector]) {
        let mut ended = Vec::new();
        for (id, known) in &mut self.all {
            let before = known.wanted.selectors.len();
            known.wanted.selectors.retain(|selector| !gone.contains(selector));
            if known.wanted.selectors.is_empty() && before > 0 {
                ended.push(*id);
            }
        }
        self.readers.clear();
        for id in ended {
            self.end(id);
            let text = "cannot keep the subscription: its reader was too far behind; read faster, or \
                        subscribe with conflation `lagging`";
            let error: ClientError = Refusal::new(Code::TooSlow, text).into();
            self.news.push_back((id, Told::Ended(error)));
        }
        self.forget_unread();
    }

    fn end(&mut self, id: SubscriptionId) -> Option<Subscription> {
        let ended = self.all.remove(&id)?;
        self.readers.clear();
        self.postponed.remove(&id);
        self.wishes.retain(|wish| !matches!(wish, Wish::Ask(known) if *known == id));
        self.forget_unread();
        Some(ended)
    }

    fn forget_unread(&mut self) {
        let all = &self.all;
        self.payloads.forget_unless(|topic| all.values().any(|known| known.reads(topic)));
    }
}

#[cfg(test)]
mod tests {
    use model::{Epoch, Limits, Sequence, SubscribeOptions};

    use super::*;

    fn selector(text: &str) -> Selector {
        Selector::parse(text, &Limits::default()).expect("valid")
    }

    fn topic(text: &str) -> TopicName {
        TopicName::parse(text, &Limits::default()).expect("valid")
    }

    fn sequence(number: u64) -> Sequence {
        Sequence::new(number).expect("small")
    }

    fn subscribe(text: &str) -> Subscribe {
        Subscribe {
            selectors: vec![selector(text)],
            start: Start::Snapshot,
            positions: Vec::new(),
            name: None,
            options: SubscribeOptions::default(),
        }
    }

    /// The answer to command `id`, of a topic with `head` publications that is read from `start`.
    fn subscribed(id: u64, name: &str, start: u64, head: u64) -> ServerRecord<'static> {
        let described = SubscribedTopic {
            topic: topic(name),
            number: 7,
            epoch: Epoch::new("e"),
            head: sequence(head),
            start: sequence(start),
            recovered: None,
        };
        let (id, selectors, topics) = (Some(CommandId(id)), vec![selector(name)], vec![described]);
        ServerRecord::Event(Event::Subscribed(Subscribed { id, selectors, topics }))
    }

    fn publication(number: u64) -> ServerRecord<'static> {
        ServerRecord::Publication {
            topic: protocol::native::TopicRef::Number(7),
            sequence: protocol::native::SequenceRef::Full(sequence(number)),
            kind: model::PayloadKind::Text,
            payload: b"x"[..].into(),
        }
    }

    /// What was asked for under `id`.
    fn asked(all: &mut Subscriptions, id: u64) -> Subscribe {
        match all.poll_command(CommandId(id)) {
            Some(Command::Subscribe(subscribe)) => subscribe,
            other => panic!("expected a subscribe, got {other:?}"),
        }
    }

    /// The sequences told since the last time, each with its subscription.
    fn told(all: &mut Subscriptions) -> Vec<(SubscriptionId, u64, bool)> {
        let news = std::iter::from_fn(|| all.poll_news());
        news.filter_map(|(of, told)| match told {
            Told::Message(message) => Some((of, message.sequence.get(), message.is_snapshot)),
            _ => None,
        })
        .collect()
    }

    #[test]
    fn a_subscription_goes_through_its_states() {
        let mut all = Subscriptions::default();
        let id = all.add(subscribe("a/b"));
        assert_eq!(all.state(id), Some(SubscriptionState::Waiting));
        assert!(all.poll_command(CommandId(1)).is_none(), "there is no connection");
        all.handle_connected();
        asked(&mut all, 1);
        assert_eq!(all.state(id), Some(SubscriptionState::Asked));
        all.handle_record(subscribed(1, "a/b", 0, 0));
        assert_eq!(all.state(id), Some(SubscriptionState::Live));
        all.handle_disconnect();
        assert_eq!(all.state(id), Some(SubscriptionState::Waiting));
        all.handle_connected();
        assert_eq!(asked(&mut all, 2).start, Start::All, "it joins on to what was read");
        let refusal = Refusal::new(Code::NotAllowed, "no");
        assert!(all.handle_refused(CommandId(2), &refusal, Instant::now()));
        assert_eq!(all.state(id), None);
        assert!(matches!(all.poll_news(), Some((of, Told::Ended(_))) if of == id));
    }

    #[test]
    fn what_the_server_puts_off_is_asked_for_again() {
        let (mut all, now) = (Subscriptions::default(), Instant::now());
        let id = all.add(subscribe("a/b"));
        all.handle_connected();
        asked(&mut all, 1);
        all.handle_refused(CommandId(1), &Refusal::new(Code::Busy, "later"), now);
        assert_eq!(all.state(id), Some(SubscriptionState::Waiting));
        let wake_at = all.wake_at().expect("it waits");
        all.handle_wake(now);
        assert!(wake_at > now && all.poll_command(CommandId(2)).is_none());
        all.handle_wake(wake_at);
        asked(&mut all, 2);
    }

    #[test]
    fn who_overlaps_a_pattern_waits_until_its_topics_are_told() {
        let mut all = Subscriptions::default();
        all.handle_connected();
        all.add(Subscribe { start: Start::All, ..subscribe("a/+") });
        asked(&mut all, 1);
        all.add(subscribe("a/b"));
        all.handle_record(ServerRecord::Event(Event::Subscribed(Subscribed {
            id: Some(CommandId(1)),
            selectors: vec![selector("a/+")],
            topics: vec![],
        })));
        assert_eq!(all.poll_command(CommandId(2)), Some(Command::Ping));
        assert_eq!(all.poll_command(CommandId(3)), None);
        let ServerRecord::Event(Event::Subscribed(told)) = subscribed(1, "a/b", 0, 5) else {
            return;
        };
        all.handle_record(ServerRecord::Event(Event::Topic(told.topics[0].clone())));
        all.handle_record(ServerRecord::Event(Event::Pong { id: Some(CommandId(2)) }));
        let second = asked(&mut all, 3);
        assert_eq!(
            second.positions[0].1.sequence,
            Sequence::START,
            "the first has read nothing yet"
        );
    }

    #[test]
    fn a_second_reader_joins_the_first_and_each_is_told_everything_once() {
        let mut all = Subscriptions::default();
        all.handle_connected();
        let one = all.add(subscribe("a/b"));
        asked(&mut all, 1);
        let two = all.add(subscribe("a/+"));
        assert!(all.poll_command(CommandId(2)).is_none(), "it is not known where the first one is");
        all.handle_record(subscribed(1, "a/b", 4, 5));
        all.handle_record(publication(5));
        assert_eq!(told(&mut all), [(one, 5, true)]);
        let second = asked(&mut all, 2);
        assert_eq!(second.positions[0].1.sequence, sequence(4), "its own snapshot");
        all.handle_record(subscribed(2, "a/b", 4, 5));
        all.handle_record(publication(5));
        all.handle_record(publication(6));
        assert_eq!(told(&mut all), [(two, 5, true), (one, 6, false), (two, 6, false)]);
        assert!(all.remove(one) && !all.remove(one));
        all.handle_record(publication(7));
        assert_eq!(told(&mut all), [(two, 7, false)]);
    }
}
