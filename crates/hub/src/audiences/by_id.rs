//! Subscriptions with ids: which reader of a session one is read by, how it is described, where a reading goes on that it
//! joins, and how it ends.

use model::{
    Code, CommandId, Event, GapReason, HashMap, Refusal, Selector, Sequence, Subscribe,
    SubscriptionId, TopicName,
};

use crate::audiences::joining::{Grant, Wish};
use crate::audiences::options::Manner;
use crate::hub::Hub;
use crate::sending::encoder::Encoder;
use crate::sessions::readers::ReaderPart;
use crate::sessions::replay::Completing;
use crate::sessions::replay_queue::{Announce, ReplayGap, ReplayTopic, Todo};
use crate::tables::index::{AudienceIndex, SessionIndex, TopicIndex};
use crate::topics::selector_tree::SelectorTree;
use crate::topics::topic::Topic;

impl<E: Encoder> Hub<E> {
    /// Subscribes a session under an id of its own.
    pub(crate) fn subscribe_by_id(
        &mut self,
        session: SessionIndex,
        id: Option<CommandId>,
        subscription: SubscriptionId,
        wanted: Subscribe,
    ) -> Result<(), Refusal> {
        if !self.encoder.has_ids(self.sessions.at(session).encoding) {
            let text = "cannot give the subscription an id: the session did not list `ids`; add it to `features` in `hello`";
            return Err(Refusal::new(Code::MissingFeature, text));
        }
        let mut manner = self.manner(session, &wanted.options);
        manner.is_by_id = true;
        self.check_options(&manner)?;
        let replaced = self.reader_of_subscription(session, subscription);
        let freed = replaced.map_or(0, |it| {
            self.readers.owned(it).filter(|(known, _)| *known == subscription).count()
        });
        self.check_count(session, &wanted.selectors, freed)?;
        if let Some(reader) = self.reader_in_manner(session, &manner) {
            let overlapping = self.overlapping(reader, &wanted.selectors)?;
            self.check_merge(reader, &overlapping)?;
        }
        self.check_operations()?;
        if let Some(reader) = replaced {
            self.end_by_id(reader, subscription);
        }
        let known = self.reader_in_manner(session, &manner);
        let reader = known.unwrap_or_else(|| self.unused_reader(session));
        let overlapping = self.overlapping(reader, &wanted.selectors)?;
        self.readers.own(reader, subscription, &wanted.selectors);
        self.join(reader, id, wanted, overlapping, &manner);
        Ok(())
    }

    /// Ends a subscription with an id; what others select is read on.
    pub(crate) fn unsubscribe_by_id(
        &mut self,
        session: SessionIndex,
        id: Option<CommandId>,
        subscription: SubscriptionId,
    ) -> Result<(), Refusal> {
        let Some(reader) = self.reader_of_subscription(session, subscription) else {
            let text = format!(
                "cannot end the subscription {}: this session has none of that id",
                subscription.0
            );
            return Err(Refusal::new(Code::NotSubscribed, text));
        };
        let selectors = self.end_by_id(reader, subscription);
        let (subscription, has_lagged) = (Some(subscription), false);
        self.tell(session, &Event::Unsubscribed { id, subscription, selectors, has_lagged });
        Ok(())
    }

    /// Ends all subscriptions of a reader that have one of these selectors, because it lags too far behind.
    pub(crate) fn end_lagging(&mut self, reader: SessionIndex, taken: &[Selector]) {
        let owned = self.readers.owned(reader).filter(|(_, selector)| taken.contains(selector));
        let mut ended: Vec<SubscriptionId> = owned.map(|(subscription, _)| subscription).collect();
        ended.sort_unstable();
        ended.dedup();
        let session = self.readers.first_of(reader);
        for subscription in ended {
            let selectors = self.end_by_id(reader, subscription);
            let (id, subscription, has_lagged) = (None, Some(subscription), true);
            self.tell(session, &Event::Unsubscribed { id, subscription, selectors, has_lagged });
        }
    }

    /// Ends a subscription; answers what it selected.
    fn end_by_id(&mut self, reader: SessionIndex, subscription: SubscriptionId) -> Vec<Selector> {
        let (its, only_its) = self.readers.disown(reader, subscription);
        self.note_work(its.len());
        if let Some(replay) = &mut self.sessions.at_mut(reader).replay {
            replay.completing.retain(|it| it.subscription != subscription);
        }
        let ended = self.end_in(reader, &only_its, Some(subscription));
        ended.expect("a subscription's selectors are those of its reader");
        self.close_if_unused(reader);
        its
    }

    /// The reader of a session that has a subscription.
    fn reader_of_subscription(
        &self,
        session: SessionIndex,
        subscription: SubscriptionId,
    ) -> Option<SessionIndex> {
        let mut readers = self.readers.all_of(session).into_iter();
        readers.find(|reader| {
            self.note_work(1 + self.readers.count_in(*reader) / 64);
            self.readers.has(*reader, subscription)
        })
    }

    /// Whether a reader reads by ids; `None` if it reads nothing.
    fn reads_by_id(&self, reader: SessionIndex) -> Option<&Manner> {
        let membership = self.sessions.at(reader).memberships.first()?;
        Some(&self.options.at(self.audiences.at(membership.audience).key.options).manner)
    }

    /// The reader of a session that reads in a manner with ids.
    fn reader_in_manner(&self, session: SessionIndex, manner: &Manner) -> Option<SessionIndex> {
        let mut readers = self.readers.all_of(session).into_iter();
        readers.find(|reader| self.reads_by_id(*reader) == Some(manner))
    }

    /// The reader of a session for what it subscribes without ids, if it has one.
    pub(crate) fn reader_without_ids(&self, session: SessionIndex) -> Option<SessionIndex> {
        let is_it =
            |reader: &SessionIndex| self.reads_by_id(*reader).is_some_and(|it| !it.is_by_id);
        if self.sessions.at(session).part == ReaderPart::Whole {
            return (self.sessions.at(session).memberships.is_empty() || is_it(&session))
                .then_some(session);
        }
        self.readers.all_of(session).into_iter().find(is_it)
    }

    /// A reader of a session that reads nothing, opened if there is none.
    pub(crate) fn unused_reader(&mut self, session: SessionIndex) -> SessionIndex {
        let mut readers = self.readers.all_of(session).into_iter();
        let is_unused = |it: &SessionIndex| self.sessions.at(*it).memberships.is_empty();
        if let Some(unused) = readers.find(is_unused) {
            return unused;
        }
        let known = self.sessions.at_mut(session);
        known.part = ReaderPart::First;
        let mut further = known.sibling();
        further.part = ReaderPart::Further;
        let is_stalled = known.is_blocked || known.rests;
        let reader = self.sessions.insert(further);
        self.readers.add(session, reader);
        if is_stalled {
            self.flush.stalled.insert(reader);
        }
        reader
    }

    /// Closes a reader that is not the first of its session and reads nothing any more.
    fn close_if_unused(&mut self, reader: SessionIndex) {
        let known = self.sessions.at(reader);
        if known.part == ReaderPart::Further && known.memberships.is_empty() {
            self.close_reader(reader);
        }
    }

    /// Closes a reader that is not the first of its session.
    pub(crate) fn close_reader(&mut self, reader: SessionIndex) {
        let first = self.readers.first_of(reader);
        // The throttle is the first one's.
        self.sessions.at_mut(reader).is_throttled = false;
        self.sessions.remove(reader);
        self.flush.stalled.remove(&reader);
        if self.readers.remove(reader)
            && let Some(first) = self.sessions.get_mut(first)
        {
            first.part = ReaderPart::Whole;
        }
    }

    /// The number by which sessions of an audience are told a topic.
    pub(crate) fn number_in(
        &self,
        audience: AudienceIndex,
        index: TopicIndex,
        topic: &Topic,
    ) -> u32 {
        let options = self.audiences.at(audience).key.options;
        self.options.number_of(options, index, topic.number)
    }

    /// The number by which a reader is told a topic.
    pub(crate) fn number_for(
        &self,
        reader: Option<AudienceIndex>,
        index: TopicIndex,
        topic: &Topic,
    ) -> u32 {
        reader.map_or(topic.number, |audience| self.number_in(audience, index, topic))
    }

    /// Whether the sessions of an audience name their subscriptions.
    pub(crate) fn is_by_id(&self, audience: AudienceIndex) -> bool {
        self.options.at(self.audiences.at(audience).key.options).manner.is_by_id
    }

    /// The subscriptions of a session that take what an audience is told of a topic; those that are to be answered yet left
    /// out.
    pub(crate) fn served_by(
        &self,
        reader: SessionIndex,
        audience: AudienceIndex,
        topic: &TopicName,
        pending: &[SubscriptionId],
    ) -> Vec<SubscriptionId> {
        if !self.is_by_id(audience) {
            return Vec::new();
        }
        self.note_work(self.readers.count_in(reader));
        let owned = self.readers.owned(reader).filter(|(subscription, selector)| {
            selector.matches(topic.as_str()) && !pending.contains(subscription)
        });
        let mut served: Vec<SubscriptionId> = owned.map(|(subscription, _)| subscription).collect();
        served.sort_unstable();
        served.dedup();
        served
    }

    /// Completes the descriptions of topics that an answer names. A topic that is yet to be announced to others is described
    /// to the one that asked; the announcement says that it is for all.
    pub(crate) fn describe_by_id(
        &self,
        reader: SessionIndex,
        audience: AudienceIndex,
        wish: &Wish,
        pending: &[SubscriptionId],
        grant: &mut Grant,
    ) {
        if !self.options.at(self.audiences.at(audience).key.options).has_ids {
            return;
        }
        for described in &mut grant.told {
            let Some(index) = self.topics.find(described.topic.as_str()) else { continue };
            described.number = self.number_in(audience, index, self.topics.at(index));
            let is_announced =
                grant.added.find(index).is_some_and(|it| it.announce == Announce::Yes);
            described.subscriptions = match (wish.subscription, is_announced) {
                (Some(subscription), true) => vec![subscription],
                _ => self.served_by(reader, audience, &described.topic, pending),
            };
        }
    }

    /// Has topics that other subscriptions of a reader select go on at the places where they stand, unless the new one wants
    /// them from before: else these would lose what lies in between. `cursor` is where the reader stands in the others.
    pub(crate) fn keep_places(
        &self,
        reader: SessionIndex,
        wish: &Wish,
        pending: &[SubscriptionId],
        cursor: u64,
        added: &mut Todo,
    ) {
        let Some(subscription) = wish.subscription else { return };
        // By name, or by a pattern.
        let mut others = SelectorTree::default();
        let is_other = |it: SubscriptionId| it != subscription && !pending.contains(&it);
        let mut has_others = false;
        for (_, selector) in self.readers.owned(reader).filter(|(it, _)| is_other(*it)) {
            others.insert(selector, selector.has_wildcard());
            has_others = true;
        }
        self.note_work(self.readers.count_in(reader));
        if !has_others {
            return;
        }
        let shared = |wanted: &ReplayTopic| {
            let mut by_pattern = None;
            let name = &self.topics.at(wanted.topic).name;
            others.visit_matches(name.as_str(), &mut |is_pattern| {
                by_pattern = Some(is_pattern || by_pattern == Some(true));
            });
            Some((wanted.topic, by_pattern?))
        };
        let shared: HashMap<TopicIndex, bool> = added.iter().filter_map(shared).collect();
        let at = shared.keys().map(|topic| (*topic, cursor)).collect();
        let stood_at = self.sequences_at(&at);
        let replay = self.sessions.at(reader).replay.as_deref();
        for wanted in added.iter_mut() {
            let Some(&by_pattern) = shared.get(&wanted.topic) else { continue };
            let topic = self.topics.at(wanted.topic);
            let unread = replay.and_then(|replay| replay.todo.find(wanted.topic)).copied();
            if let Some(unread) = unread {
                join_unread(wanted, &unread);
                continue;
            }
            let done = replay.and_then(|replay| replay.done.get(&wanted.topic).copied());
            let known = stood_at.get(&wanted.topic).copied().max(done);
            go_back(wanted, known.unwrap_or_else(|| self.had_after(wanted.topic)));
            if known.is_none() && wanted.after > Sequence::START {
                // Whoever stood before that lacks something, and knows from where.
                let lagged = ReplayGap { from: None, reason: GapReason::Lagged };
                wanted.gap = Some(wanted.gap.unwrap_or(lagged));
            }
            if by_pattern && known.is_none_or(|place| place == Sequence::START) {
                // The announcement to the others may be on its way: it would not come.
                (wanted.announce, wanted.begins_after) = (Announce::Yes, None);
            }
            wanted.epoch = self.epoch_known_at(topic, cursor);
        }
    }

    /// Has the reader tell once everything that was published until now is sent.
    pub(crate) fn complete_later(&mut self, reader: SessionIndex, subscription: SubscriptionId) {
        let through = self.deliveries.newest();
        let replay = self.sessions.at_mut(reader).replay.get_or_insert_default();
        replay.completing.retain(|it| it.subscription != subscription);
        replay.completing.push(Completing { subscription, through, pieces: None });
        // It steps in with its audience no earlier.
        replay.done_at = replay.done_at.max(through);
    }

    /// Tells of each subscription of which everything was sent that had been published when it was made.
    pub(crate) fn tell_complete(&mut self, reader: SessionIndex) {
        let session = self.sessions.at(reader);
        let Some(replay) = session.replay.as_deref() else { return };
        if replay.completing.is_empty() || replay.is_reading() {
            return;
        }
        let places = session.memberships.iter().map(|membership| match membership.slot() {
            Some(slot) => self.place_in_step(membership.audience, slot),
            None => membership.cursor().unwrap_or(0),
        });
        let place = places.min().unwrap_or(0);
        let transfers = session.outgoing.as_deref().map(|outgoing| &outgoing.transfers);
        let transfers = transfers.into_iter().flatten();
        let pieces: Vec<(u32, Sequence)> =
            transfers.map(|it| (it.number, it.publication.sequence())).collect();
        let replay = self.sessions.at_mut(reader).replay.as_deref_mut().expect("it has one");
        let mut told = Vec::new();
        replay.completing.retain_mut(|it| {
            if it.through > place {
                return true;
            }
            let awaited = it.pieces.get_or_insert_with(|| pieces.clone());
            awaited.retain(|piece| pieces.contains(piece));
            if awaited.is_empty() {
                told.push(it.subscription);
            }
            !awaited.is_empty()
        });
        for subscription in told {
            self.tell(reader, &Event::Complete { subscription });
        }
    }
}

/// Joins what is wanted of a topic with what was wanted of it before, and was not read yet.
fn join_unread(wanted: &mut ReplayTopic, unread: &ReplayTopic) {
    let begins = |it: &ReplayTopic| it.begins_after.unwrap_or(it.after);
    // Whoever is to hear the announcement: the one that it was for, the new one, or both.
    let begins_after = match (unread.announce, wanted.announce) {
        (Announce::Yes, Announce::Yes) => begins(unread).min(begins(wanted)),
        (Announce::Yes, _) => begins(unread),
        _ => begins(wanted),
    };
    if unread.announce == Announce::Yes {
        wanted.announce = Announce::Yes;
    }
    let recovered = [wanted.recovered, unread.recovered];
    wanted.recovered = match recovered.contains(&Some(false)) {
        true => Some(false),
        false => wanted.recovered.or(unread.recovered),
    };
    wanted.gap = unread.gap.or(wanted.gap);
    wanted.reason = unread.reason;
    wanted.epoch = unread.epoch;
    wanted.conflates_after = wanted.conflates_after.min(unread.conflates_after);
    go_back(wanted, unread.after);
    wanted.begins_after = (begins_after > wanted.after).then_some(begins_after);
}

/// Has a topic be read from `place`, if that is earlier. Whoever it is announced to begins where it wanted to.
fn go_back(wanted: &mut ReplayTopic, place: Sequence) {
    if place < wanted.after {
        wanted.begins_after = Some(wanted.begins_after.unwrap_or(wanted.after));
        wanted.after = place;
    }
}
