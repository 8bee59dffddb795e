//! Answering a `subscribe`: from where each of its topics is read. Topics that patterns select are looked at in pieces, a
//! piece in each turn; the answer comes when all were, and nothing of them is told before.

use std::collections::VecDeque;

use model::{
    Event, GapReason, HashSet, Position, Resume, Selector, Sequence, Start, Subscribed,
    SubscribedTopic, SubscriptionId,
};

use crate::audiences::joining::{Grant, PendingJoin, Wish};
use crate::hub::Hub;
use crate::operations::Operation;
use crate::sending::encoder::{Encoder, Progress};
use crate::sessions::replay::InOrder;
use crate::sessions::replay_queue::{Announce, ReplayGap, ReplayTopic, Todo};
use crate::sessions::session::Membership;
use crate::tables::index::{AudienceIndex, SessionIndex, TopicIndex};
use crate::topics::name_walk::Walk;
use crate::topics::topic::Topic;

impl<E: Encoder> Hub<E> {
    /// Lets those in who waited for an audience's topics.
    pub(crate) fn complete_joins(&mut self, audience: AudienceIndex) {
        for (session, join) in
            self.joining.joins.remove(&audience).unwrap_or_default().into_waiting()
        {
            self.complete_join(audience, session, join);
        }
    }

    /// Lets a session in, once what it asked for is granted.
    pub(crate) fn complete_join(
        &mut self,
        audience: AudienceIndex,
        session: SessionIndex,
        mut join: PendingJoin,
    ) {
        // The topics are read by this audience now.
        self.release(std::mem::take(&mut join.left));
        let mut steps = self.operations.take_share();
        let is_done = self.grant(audience, session, join, &mut steps);
        let undone = (!is_done).then_some(Operation::Grant(audience, session));
        self.operations.settle(steps, undone);
    }

    /// Answers whether all that a session asked for is granted, or it went.
    pub(crate) fn go_on_granting(
        &mut self,
        audience: AudienceIndex,
        session: SessionIndex,
        steps: &mut usize,
    ) -> bool {
        let joins = self.joining.joins.get_mut(&audience);
        let join = joins.and_then(|joins| joins.remove(session));
        join.is_none_or(|join| self.grant(audience, session, join, steps))
    }

    /// Grants what a session asked for; answers whether that is all. The rest is kept among those that wait.
    fn grant(
        &mut self,
        audience: AudienceIndex,
        session: SessionIndex,
        mut join: PendingJoin,
        steps: &mut usize,
    ) -> bool {
        let newest = self.deliveries.newest();
        let since = *join.since.get_or_insert(newest);
        let cursor = join.cursor.unwrap_or(since);
        while let Some(wish) = join.wishes.front() {
            let grant = match join.grant.take() {
                Some(grant) => grant,
                None => self.begin_grant(session, wish, cursor < newest),
            };
            let mut grant = grant;
            let is_done = self.go_on_with(wish, &mut grant, steps);
            if let Some(topic) = grant.beyond.take() {
                self.note_beyond(session, topic);
            }
            if !is_done {
                join.grant = Some(grant);
                self.joining.joins.entry(audience).or_default().insert(session, join);
                return false;
            }
            let wish = join.wishes.pop_front().expect("there is one");
            let pending = join.wishes.iter().filter_map(|it| it.subscription);
            let pending: Vec<SubscriptionId> = pending.collect();
            self.keep_places(session, &wish, &pending, cursor, &mut grant.added);
            self.describe_by_id(session, audience, &wish, &pending, &mut grant);
            self.finish_grant(session, wish, *grant);
            // Also if the session leaves before the rest is granted.
            join.cursor = Some(cursor);
        }
        if self.joining.joins.get(&audience).is_some_and(|joins| joins.is_empty()) {
            self.joining.joins.remove(&audience);
        }
        let known = self.sessions.at_mut(session);
        let at = known.position_of(audience).expect("a member knows its audience");
        known.memberships[at] = Membership::behind(audience, cursor);
        self.outbox.granted.push_back(known.link);
        self.flush.queue(session, known);
        true
    }

    /// Begins to grant a wish. `reads_on` says that the session will also walk older deliveries, in which its topics
    /// must not come twice.
    fn begin_grant(&self, session: SessionIndex, wish: &Wish, reads_on: bool) -> Box<Grant> {
        self.note_work(wish.selectors.len() + wish.positions.len());
        let has_replay = self.sessions.at(session).replay.is_some();
        let is_in_order = wish.is_resumable && !has_replay && !reads_on;
        let in_order = is_in_order.then(|| Box::new(InOrder::begin(&wish.start, self.now.unix_ms)));
        let patterns: Vec<&Selector> =
            wish.selectors.iter().filter(|selector| selector.has_wildcard()).collect();
        let first = in_order.as_ref().and_then(|it| it.first.clone());
        let walk = (!patterns.is_empty()).then(|| Walk::from(&patterns, first.clone()));
        let mut grant = Box::new(Grant {
            adds_all: reads_on || has_replay || walk.is_some(),
            walk,
            in_order,
            named: VecDeque::new(),
            names: HashSet::default(),
            told: Vec::new(),
            added: Todo::default(),
            ahead: Vec::new(),
            is_whole: true,
            has_gap: false,
            begun_ms: self.now.unix_ms,
            beyond: None,
        });
        let named = wish.selectors.iter().filter_map(Selector::as_topic);
        let named = named.filter_map(|name| self.topics.find(name));
        let mut named: Vec<TopicIndex> = named.filter(|it| grant.names.insert(*it)).collect();
        named.sort_by_cached_key(|index| {
            let name = self.topics.at(*index).name.clone();
            (first.as_ref().is_some_and(|first| name < *first), name)
        });
        for index in named {
            let topic = self.topics.at(index);
            let position = wish.position_in(&topic.name);
            let (wanted, described) = self.start_of(index, &wish.start, position);
            grant.told.push(described);
            if position.is_some_and(|at| self.is_beyond(index, at)) {
                grant.beyond = Some(index);
            }
            grant.note(&wanted, topic.head);
            if wanted.gap.is_some() || wanted.after != topic.head || grant.adds_all {
                grant.adds_all = true;
                grant.named.push_back((topic.name.clone(), wanted));
            }
        }
        grant
    }

    /// Goes on with what the patterns of a wish select; answers whether that is all.
    fn go_on_with(&self, wish: &Wish, grant: &mut Grant, steps: &mut usize) -> bool {
        let mut is_done = true;
        if let Some(walk) = &mut grant.walk {
            let mut found = Vec::new();
            is_done = self.find_next(walk, steps, &mut found);
            found.retain(|index| !grant.names.contains(index));
            for index in found {
                let topic = self.topics.at(index);
                let position = wish.position_in(&topic.name);
                let (mut wanted, _) = self.start_of(index, &wish.start, position);
                wanted.announce = Announce::Yes;
                if position.is_some_and(|at| self.is_beyond(index, at)) {
                    grant.beyond = Some(index);
                }
                grant.note(&wanted, topic.head);
                grant.add_named_before(Some(&topic.name));
                grant.added.push(wanted);
            }
        }
        if is_done {
            grant.add_named_before(None);
        }
        is_done
    }

    /// Answers a `subscribe`, and has its topics read.
    fn finish_grant(&mut self, session: SessionIndex, wish: Wish, grant: Grant) {
        let Wish { id, subscription, selectors, is_resumable, .. } = wish;
        let Grant { told, added, in_order, begun_ms, is_whole, has_gap, ahead, .. } = grant;
        if !added.is_empty() {
            let known = self.sessions.at_mut(session);
            let is_first = known.replay.is_none();
            let replay = known.replay.get_or_insert_default();
            if !ahead.is_empty() {
                replay.ahead.extend(ahead);
                // Another epoch may have begun since they were noted.
                replay.renewals_seen = 0;
            }
            if is_first {
                replay.in_order = in_order;
            }
            if replay.add(added) {
                self.begin_operation(Operation::Add(session));
            }
        }
        let progress = match (is_resumable && !has_gap, is_whole) {
            (false, _) => Progress::Unknown,
            (true, false) => Progress::InTopic,
            (true, true) => Progress::At(begun_ms),
        };
        let subscribed = Subscribed { id, subscription, selectors, topics: told };
        let subscribed = Event::Subscribed(subscribed);
        self.tell_with(session, &subscribed, progress);
        if let Some(subscription) = subscription {
            self.complete_later(session, subscription);
        }
    }

    /// Goes on with what a session is to read afresh beside other topics; answers whether that is all, or it went.
    pub(crate) fn go_on_adding(&mut self, session: SessionIndex, steps: &mut usize) -> bool {
        let Some(known) = self.sessions.get_mut(session) else { return true };
        let Some(replay) = known.replay.as_deref_mut() else { return true };
        let before = *steps;
        let is_done = replay.go_on_adding(steps);
        if is_done && !known.is_blocked {
            self.flush.queue(session, known);
        }
        self.note_work(before - *steps);
        is_done
    }

    /// Everything after this is kept of a topic, as far as this shard heard.
    pub(crate) fn kept_after(&self, topic: &Topic) -> Sequence {
        let in_memory_after = topic.in_memory_after();
        let policy = self.policy(topic.policy);
        match policy.reaches_beyond_memory() {
            false => in_memory_after,
            // What the store lacks of these, if it is damaged, is told as a gap when it is read.
            true => in_memory_after.min(topic.before_newest(policy.history_count as u64)),
        }
    }

    /// Whether a position is of a topic's epoch, and nobody can have been told it. Its home knows that at once; others ask there.
    fn is_beyond(&self, index: TopicIndex, at: &Position) -> bool {
        let topic = self.topics.at(index);
        at.epoch == *self.topics.epoch(topic.epoch)
            && at.sequence > topic.newest_known()
            && self.is_home_of(&topic.name)
    }

    /// Where reading of one topic starts, and how that is told.
    fn start_of(
        &self,
        index: TopicIndex,
        start: &Start,
        position: Option<&Position>,
    ) -> (ReplayTopic, SubscribedTopic) {
        let topic = self.topics.at(index);
        let policy = self.policy(topic.policy);
        let kept_after = self.kept_after(topic);
        let newest_first = match policy.retain {
            true => topic.before_newest(1).max(kept_after),
            false => topic.head,
        };
        let (mut gap, mut recovered) = (None, None);
        let after = match (position, start) {
            (Some(at), _) if at.epoch != *self.topics.epoch(topic.epoch) => {
                gap = Some(ReplayGap { from: None, reason: GapReason::Epoch });
                recovered = Some(false);
                self.had_after(index)
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
                self.had_after(index)
            }
            (Some(at), _) => {
                let is_kept = at.sequence >= kept_after;
                recovered = Some(is_kept || self.has_recent(index, at.sequence, kept_after));
                at.sequence.min(topic.head)
            }
            (None, Start::Snapshot) => newest_first,
            (None, Start::Now) => topic.head,
            (None, Start::All) => Sequence::START,
            (None, Start::Last(count)) => topic.before_newest(*count).max(kept_after),
            (None, Start::Since(unix_ms)) => {
                let (after, lacks) = self.place_of_time(index, *unix_ms, kept_after);
                gap = lacks.map(|reason| ReplayGap { from: None, reason });
                after
            }
            (None, Start::Resume(resume)) => {
                let unread = resume.unread.as_ref().filter(|it| topic.name >= it.after);
                let before_ms = unread.map_or(resume.has_before_ms, |it| it.has_before_ms);
                let (resumed_after, lacks) =
                    self.place_resumed(index, resume, before_ms, kept_after);
                // What was never come to starts where it was to, at the latest where it was when that was asked for.
                if let Some(start) = unread.and_then(|it| it.start.as_ref()) {
                    let (begun, described) = self.start_of(index, start, None);
                    if begun.after <= resumed_after {
                        return (begun, described);
                    }
                }
                gap = lacks.map(|reason| ReplayGap { from: None, reason });
                resumed_after
            }
        };
        // Where a reader by time stands nobody knows. It is told the gap from the beginning, not from where the gap ends.
        let is_lost_in_time = |gap: &ReplayGap| gap.reason == GapReason::History;
        let start = if gap.as_ref().is_some_and(is_lost_in_time) { Sequence::START } else { after };
        let described = SubscribedTopic { start, recovered, ..self.describe(index) };
        let reason = GapReason::History;
        let announce = Announce::of_named(topic.head);
        let (topic, conflates_after, epoch) = (index, topic.head, topic.epoch);
        let wanted = ReplayTopic {
            topic,
            after,
            conflates_after,
            gap,
            reason,
            announce,
            epoch,
            recovered,
            begins_after: None,
        };
        (wanted, described)
    }

    /// The place up to which a reader without positions has a topic of which it has everything before a moment,
    /// and why some of what follows cannot be had any more.
    fn place_resumed(
        &self,
        index: TopicIndex,
        resume: &Resume,
        has_before_ms: u64,
        kept_after: Sequence,
    ) -> (Sequence, Option<GapReason>) {
        // Shards hear of what is published a little after one another.
        const OVERLAP_MS: u64 = 2_000;
        let topic = self.topics.at(index);
        let is_known = resume.epochs.contains(self.topics.epoch(topic.epoch))
            && has_before_ms <= self.now.unix_ms + OVERLAP_MS;
        if topic.head > Sequence::START && !is_known {
            return (self.had_after(index), Some(GapReason::Epoch));
        }
        // What one shard holds back another may have told at once.
        let held_ms = self.policy(topic.policy).interval.as_millis() as u64;
        let overlap_ms = OVERLAP_MS + held_ms + topic.lateness().at(has_before_ms);
        self.place_of_time(index, has_before_ms.saturating_sub(overlap_ms), kept_after)
    }

    /// The place after which a topic's publications are not older than a moment, and why some of them cannot be had.
    fn place_of_time(
        &self,
        index: TopicIndex,
        unix_ms: u64,
        kept_after: Sequence,
    ) -> (Sequence, Option<GapReason>) {
        match self.place_since(self.topics.at(index), unix_ms, kept_after) {
            Ok(after) => (after, None),
            Err(reason) => self.since_among_recent(index, unix_ms, kept_after, reason),
        }
    }

    /// The place after which a topic's publications are not older than a moment, or why some of them cannot be
    /// had any more. Where only the value is kept nobody expects what it replaced.
    fn place_since(
        &self,
        topic: &Topic,
        unix_ms: u64,
        kept_after: Sequence,
    ) -> Result<Sequence, GapReason> {
        let Some(history) = topic.history.as_deref() else { return Ok(kept_after) };
        let Some(first) = history.first_since(unix_ms) else { return Ok(topic.head) };
        let after = first.previous();
        let is_oldest = history.oldest().is_some_and(|it| it.sequence() == first.sequence());
        let policy = self.policy(topic.policy);
        match policy.reaches_beyond_memory() {
            // The store may have more of that time.
            true if is_oldest => Ok(kept_after),
            false if is_oldest && after > Sequence::START && policy.history_count > 1 => {
                Err(GapReason::History)
            }
            _ => Ok(after),
        }
    }
}
