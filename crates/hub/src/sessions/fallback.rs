//! Falling off the recent deliveries: a session reads its topics afresh, each from where it stood, as the
//! topic's policy says. Those of patterns are looked for in pieces, a piece in each turn.

use std::cmp::Reverse;

use model::planted::{Fault, is_planted};
use model::{Code, Conflation, GapReason, HashSet, Lagged, Refusal, Selector};

use crate::hub::Hub;
use crate::operations::Operation;
use crate::sending::encoder::Encoder;
use crate::sessions::replay::Replay;
use crate::sessions::replay_queue::{Announce, ReplayGap, ReplayTopic};
use crate::sessions::session::Session;
use crate::sessions::steps::{Lag, WALK_MAX};
use crate::sessions::throttle::Allowance;
use crate::sessions::topic_search::Rewinding;
use crate::tables::index::{AudienceIndex, SessionIndex, TopicIndex};
use crate::topics::delivery::What;
use crate::topics::history::{History, Place};
use crate::topics::name_walk::Walk;

impl<E: Encoder> Hub<E> {
    /// Where the recent deliveries no longer reach back to a session's cursor, has it read its
    /// topics afresh, each from the sequence that the cursor stood at.
    pub(crate) fn rewind_if_lapped(&mut self, index: SessionIndex) {
        let memberships = self.sessions.at(index).memberships.iter();
        let behind: Vec<(AudienceIndex, u64, bool)> = memberships
            .filter_map(|membership| {
                let (audience, cursor) = (membership.audience, membership.cursor()?);
                let session = self.sessions.at(index);
                let replay = session.replay.as_deref();
                if replay.is_some_and(|replay| replay.is_rewinding(audience)) {
                    return None;
                }
                let is_lapped = !self.deliveries.reaches_back_to(cursor);
                let is_far = is_lapped || self.is_far_behind(index, audience, cursor);
                is_far.then_some((audience, cursor, is_lapped))
            })
            .collect();
        for (audience, cursor, is_lapped) in behind {
            self.begin_rewinding(index, audience, cursor, is_lapped);
        }
    }

    fn begin_rewinding(
        &mut self,
        index: SessionIndex,
        audience: AudienceIndex,
        cursor: u64,
        is_lapped: bool,
    ) {
        let selectors = &self.audiences.at(audience).key.selectors;
        self.note_work(selectors.len());
        let patterns: Vec<&Selector> = selectors.iter().filter(|it| it.has_wildcard()).collect();
        let walk = Walk::of(&patterns);
        let names = selectors.iter().filter_map(Selector::as_topic);
        let named: Vec<TopicIndex> = names.filter_map(|name| self.topics.find(name)).collect();
        let newest = self.deliveries.newest();
        let mut rewinding = Rewinding { audience, cursor, newest, walk, is_lapped, all_skip: true };
        let goes_on = named.into_iter().all(|it| self.rewind_one(index, &mut rewinding, it));
        // Of a session that is to be closed nothing is read any more.
        let replay = self.sessions.at_mut(index).replay.get_or_insert_default();
        replay.rewinding.push(rewinding);
        if goes_on {
            self.begin_operation(Operation::Rewind(audience, index));
        }
    }

    /// Answers whether all topics of an audience are found that a session is to read afresh, or it needs them no more.
    pub(crate) fn go_on_rewinding(
        &mut self,
        audience: AudienceIndex,
        index: SessionIndex,
        steps: &mut usize,
    ) -> bool {
        let replay = self.sessions.get_mut(index).and_then(|known| known.replay.as_deref_mut());
        let Some(mut rewinding) = replay.and_then(|replay| replay.take_rewinding(audience)) else {
            return true;
        };
        let mut found = Vec::new();
        let is_done = self.find_next(&mut rewinding.walk, steps, &mut found);
        let goes_on = found.into_iter().all(|it| self.rewind_one(index, &mut rewinding, it));
        if is_done && goes_on {
            self.finish_rewinding(index, &rewinding);
        } else {
            let replay = self.sessions.at_mut(index).replay.get_or_insert_default();
            replay.rewinding.push(rewinding);
        }
        is_done || !goes_on
    }

    /// Has a session read one topic afresh, if it lacks something of it; answers whether the session may go on.
    fn rewind_one(
        &mut self,
        index: SessionIndex,
        rewinding: &mut Rewinding,
        topic: TopicIndex,
    ) -> bool {
        let session = self.sessions.at(index);
        if session.replay.as_deref().is_some_and(|replay| replay.todo.contains(topic)) {
            return true;
        }
        let Rewinding { audience, cursor, is_lapped, .. } = *rewinding;
        let is_lapped = is_lapped || is_planted(Fault::SentAheadInAll);
        let skips = self.skips_afresh(session, audience, topic);
        rewinding.all_skip &= skips;
        // What may not be skipped is read on in the recent deliveries, as long as these have all that it lacks of it.
        if !is_lapped && !skips {
            return true;
        }
        let closing = self.outbox.closing.len();
        self.rewind_topic(index, audience, topic, cursor);
        let topics_max = self.settings.limits.replay_topics_max;
        let replay = self.sessions.at(index).replay.as_deref();
        if replay.is_some_and(|replay| replay.todo.len() > topics_max) {
            self.close_slow(index, "it fell behind on more topics than replay_topics_max");
        }
        self.outbox.closing.len() == closing
    }

    fn finish_rewinding(&mut self, index: SessionIndex, rewinding: &Rewinding) {
        let &Rewinding { audience, newest, is_lapped, all_skip, .. } = rewinding;
        let is_lapped = is_lapped || is_planted(Fault::SentAheadInAll);
        let session = self.sessions.at_mut(index);
        if is_lapped || all_skip {
            self.counters.lapped_sessions += 1;
            let at = session.position_of(audience).expect("a member knows its audience");
            session.memberships[at].fall_behind(newest);
        } else {
            session.replay.get_or_insert_default().has_skipped_ahead = true;
        }
        if !session.is_blocked {
            self.flush.queue(index, session);
        }
    }

    /// Whether a session that conflates is so far behind that going through the deliveries in order would starve
    /// its busiest topics: each of their publications is replaced before its turn comes. Read afresh, every
    /// topic has its turn.
    fn is_far_behind(&self, index: SessionIndex, audience: AudienceIndex, cursor: u64) -> bool {
        // Of the deliveries that are kept: 1,024 of the 65,536 that there are by default.
        const FAR_PART: u64 = 64;
        const NEAR_PART: u64 = 4 * FAR_PART;
        let session = self.sessions.at(index);
        let conflation = self.options_of(audience).conflation;
        let kept = self.settings.limits.recent_deliveries_max as u64;
        // Reading afresh costs a look at each topic; how many there are is known from the last time.
        let known = session.replay.as_ref().map_or(0, |replay| replay.done.len() as u64);
        let far = if known == 0 { kept / FAR_PART } else { (kept / NEAR_PART).max(2 * known) };
        self.deliveries.newest() - cursor > far
            && session.replay.as_ref().is_none_or(|replay| replay.may_skip_ahead())
            && (!self.has_filter(audience) || is_planted(Fault::SentAheadInAll))
            && (session.is_throttled
                || matches!(conflation, Conflation::Lagging | Conflation::Always))
    }

    /// Where a session may not be sent at once all that it lacks, has it read its topics afresh, those first that
    /// have waited longest. In the order of the deliveries the same ones would be told again and again: of all
    /// others what is to be told is replaced before their turn comes.
    pub(crate) fn take_turns(&mut self, index: SessionIndex, allowance: Allowance) {
        let session = self.sessions.at(index);
        let is_reading = |replay: &Replay| replay.is_reading() || replay.is_parked;
        if !session.is_throttled || session.replay.as_deref().is_some_and(is_reading) {
            return;
        }
        let lags = self.lags(session);
        let Some(mut waiting) = self.waiting_longest(session, &lags, allowance) else { return };
        waiting.sort_by_key(|(priority, _)| Reverse(*priority));
        let (session, topics) = (self.sessions.at_mut(index), waiting.into_iter());
        session.replay.get_or_insert_default().add(topics.map(|(_, topic)| topic).collect());
        for lag in lags {
            let at = session.position_of(lag.audience).expect("a member knows its audience");
            session.memberships[at].fall_behind(lag.bound);
        }
    }

    /// The topics that a session lacks something of, each with its priority, in the order in which they began to wait.
    /// `None` if all of it may be sent at once, or some of it may not be skipped.
    fn waiting_longest(
        &self,
        session: &Session,
        lags: &[Lag],
        allowance: Allowance,
    ) -> Option<Vec<(i8, ReplayTopic)>> {
        let first = lags.iter().map(|lag| lag.cursor).min()?;
        let last = lags.iter().map(|lag| lag.bound).max()?;
        if last.saturating_sub(first) > WALK_MAX || !self.deliveries.reaches_back_to(first) {
            return None;
        }
        let (mut waiting, mut bytes) = (Vec::new(), 0);
        let mut known: HashSet<TopicIndex> = HashSet::default();
        for number in first + 1..=last {
            self.note_work(1);
            let delivery = self.deliveries.get(number)?;
            let Some(topic) = self.topics.get(delivery.topic) else { continue };
            let Some(lag) = self.lag_about(topic, lags, number) else { continue };
            let through = delivery.what.through();
            let replay = session.replay.as_deref();
            if replay.is_some_and(|replay| replay.has(delivery.topic, through)) {
                continue;
            }
            let What::Publication(publication) = &delivery.what else { return None };
            if !self.skips_afresh(session, lag.audience, delivery.topic) {
                return None;
            }
            if known.insert(delivery.topic) {
                let newest = topic.history.as_deref().and_then(History::newest);
                bytes += newest.filter(|newest| newest.sequence() == topic.head)?.kept_bytes();
                let after = publication.previous();
                let wanted = ReplayTopic::going_on(delivery.topic, after, topic.epoch);
                waiting.push((lag.priority, wanted));
            }
        }
        let is_all = waiting.len() <= allowance.messages && bytes <= allowance.bytes;
        (!is_all).then_some(waiting)
    }

    /// Whether what is replaced by a newer publication may be left out when a topic is read afresh.
    pub(crate) fn skips_afresh(
        &self,
        session: &Session,
        audience: AudienceIndex,
        topic: TopicIndex,
    ) -> bool {
        let mode = self.mode_for(session, audience, topic);
        let policy = self.policy(self.topics.at(topic).policy);
        matches!(mode, Conflation::Lagging | Conflation::Always)
            && policy.conflation_key.is_none()
            && !self.has_filter(audience)
    }

    fn rewind_topic(
        &mut self,
        index: SessionIndex,
        audience: AudienceIndex,
        topic_index: TopicIndex,
        cursor: u64,
    ) {
        let topic = self.topics.at(topic_index);
        let replay = self.sessions.at(index).replay.as_deref();
        let by_cursor = match &topic.history {
            _ if topic.newest_delivery <= cursor => Place::After(topic.head),
            None => Place::Lost(topic.head),
            Some(_) if is_planted(Fault::MemoryIsNotAsked) => Place::Lost(topic.head),
            Some(history) => history.place_at(cursor, topic.head, topic.newest_delivery),
        };
        let by_cursor = self.place_among_recent(topic_index, cursor, by_cursor);
        let place = match (by_cursor, replay.and_then(|replay| replay.done.get(&topic_index))) {
            (Place::After(at) | Place::Lost(at), Some(done)) if *done >= at => Place::After(*done),
            (place, _) => place,
        };
        let epoch = self.epoch_known_at(topic, cursor);
        if place == Place::After(topic.head) && epoch == topic.epoch {
            return;
        }
        let newest_before = match topic.history.as_deref().and_then(History::newest) {
            Some(newest) => newest.previous(),
            None => topic.head,
        };
        let policy = self.policy(topic.policy);
        let mode = self.mode_for(self.sessions.at(index), audience, topic_index);
        let skips = self.skips_afresh(self.sessions.at(index), audience, topic_index)
            || is_planted(Fault::SentAheadInAll);
        let lost = |to| (to, Some(ReplayGap { from: None, reason: GapReason::Lagged }));
        let (after, gap) = match place {
            Place::After(after) | Place::Lost(after) if skips => {
                let newest_before = newest_before.max(after);
                self.counters.conflated += topic.count_between(after, newest_before);
                (newest_before, None)
            }
            _ if mode == Conflation::Unsubscribe => {
                self.flush.taken_away.push((index, topic_index));
                let replay = self.sessions.at_mut(index).replay.get_or_insert_default();
                replay.is_losing_topics = true;
                return;
            }
            Place::After(after) => (after, None),
            // On disk nothing is lost: it comes back and resumes from its positions.
            Place::Lost(_) if policy.lagged == Lagged::Close || self.is_on_disk(topic) => {
                let why = format!("the history of `{}` no longer reaches back to it", topic.name);
                return self.close_slow(index, &why);
            }
            Place::Lost(to) if policy.lagged == Lagged::Snapshot => lost(newest_before.max(to)),
            Place::Lost(to) => lost(to),
        };
        let announce = match self.selects_by_pattern(audience, topic) {
            true => Announce::Yes,
            false => Announce::No,
        };
        let (topic, reason) = (topic_index, GapReason::Lagged);
        let (conflates_after, recovered) = (after, None);
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
        let replay = self.sessions.at_mut(index).replay.get_or_insert_default();
        replay.done.remove(&topic_index);
        replay.add_one(wanted);
    }

    fn close_slow(&mut self, index: SessionIndex, why: &str) {
        let text = format!(
            "cannot go on sending: this client was too slow and {why}; come back and resume from \
             your positions, read fewer topics, or ask for conflation"
        );
        self.outbox.closing.push_back((index, Refusal::new(Code::TooSlow, text)));
    }
}
