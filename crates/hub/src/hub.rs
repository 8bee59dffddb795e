//! The hub itself: its parts, its sessions, and what an operator may ask it.

use std::cell::Cell;
use std::time::Duration;

use model::{
    Conflation, Event, Limits, Moment, PolicyRule, Position, Publication, Rates, Refusal, Selector,
    Sequence, SubscribeOptions, SubscribedTopic, TopicName, TopicPolicy,
};

use smallvec::{SmallVec, smallvec};

use crate::audiences::audience::AudienceTable;
use crate::audiences::joining::Joining;
use crate::audiences::options::OptionsTable;
use crate::between_shards::epochs::Renewal;
use crate::between_shards::followers::Followers;
use crate::between_shards::following::Following;
use crate::between_shards::mail::HubMail;
use crate::counters::Counters;
use crate::operations::PendingOperations;
use crate::outbox::Outbox;
use crate::sending::encoder::{Encoder, EncodingIndex, Outlet, Progress, Record, Sent};
use crate::sending::schedule::Flush;
use crate::sending::timers::Timers;
use crate::sessions::awaited::Ahead;
use crate::sessions::readers::{ReaderPart, ReaderTable};
use crate::sessions::session::{Membership, Session, SessionTable};
use crate::sessions::throttle::Throttle;
use crate::tables::connections::ConnectionId;
use crate::tables::index::{AudienceIndex, SessionIndex, ShardIndex, TopicIndex, home_shard};
use crate::topics::delivery::{RecentDeliveries, What};
use crate::topics::history::History;
use crate::topics::topic::{EpochIndex, PolicyIndex, Topic, TopicTable};

/// What a hub is told at its start.
#[derive(Clone, Debug)]
pub struct HubOptions {
    /// Which shard it is of.
    pub shard: ShardIndex,
    /// How many shards the node has.
    pub shard_count: u16,
    /// Whether sessions share audiences. Off only to measure what they are worth.
    pub audiences: bool,
    /// Every bound.
    pub limits: Limits,
    /// Topic policies; the first that selects a topic wins, the default goes for the rest.
    pub policies: Vec<PolicyRule>,
    /// The policy of topics that no rule selects.
    pub default_policy: TopicPolicy,
}

impl HubOptions {
    /// The policy at an index.
    pub fn policy(&self, index: PolicyIndex) -> &TopicPolicy {
        self.policies.get(usize::from(index.0)).map_or(&self.default_policy, |rule| &rule.policy)
    }
}

/// Topics by name, as far as was looked in one go.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listing {
    /// What was found.
    pub topics: Vec<(TopicName, Position)>,
    /// After which name to go on, if there may be more.
    pub next: Option<TopicName>,
}

/// Who gets what, and when, on one shard.
pub struct Hub<E: Encoder> {
    pub(crate) settings: HubOptions,
    pub(crate) encoder: E,
    pub(crate) topics: TopicTable,
    pub(crate) deliveries: RecentDeliveries,
    /// What this shard follows on others.
    pub(crate) following: Following,
    /// What others follow here.
    pub(crate) followers: Followers,
    pub(crate) renewal: Renewal,
    pub(crate) audiences: AudienceTable,
    /// What subscriptions ask for beside topics.
    pub(crate) options: OptionsTable<E::Filter>,
    /// Who is on the way into an audience.
    pub(crate) joining: Joining,
    pub(crate) sessions: SessionTable,
    /// The readers of sessions that name their subscriptions.
    pub(crate) readers: ReaderTable,
    /// Sessions that wait for this shard to have what they have.
    pub(crate) ahead: Ahead,
    /// What takes more than one turn.
    pub(crate) operations: PendingOperations,
    pub(crate) flush: Flush,
    pub(crate) timers: Timers,
    /// What the caller is to take.
    pub(crate) outbox: Outbox,
    /// When the last turn was.
    pub(crate) now: Moment,
    pub(crate) counters: Counters,
    pub(crate) work: Cell<u64>,
}

/// Room for an event such as `welcome`, and for a binary answer, so that writing them does not grow the buffer step by step.
const EVENT_BYTES: usize = 512;
const ANSWER_BYTES: usize = 64;

impl<E: Encoder> Hub<E> {
    /// An empty hub.
    pub fn new(options: HubOptions, encoder: E) -> Self {
        let limits = &options.limits;
        let steps_per_turn = limits.attached_per_turn.max(1);
        let deliveries =
            RecentDeliveries::new(limits.recent_deliveries_max, limits.recent_deliveries_bytes_max);
        let conflates = |rule: &PolicyRule| rule.policy.conflation() == Conflation::Always;
        let conflates_always = options.policies.iter().any(conflates);
        Self {
            settings: options,
            encoder,
            topics: TopicTable::default(),
            deliveries,
            following: Following::default(),
            followers: Followers::default(),
            renewal: Renewal::default(),
            audiences: AudienceTable::default(),
            options: OptionsTable::default(),
            joining: Joining::default(),
            sessions: SessionTable::default(),
            readers: ReaderTable::default(),
            ahead: Ahead::default(),
            operations: PendingOperations::new(steps_per_turn),
            flush: Flush { conflates_always, ..Flush::default() },
            timers: Timers::default(),
            outbox: Outbox::default(),
            now: Moment { elapsed: Duration::ZERO, unix_ms: 0 },
            counters: Counters::default(),
            work: Cell::new(0),
        }
    }

    /// What turns records into messages, to be changed.
    pub fn encoder_mut(&mut self) -> &mut E {
        &mut self.encoder
    }

    /// Steps taken so far in loops over what peers choose the number of: selectors, topics, readers, deliveries.
    pub fn work(&self) -> u64 {
        self.work.get()
    }

    pub(crate) fn note_work(&self, steps: usize) {
        self.work.set(self.work.get() + steps as u64);
    }

    /// Opens a session on a connection.
    pub fn open_session(&mut self, link: ConnectionId, encoding: EncodingIndex) -> SessionIndex {
        self.sessions.insert(Session {
            link,
            encoding,
            is_blocked: false,
            is_queued: false,
            is_told_lagging: false,
            is_throttled: false,
            rests: false,
            part: ReaderPart::Whole,
            memberships: Default::default(),
            outgoing: None,
            replay: None,
        })
    }

    /// Bounds how much a session is sent.
    pub fn set_rates(&mut self, session: SessionIndex, rates: Rates, now: Moment) {
        let throttle = Throttle::new(rates, now.elapsed);
        let is_throttled = throttle.is_some();
        self.sessions.set_throttle(session, throttle);
        for reader in self.all_readers(session) {
            let known = self.sessions.at_mut(reader);
            (known.is_throttled, known.rests) = (is_throttled, false);
            if !known.is_blocked {
                // It may have been resting.
                self.flush.stalled.remove(&reader);
                self.flush.queue(reader, known);
            }
        }
    }

    /// Changes what a session speaks.
    ///
    /// # Panics
    /// If it has subscriptions: their audience speaks with one voice.
    pub fn set_encoding(&mut self, session: SessionIndex, encoding: EncodingIndex) {
        let session = self.sessions.at_mut(session);
        assert!(session.memberships.is_empty(), "an encoding is chosen before subscribing");
        session.encoding = encoding;
    }

    /// What a session speaks.
    pub fn encoding(&self, session: SessionIndex) -> EncodingIndex {
        self.sessions.at(session).encoding
    }

    /// Takes a session out of everything that it reads: it gets what waits for it, and what it is
    /// told from now on.
    pub fn end_reading(&mut self, session: SessionIndex) {
        if self.sessions.get(session).is_none() {
            return;
        }
        for reader in self.all_readers(session) {
            self.end_reading_in(reader);
            if reader == session {
                self.readers.disown_all(reader);
            } else {
                self.close_reader(reader);
            }
        }
    }

    fn end_reading_in(&mut self, session: SessionIndex) {
        let known = self.sessions.at_mut(session);
        known.replay = None;
        if let Some(outgoing) = &mut known.outgoing {
            outgoing.transfers.clear();
        }
        let audiences: Vec<AudienceIndex> =
            known.memberships.iter().map(|membership| membership.audience).collect();
        // The last first: so the others keep their places.
        for audience in audiences.into_iter().rev() {
            self.leave(session, audience);
        }
    }

    /// Hears what time it is, before anything that happens then.
    pub fn handle_time(&mut self, now: Moment) {
        self.now = now;
    }

    /// Forgets a session. Its index may be given to another one.
    pub fn close_session(&mut self, session: SessionIndex) {
        self.end_reading(session);
        self.sessions.remove(session);
        self.flush.stalled.remove(&session);
    }

    /// Tells a session something, in order with everything it was told before.
    pub fn tell(&mut self, session: SessionIndex, event: &Event) {
        self.tell_with(session, event, Progress::Unknown);
    }

    /// The same, and from where the session could go on after it.
    pub(crate) fn tell_with(&mut self, session: SessionIndex, event: &Event, progress: Progress) {
        let session = self.speaker_of(session);
        let Some(known) = self.sessions.get_mut(session) else { return };
        let outgoing = known.outgoing.get_or_insert_default();
        outgoing.reserve_first(EVENT_BYTES);
        let mut message = self.encoder.begin(known.encoding, &mut outgoing.bytes);
        self.encoder.append(&mut message, Record::Event(event), progress, &mut outgoing.bytes);
        self.encoder.finish(message, &mut outgoing.bytes);
        self.counters.note_answers(outgoing.bytes.len());
        self.flush.queue(session, known);
    }

    /// Sends a session whole messages that the caller made, such as a ping.
    pub fn tell_bytes(&mut self, session: SessionIndex, messages: &[u8]) {
        self.tell_written(session, |out| out.extend_from_slice(messages));
    }

    /// Sends a session the whole messages that `append` writes, behind what waits for it already.
    pub fn tell_written(&mut self, session: SessionIndex, append: impl FnOnce(&mut Vec<u8>)) {
        let Some(known) = self.sessions.get_mut(session) else { return };
        let outgoing = known.outgoing.get_or_insert_default();
        outgoing.reserve_first(ANSWER_BYTES);
        append(&mut outgoing.bytes);
        self.counters.note_answers(outgoing.bytes.len());
        self.flush.queue(session, known);
    }

    /// Sends a session's answers before its turn comes, as far as its connection takes them.
    pub fn send_answers(&mut self, session: SessionIndex, outlet: &mut impl Outlet) {
        let Some(known) = self.sessions.get_mut(session) else { return };
        let Some(outgoing) = &mut known.outgoing else { return };
        if known.is_blocked || outgoing.large.is_some() || outgoing.bytes.is_empty() {
            return;
        }
        let is_full = match outlet.send(known.link, &outgoing.bytes) {
            Sent::Taken(bytes) => {
                outgoing.bytes.drain(..bytes);
                !outgoing.bytes.is_empty()
            }
            Sent::Closed => true,
        };
        // What else that means for it, its turn tells.
        if is_full {
            self.block(session);
        }
    }

    /// Bytes of answers that wait for a session's connection.
    pub fn answers_bytes(&self, session: SessionIndex) -> usize {
        let session = self.sessions.get(session);
        session.and_then(|known| known.outgoing.as_ref()).map_or(0, |out| out.bytes.len())
    }

    /// Whether a subscription of a session is yet to be answered: its topics' homes are asked.
    pub fn awaits_topics(&self, session: SessionIndex) -> bool {
        let Some(known) = self.sessions.get(session) else { return false };
        let waits = |known: &Session| known.memberships.iter().any(Membership::is_waiting);
        match known.part {
            ReaderPart::Whole => waits(known),
            _ => self.all_readers(session).into_iter().any(|it| waits(self.sessions.at(it))),
        }
    }

    /// Hears that a session's connection takes bytes again.
    pub fn handle_writable(&mut self, session: SessionIndex) {
        if self.sessions.get(session).is_some_and(|known| known.part != ReaderPart::Whole) {
            let readers = self.all_readers(session).into_iter();
            return readers.for_each(|reader| self.handle_writable_in(reader));
        }
        self.handle_writable_in(session);
    }

    fn handle_writable_in(&mut self, session: SessionIndex) {
        let Some(known) = self.sessions.get_mut(session) else { return };
        if known.is_blocked {
            known.is_blocked = false;
            if !known.rests {
                self.flush.stalled.remove(&session);
            }
            if known.has_something_to_do() {
                self.flush.queue(session, known);
            }
        }
    }

    /// The connection of the next session that must be closed, and why.
    pub fn poll_closing(&mut self) -> Option<(ConnectionId, Refusal)> {
        loop {
            let (session, refusal) = self.outbox.closing.pop_front()?;
            if let Some(known) = self.sessions.get(session) {
                return Some((known.link, refusal));
            }
        }
    }

    /// The connection of the next session that was granted what it subscribed to: it may wait for topics no more.
    pub fn poll_granted(&mut self) -> Option<ConnectionId> {
        self.outbox.granted.pop_front()
    }

    /// How many sessions take nothing now.
    pub fn stalled_count(&self) -> usize {
        self.flush.stalled.len()
    }

    /// How many sessions are open.
    pub fn session_count(&self) -> usize {
        self.sessions.len() - self.readers.further_count()
    }

    /// All readers of a session, the first of them first.
    pub(crate) fn all_readers(&self, session: SessionIndex) -> SmallVec<[SessionIndex; 4]> {
        match self.sessions.get(session).map(|known| known.part) {
            Some(ReaderPart::First | ReaderPart::Further) => self.readers.all_of(session),
            Some(ReaderPart::Whole) | None => smallvec![session],
        }
    }

    /// The reader whose bytes wait for the connection.
    pub(crate) fn speaker_of(&self, reader: SessionIndex) -> SessionIndex {
        match self.sessions.get(reader).map(|known| known.part) {
            Some(ReaderPart::Further) => self.readers.first_of(reader),
            Some(ReaderPart::Whole | ReaderPart::First) | None => reader,
        }
    }

    /// The next topic of which the backbone must be asked to tell.
    pub fn poll_ask(&mut self) -> Option<TopicName> {
        self.outbox.asks.pop_front()
    }

    /// Has a message go to another shard, in order with what went there before.
    pub(crate) fn post(&mut self, to: ShardIndex, mail: HubMail) {
        self.outbox.mail.push_back((to, mail));
        self.note_mail(1);
    }

    /// Notes that messages for other shards were added. Each is a step at least: there are never more than what a turn may do.
    pub(crate) fn note_mail(&mut self, count: usize) {
        self.note_work(count);
        self.counters.mail_peak = self.counters.mail_peak.max(self.outbox.mail.len() as u64);
    }

    /// The next message for another shard. The owner takes all of them in each turn: those for which there is no room it keeps in
    /// order, up to a limit of its own, or says so ([`Hub::handle_mail_refused`]).
    pub fn poll_mail(&mut self) -> Option<(ShardIndex, HubMail)> {
        self.outbox.mail.pop_front()
    }

    /// The newest publication of a topic at its home, if its policy retains it.
    pub fn value(&self, topic: &TopicName) -> Option<(Position, Publication)> {
        let topic = self.topics.get(self.topics.find(topic.as_str())?)?;
        if !self.policy(topic.policy).retain {
            return None;
        }
        let kept = || topic.history.as_ref()?.newest();
        let newest = topic.withheld().last().or_else(kept)?;
        let position = Position { sequence: newest.sequence(), ..self.position(topic) };
        Some((position, newest.clone()))
    }

    /// Where a topic that is known here stands, and the oldest publication that memory holds.
    pub fn standing(&self, topic: &TopicName) -> Option<(Position, Option<&Publication>)> {
        let topic = self.topics.get(self.topics.find(topic.as_str())?)?;
        if !topic.is_live {
            return None;
        }
        let oldest = topic.history.as_deref().and_then(History::oldest);
        let oldest = oldest.or_else(|| topic.withheld().next());
        let position = Position { sequence: topic.newest_known(), ..self.position(topic) };
        Some((position, oldest))
    }

    /// The sequence after which memory holds what was published to a topic since a moment.
    pub fn sequence_before(&self, topic: &TopicName, unix_ms: u64) -> Sequence {
        let known = self.topics.find(topic.as_str()).and_then(|index| self.topics.get(index));
        let Some(history) = known.and_then(|topic| topic.history.as_deref()) else {
            return Sequence::START;
        };
        match (history.first_since(unix_ms), history.newest()) {
            (Some(first), _) => first.previous(),
            (None, Some(newest)) => newest.sequence(),
            (None, None) => Sequence::START,
        }
    }

    /// What memory holds of a topic after `sequence`, oldest first.
    pub fn history(
        &self,
        topic: &TopicName,
        sequence: Sequence,
    ) -> impl Iterator<Item = &Publication> {
        let known = self.topics.find(topic.as_str()).and_then(|index| self.topics.get(index));
        let history = known.and_then(|topic| topic.history.as_deref());
        let withheld = known.into_iter().flat_map(Topic::withheld);
        let withheld = withheld.filter(move |it| it.sequence() > sequence);
        history.into_iter().flat_map(move |history| history.after(sequence)).chain(withheld)
    }

    /// What memory holds of a topic before `sequence`, oldest first.
    pub fn history_before(
        &self,
        topic: &TopicName,
        sequence: Sequence,
    ) -> impl DoubleEndedIterator<Item = &Publication> {
        let known = self.topics.find(topic.as_str()).and_then(|index| self.topics.get(index));
        let history = known.and_then(|topic| topic.history.as_deref());
        let withheld = known.into_iter().flat_map(Topic::withheld);
        let withheld = withheld.filter(move |it| it.sequence() < sequence);
        history.into_iter().flat_map(move |history| history.before(sequence)).chain(withheld)
    }

    /// The sequences of a topic that are among the recent deliveries, oldest first.
    pub fn recent(&self, topic: &TopicName) -> impl Iterator<Item = Sequence> {
        let index = self.topics.find(topic.as_str());
        let numbers = self.deliveries.oldest()..=self.deliveries.newest();
        let recent = numbers.filter_map(|number| self.deliveries.get(number));
        recent.filter_map(move |delivery| match &delivery.what {
            What::Publication(publication) if Some(delivery.topic) == index => {
                Some(publication.sequence())
            }
            _ => None,
        })
    }

    /// The published topics at home here that `selector` selects and that come after `after`, by
    /// name, at most `limit`, of as many as may be looked at in one go.
    pub fn list(&self, selector: &Selector, after: Option<&TopicName>, limit: usize) -> Listing {
        const STEPS_MAX: usize = 1_024;
        let prefix = selector.literal_prefix().trim_end_matches('/');
        let from = after.map_or(prefix, |name| name.as_str().max(prefix));
        let names = self.topics.revealed_from(from);
        let mut names = names.take_while(|(name, _)| name.as_str().starts_with(prefix));
        let mut listing = Listing::default();
        for _ in 0..STEPS_MAX {
            if listing.topics.len() == limit {
                break;
            }
            let Some((name, index)) = names.next() else {
                listing.next = None;
                break;
            };
            self.note_work(1);
            listing.next = Some(name.clone());
            let is_listed = after.is_none_or(|after| name > after)
                && selector.matches(name.as_str())
                && self.home_of(name) == self.settings.shard;
            if is_listed {
                listing.topics.push((name.clone(), self.position(self.topics.at(index))));
            }
        }
        listing
    }

    /// Counters and gauges.
    pub fn counters(&self) -> Counters {
        Counters {
            sessions: self.session_count() as u64,
            audiences: self.audiences.len() as u64,
            topics: self.topics.len() as u64,
            history_bytes: self.topics.history_bytes(),
            recent_bytes: self.deliveries.bytes() as u64,
            stalled_sessions: self.flush.stalled.len() as u64,
            operations_pending: self.operations.len() as u64,
            mail: self.outbox.mail.len() as u64,
            ..self.counters
        }
    }

    pub(crate) fn home_of(&self, topic: &TopicName) -> ShardIndex {
        home_shard(topic, self.settings.shard_count)
    }

    pub(crate) fn is_home_of(&self, topic: &TopicName) -> bool {
        self.home_of(topic) == self.settings.shard
    }

    pub(crate) fn other_shards(&self) -> impl Iterator<Item = ShardIndex> + use<E> {
        let own = self.settings.shard;
        (0..self.settings.shard_count).map(ShardIndex).filter(move |shard| *shard != own)
    }

    pub(crate) fn position(&self, topic: &Topic) -> Position {
        Position { epoch: self.topics.epoch(topic.epoch).clone(), sequence: topic.head }
    }

    /// Which policy goes for a topic: found once for whoever publishes to it. All shards of a server number them alike.
    pub fn policy_index(&self, topic: &TopicName) -> PolicyIndex {
        if self.settings.policies.is_empty() {
            return PolicyIndex(0);
        }
        let known = self.topics.find(topic.as_str()).map(|index| self.topics.at(index).policy);
        known.unwrap_or_else(|| self.policy_of(topic.as_str()))
    }

    /// The policy of topics called `name`.
    pub(crate) fn policy_of(&self, name: &str) -> PolicyIndex {
        let rules = &self.settings.policies;
        let index = rules.iter().position(|rule| rule.selector.matches(name));
        let index = index.unwrap_or(rules.len());
        PolicyIndex(u16::try_from(index).expect("fewer than 65,536 topic policies"))
    }

    /// The policy at an index.
    pub fn policy(&self, index: PolicyIndex) -> &TopicPolicy {
        self.settings.policy(index)
    }

    /// The options of an audience's subscription.
    pub(crate) fn options_of(&self, audience: AudienceIndex) -> &SubscribeOptions {
        &self.options.at(self.audiences.at(audience).key.options).manner.options
    }

    /// What an audience's sessions speak.
    pub(crate) fn encoding_of(&self, audience: AudienceIndex) -> EncodingIndex {
        self.options.at(self.audiences.at(audience).key.options).manner.encoding
    }

    /// The policy of a topic by name, for whoever publishes to it.
    pub fn policy_for(&self, topic: &TopicName) -> &TopicPolicy {
        self.policy(self.policy_of(topic.as_str()))
    }

    /// Whether one more topic may come into being here.
    pub fn has_room_for_topic(&self, topic: &TopicName) -> bool {
        self.topics.len() < self.settings.limits.topics_per_shard_max
            || self.topics.find(topic.as_str()).is_some()
    }

    /// The topic called `name`, made if it is not known yet.
    pub(crate) fn find_or_make_topic(&mut self, name: &TopicName) -> TopicIndex {
        if let Some(index) = self.topics.find(name.as_str()) {
            return index;
        }
        let policy = self.policy_of(name.as_str());
        self.topics.insert(Topic {
            name: name.clone(),
            number: 0,
            home_generation: 0,
            epoch: EpochIndex(0),
            policy,
            follow_serial: 0,
            is_live: false,
            head: Sequence::START,
            newest_delivery: 0,
            history: None,
            rare: None,
            readers: Default::default(),
            followers: Default::default(),
        })
    }

    pub(crate) fn describe(&self, index: TopicIndex) -> SubscribedTopic {
        let topic = self.topics.at(index);
        SubscribedTopic {
            topic: topic.name.clone(),
            number: topic.number,
            subscriptions: Vec::new(),
            epoch: self.topics.epoch(topic.epoch).clone(),
            head: topic.head,
            start: topic.head,
            recovered: None,
        }
    }
}
