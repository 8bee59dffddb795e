//! Subscribing and unsubscribing: which audience a session is in, and where it starts to read.

use model::{
    AckLevel, Code, CommandId, Event, GapReason, Position, Publication, Refusal, Selector,
    Sequence, Since, Start, Subscribe, SubscribeOptions, Subscribed, SubscribedTopic, TopicName,
    Unsubscribe,
};

use crate::audience::AudienceKey;
use crate::encoder::Encoder;
use crate::history::{History, Place};
use crate::hub::Hub;
use crate::index::{AudienceIndex, SessionIndex, TopicIndex};
use crate::options::{Manner, OptionsIndex};
use crate::replay::{ReplayGap, ReplayTopic};
use crate::session::Membership;
use crate::topic::Topic;

/// A session that waits for its audience's topics.
#[derive(Debug)]
pub(crate) struct PendingJoin {
    pub session: SessionIndex,
    /// Up to where it has everything that it read before; `None` if it read nothing of it.
    pub cursor: Option<u64>,
    pub wishes: Vec<Wish>,
}

/// What one `subscribe` asked for, to be answered when the audience's topics are known.
#[derive(Debug)]
pub(crate) struct Wish {
    id: Option<CommandId>,
    selectors: Vec<Selector>,
    start: Start,
    positions: Vec<(TopicName, Position)>,
}

/// What a session takes along when it leaves audiences for another.
#[derive(Debug, Default)]
struct Luggage {
    /// The audiences that it left. They stay open until it is in the next one, so that topics
    /// which both read are not forgotten in between.
    left: Vec<AudienceIndex>,
    selectors: Vec<Selector>,
    cursor: Option<u64>,
    wishes: Vec<Wish>,
}

impl<E: Encoder> Hub<E> {
    /// Subscribes a session. The answer, `Event::Subscribed`, goes to it by itself, at once or when
    /// the topics' homes have answered.
    ///
    /// A session sees each topic once: what overlaps with selectors that it has already is joined
    /// with them into one audience.
    pub fn subscribe(
        &mut self,
        session: SessionIndex,
        id: Option<CommandId>,
        wanted: Subscribe,
    ) -> Result<(), Refusal> {
        self.check_count(session, &wanted.selectors)?;
        self.check_options(session, &wanted.options)?;
        let mut luggage = self.leave_overlapping(session, &wanted.selectors);
        luggage.selectors.extend(wanted.selectors.iter().cloned());
        luggage.wishes.push(Wish {
            id,
            selectors: wanted.selectors,
            start: wanted.start,
            positions: wanted.positions,
        });
        self.enter(session, luggage, wanted.options);
        Ok(())
    }

    /// Ends subscriptions. All selectors must be subscribed, or nothing happens.
    pub fn unsubscribe(
        &mut self,
        session: SessionIndex,
        id: Option<CommandId>,
        unwanted: Unsubscribe,
    ) -> Result<(), Refusal> {
        self.end_subscriptions(session, &unwanted)?;
        let (selectors, has_lagged) = (unwanted.selectors, false);
        self.tell(session, &Event::Unsubscribed { id, selectors, has_lagged });
        Ok(())
    }

    pub(crate) fn end_subscriptions(
        &mut self,
        session: SessionIndex,
        unwanted: &Unsubscribe,
    ) -> Result<(), Refusal> {
        let mut touched: Vec<AudienceIndex> = Vec::new();
        for selector in &unwanted.selectors {
            let Some(audience) = self.audience_with(session, selector) else {
                return Err(Refusal::new(
                    Code::NotSubscribed,
                    format!(
                        "cannot unsubscribe from `{selector}`: this session is not subscribed to \
                         it; give the selector exactly as it was subscribed"
                    ),
                ));
            };
            if !touched.contains(&audience) {
                touched.push(audience);
            }
        }
        for audience in touched {
            let options = self.options_of(audience).clone();
            let mut luggage = self.pack(session, audience);
            luggage.selectors.retain(|selector| !unwanted.selectors.contains(selector));
            luggage.wishes.iter_mut().for_each(|wish| {
                wish.selectors.retain(|selector| !unwanted.selectors.contains(selector));
            });
            self.enter(session, luggage, options);
        }
        self.forget_unread_topics(session);
        Ok(())
    }

    fn manner(&self, session: SessionIndex, options: &SubscribeOptions) -> Manner {
        let encoding = self.sessions.at(session).encoding;
        let solo = (!self.settings.audiences).then_some(session);
        Manner { options: options.clone(), encoding, solo }
    }

    fn check_options(
        &self,
        session: SessionIndex,
        options: &SubscribeOptions,
    ) -> Result<(), Refusal> {
        let count_max = self.settings.limits.subscribe_options_max;
        if self.options.len() < count_max
            || self.options.has(&self.manner(session, options))
            || !self.settings.audiences
        {
            return Ok(());
        }
        let text = format!(
            "cannot subscribe with these options: subscriptions have {count_max} different ones \
             already and subscribe_options_max is as many; use a filter or interval that others \
             use too, or raise the limit in the configuration"
        );
        Err(Refusal::new(Code::TooManySubscriptions, text))
    }

    fn check_count(&self, session: SessionIndex, more: &[Selector]) -> Result<(), Refusal> {
        let has: usize = self
            .sessions
            .at(session)
            .memberships
            .iter()
            .map(|membership| self.audiences.at(membership.audience).key.selectors.len())
            .sum();
        let count_max = self.settings.limits.subscriptions_per_session_max;
        if has + more.len() <= count_max {
            return Ok(());
        }
        let more = more.len();
        Err(Refusal::new(
            Code::TooManySubscriptions,
            format!(
                "cannot subscribe to {more} more: this session has {has} subscriptions and \
                 subscriptions_per_session_max is {count_max}; unsubscribe from some, use a \
                 pattern, or raise the limit in the configuration"
            ),
        ))
    }

    fn audience_with(&self, session: SessionIndex, selector: &Selector) -> Option<AudienceIndex> {
        let memberships = self.sessions.at(session).memberships.iter();
        memberships.map(|membership| membership.audience).find(|audience| {
            self.audiences.at(*audience).key.selectors.binary_search(selector).is_ok()
        })
    }

    /// Takes a session out of all audiences that share a topic with `selectors`.
    fn leave_overlapping(&mut self, session: SessionIndex, selectors: &[Selector]) -> Luggage {
        let overlapping: Vec<AudienceIndex> = self
            .sessions
            .at(session)
            .memberships
            .iter()
            .map(|membership| membership.audience)
            .filter(|audience| {
                let theirs = &self.audiences.at(*audience).key.selectors;
                selectors.iter().any(|mine| theirs.iter().any(|their| mine.overlaps(their)))
            })
            .collect();
        let mut all = Luggage::default();
        for audience in overlapping {
            let one = self.pack(session, audience);
            self.merge_cursors(session, &mut all, &one);
            all.left.extend(one.left);
            all.selectors.extend(one.selectors);
            all.wishes.extend(one.wishes);
        }
        all
    }

    /// Lets `all` start at the earlier of two cursors, and notes for the topics of the later one
    /// what the session has of them already.
    fn merge_cursors(&mut self, session: SessionIndex, all: &mut Luggage, one: &Luggage) {
        let (Some(mine), Some(theirs)) = (all.cursor, one.cursor) else {
            all.cursor = all.cursor.or(one.cursor);
            return;
        };
        let (later, selectors) = if mine > theirs {
            (mine, all.selectors.clone())
        } else {
            (theirs, one.selectors.clone())
        };
        for topic in self.topics_selected(&selectors) {
            let through = match self.sequence_at(topic, later) {
                // Nothing to be told twice, and perhaps not even announced yet.
                None | Some(Sequence::START) => continue,
                Some(through) => through,
            };
            let replay = self.sessions.at_mut(session).replay.get_or_insert_default();
            if !replay.todo.iter().any(|wanted| wanted.topic == topic) {
                let known = replay.done.entry(topic).or_insert(through);
                *known = (*known).max(through);
            }
        }
        all.cursor = Some(mine.min(theirs));
    }

    /// The newest sequence of a topic among the deliveries up to `delivery`, while that is known.
    fn sequence_at(&self, index: TopicIndex, delivery: u64) -> Option<Sequence> {
        let topic = self.topics.at(index);
        if topic.newest_delivery <= delivery {
            return Some(topic.head);
        }
        if self.deliveries.reaches_back_to(delivery) {
            let mut later = delivery + 1..=self.deliveries.newest();
            return later.find_map(|number| {
                let found = self.deliveries.get(number).filter(|found| found.topic == index)?;
                found.what.sequence_before()
            });
        }
        let history = topic.history.as_ref()?;
        match history.place_at(delivery, topic.head, topic.newest_delivery) {
            Place::After(sequence) => Some(sequence),
            Place::Lost(_) => None,
        }
    }

    /// Takes a session out of an audience, with all that it needs to go on elsewhere.
    fn pack(&mut self, session: SessionIndex, audience: AudienceIndex) -> Luggage {
        let known = self.sessions.at(session);
        let at = known.position_of(audience).expect("a member knows its audience");
        let membership = known.memberships[at];
        let selectors = self.audiences.at(audience).key.selectors.to_vec();
        let cursor = membership.cursor();
        let mut luggage = Luggage { left: vec![audience], selectors, cursor, wishes: Vec::new() };
        if let Some(slot) = membership.slot() {
            luggage.cursor = Some(self.place_in_step(audience, slot));
        }
        if let Some(joins) = self.joins.get_mut(&audience)
            && let Some(at) = joins.iter().position(|join| join.session == session)
        {
            let join = joins.swap_remove(at);
            (luggage.cursor, luggage.wishes) = (join.cursor, join.wishes);
        }
        self.step_away(session, audience);
        luggage
    }

    /// Takes a session out of an audience, and closes the audience if it was the last one.
    pub(crate) fn leave(&mut self, session: SessionIndex, audience: AudienceIndex) {
        self.step_away(session, audience);
        self.close_if_empty(audience);
    }

    fn close_if_empty(&mut self, audience: AudienceIndex) {
        if self.audiences.get(audience).is_some_and(|left| left.population == 0) {
            self.close_audience(audience);
        }
    }

    fn step_away(&mut self, session: SessionIndex, audience: AudienceIndex) {
        self.step_out(session, audience, 0);
        let known = self.sessions.at_mut(session);
        let at = known.position_of(audience).expect("a member knows its audience");
        known.memberships.swap_remove(at);
        self.behind -= 1;
        if let Some(joins) = self.joins.get_mut(&audience) {
            joins.retain(|join| join.session != session);
        }
        self.counters.subscriptions -= 1;
        self.audiences.at_mut(audience).population -= 1;
    }

    /// Puts a session into the audience of these selectors, if any are left, and closes those
    /// that it came from if it was their last.
    fn enter(&mut self, session: SessionIndex, mut luggage: Luggage, options: SubscribeOptions) {
        let left = std::mem::take(&mut luggage.left);
        if !luggage.selectors.is_empty() {
            let (manner, encoder) = (self.manner(session, &options), &self.encoder);
            let options = self.options.hold(&manner, |text| encoder.filter(text));
            self.enter_audience(session, luggage, options);
            self.options.release(options);
        }
        left.into_iter().for_each(|audience| self.close_if_empty(audience));
    }

    fn enter_audience(&mut self, session: SessionIndex, luggage: Luggage, options: OptionsIndex) {
        let Luggage { mut selectors, cursor, wishes, .. } = luggage;
        selectors.sort_unstable();
        selectors.dedup();
        let key = AudienceKey { selectors: selectors.into(), options };
        let audience = match self.audiences.find(&key) {
            Some(audience) => audience,
            None => self.open_audience(key),
        };
        self.counters.subscriptions += 1;
        let known = self.audiences.at_mut(audience);
        known.population += 1;
        let is_waiting = known.waiting > 0;
        self.sessions.at_mut(session).memberships.push(Membership::waiting(audience));
        self.behind += 1;
        let join = PendingJoin { session, cursor, wishes };
        if is_waiting {
            self.joins.entry(audience).or_default().push(join);
        } else {
            self.complete_join(audience, join);
        }
    }

    /// Lets those in who waited for an audience's topics.
    pub(crate) fn complete_joins(&mut self, audience: AudienceIndex) {
        for join in self.joins.remove(&audience).unwrap_or_default() {
            self.complete_join(audience, join);
        }
    }

    fn complete_join(&mut self, audience: AudienceIndex, join: PendingJoin) {
        let PendingJoin { session, cursor, wishes } = join;
        let newest = self.deliveries.newest();
        let reads_on = cursor.is_some_and(|cursor| cursor < newest);
        for wish in wishes {
            self.grant(session, wish, reads_on);
        }
        let known = self.sessions.at_mut(session);
        let at = known.position_of(audience).expect("a member knows its audience");
        known.memberships[at] = Membership::behind(audience, cursor.unwrap_or(newest));
        self.flush.queue(session, known);
    }

    /// Answers a `subscribe` and has its topics read from where it asked for. `reads_on` says that
    /// the session will also walk older deliveries, in which these topics must not come twice.
    fn grant(&mut self, session: SessionIndex, wish: Wish, reads_on: bool) {
        let Wish { id, selectors, start, positions } = wish;
        let mut topics = Vec::new();
        for index in self.topics_selected(&selectors) {
            let name = &self.topics.at(index).name;
            let is_plain = selectors.iter().any(|selector| selector.as_str() == name.as_str());
            let position = positions.iter().find(|(topic, _)| topic == name).map(|(_, at)| at);
            let (mut wanted, described) = self.start_of(index, &start, position);
            if is_plain {
                topics.push(described);
            }
            wanted.announce = !is_plain;
            let is_ahead = wanted.after > self.topics.at(index).head;
            let has_something_to_read = wanted.announce
                || wanted.gap.is_some()
                || wanted.after != self.topics.at(index).head;
            let replay = &mut self.sessions.at_mut(session).replay;
            if has_something_to_read || reads_on || replay.is_some() {
                let replay = replay.get_or_insert_default();
                replay.is_ahead |= is_ahead;
                replay.add(wanted);
            }
        }
        self.tell(session, &Event::Subscribed(Subscribed { id, selectors, topics }));
    }

    /// Where reading of one topic starts, and how that is told.
    fn start_of(
        &self,
        index: TopicIndex,
        start: &Start,
        position: Option<&Position>,
    ) -> (ReplayTopic, SubscribedTopic) {
        let topic = self.topics.at(index);
        let oldest = topic.history.as_deref().and_then(History::oldest);
        let in_memory_after = oldest.map_or(topic.head, |oldest| oldest.sequence().back(1));
        let policy = self.policy(topic.policy);
        let kept_after = match policy.ack {
            AckLevel::Memory => in_memory_after,
            // What the store lacks of these, if it is damaged, is told as a gap when it is read.
            AckLevel::Disk => in_memory_after.min(topic.head.back(policy.history_count as u64)),
        };
        let newest_first = match policy.retain {
            true => topic.head.back(1).max(kept_after),
            false => topic.head,
        };
        let (mut gap, mut recovered) = (None, None);
        let after = match (position, start) {
            (Some(at), _) if at.epoch != *self.topics.epoch(topic.epoch) => {
                gap = Some(ReplayGap { from: None, reason: GapReason::Epoch });
                recovered = Some(false);
                kept_after
            }
            // Told by another shard, which was a moment ahead of this one, or held back here still.
            (Some(at), _)
                if at.sequence > topic.head
                    && (at.sequence <= topic.newest_known() || !self.is_home_of(&topic.name)) =>
            {
                recovered = Some(true);
                at.sequence
            }
            // Nobody ever told that: what the client took was of another life of the numbering.
            (Some(at), _) if at.sequence > topic.head => {
                gap = Some(ReplayGap { from: None, reason: GapReason::Epoch });
                recovered = Some(false);
                kept_after
            }
            (Some(at), _) => {
                recovered = Some((kept_after..=topic.head).contains(&at.sequence));
                at.sequence.min(topic.head)
            }
            (None, Start::Snapshot) => newest_first,
            (None, Start::Now) => topic.head,
            (None, Start::All) => Sequence::START,
            (None, Start::Last(count)) => topic.head.back(*count).max(kept_after),
            (None, Start::Since(since)) => {
                let after = self.place_since(topic, since, kept_after);
                gap = after.err().map(|reason| ReplayGap { from: None, reason });
                after.unwrap_or(kept_after)
            }
        };
        let described = SubscribedTopic { start: after, recovered, ..self.describe(index) };
        let reason = GapReason::History;
        let announce = false;
        let (topic, conflates_after) = (index, topic.head);
        (ReplayTopic { topic, after, conflates_after, gap, reason, announce, recovered }, described)
    }

    /// The place after which a topic's publications are not older than a moment, or why some of them cannot be
    /// had any more. Where only the value is kept nobody expects what it replaced.
    fn place_since(
        &self,
        topic: &Topic,
        since: &Since,
        kept_after: Sequence,
    ) -> Result<Sequence, GapReason> {
        let epoch = self.topics.epoch(topic.epoch);
        if topic.head > Sequence::START
            && since.epochs.as_ref().is_some_and(|known| !known.contains(epoch))
        {
            return Err(GapReason::Epoch);
        }
        let Some(history) = topic.history.as_deref() else { return Ok(kept_after) };
        let is_wanted = |kept: &&Publication| kept.unix_ms() >= since.unix_ms;
        let Some(first) = history.iter().find(is_wanted) else { return Ok(topic.head) };
        let after = first.sequence().back(1);
        let is_oldest = history.oldest().is_some_and(|it| it.sequence() == first.sequence());
        let policy = self.policy(topic.policy);
        match policy.ack {
            // The store may have more of that time.
            AckLevel::Disk if is_oldest => Ok(kept_after),
            AckLevel::Memory
                if is_oldest && after > Sequence::START && policy.history_count > 1 =>
            {
                Err(GapReason::History)
            }
            _ => Ok(after),
        }
    }

    /// The topics that a list of selectors selects now: those named, and those revealed.
    fn topics_selected(&self, selectors: &[Selector]) -> Vec<TopicIndex> {
        let mut found = Vec::new();
        for selector in selectors {
            match selector.as_topic() {
                Some(name) => found.extend(self.topics.find(name)),
                None => found.extend(self.revealed_by(selector)),
            }
        }
        if selectors.len() > 1 {
            found.sort_unstable();
            found.dedup();
        }
        found
    }

    pub(crate) fn topics_of(&self, audience: AudienceIndex) -> Vec<TopicIndex> {
        self.topics_selected(&self.audiences.at(audience).key.selectors)
    }

    /// Drops from a session's replay what it no longer reads. What has no reader may be forgotten, and
    /// its place given to another topic: also a topic that only patterns select and that is not revealed.
    fn forget_unread_topics(&mut self, session: SessionIndex) {
        self.end_unread_transfers(session);
        let Some(mut replay) = self.sessions.at_mut(session).replay.take() else { return };
        let known = self.sessions.at(session);
        replay.forget(|index| {
            let Some(topic) = self.topics.get(index) else { return true };
            let mut memberships = known.memberships.iter();
            !memberships.any(|membership| topic.readers.contains(&membership.audience))
        });
        self.sessions.at_mut(session).replay = Some(replay);
    }

    /// Tells no more pieces of what a session no longer reads.
    fn end_unread_transfers(&mut self, session: SessionIndex) {
        let known = self.sessions.at_mut(session);
        let Some(outgoing) = &mut known.outgoing else { return };
        let audiences = &self.audiences;
        outgoing.transfers.retain(|transfer| {
            let mut memberships = known.memberships.iter();
            memberships.any(|at| audiences.at(at.audience).selects(transfer.topic.as_str()))
        });
    }
}
