//! Falling off the recent deliveries: a session reads its topics afresh, each from where it stood, as the
//! topic's policy says.

use model::{Code, Conflation, GapReason, Lagged, Refusal};

use crate::encoder::Encoder;
use crate::history::{History, Place};
use crate::hub::Hub;
use crate::index::{AudienceIndex, SessionIndex, TopicIndex};
use crate::replay::{ReplayGap, ReplayTopic};
use crate::session::Session;

impl<E: Encoder> Hub<E> {
    /// Where the recent deliveries no longer reach back to a session's cursor, has it read its
    /// topics afresh, each from the sequence that the cursor stood at.
    pub(crate) fn rewind_if_lapped(&mut self, index: SessionIndex) {
        let lapped: Vec<(AudienceIndex, u64)> = self
            .sessions
            .at(index)
            .memberships
            .iter()
            .filter_map(|membership| Some((membership.audience, membership.cursor()?)))
            .filter(|(audience, cursor)| {
                !self.deliveries.reaches_back_to(*cursor)
                    || self.is_far_behind(index, *audience, *cursor)
            })
            .collect();
        let newest = self.deliveries.newest();
        for (audience, cursor) in lapped {
            self.counters.lapped_sessions += 1;
            let topics = self.topics_of(audience);
            for topic in topics {
                self.rewind_topic(index, audience, topic, cursor);
            }
            let session = self.sessions.at_mut(index);
            let at = session.position_of(audience).expect("a member knows its audience");
            session.memberships[at].fall_behind(newest);
        }
        let topics_max = self.settings.limits.replay_topics_max;
        let replay = self.sessions.at(index).replay.as_ref();
        if replay.is_some_and(|replay| replay.todo.len() > topics_max) {
            self.close_slow(index, "it fell behind on more topics than replay_topics_max");
        }
    }

    /// Whether a session that conflates is so far behind that going through the deliveries in order would starve
    /// its busiest topics: each of their publications is replaced before its turn comes. Read afresh, every
    /// topic has its turn.
    fn is_far_behind(&self, index: SessionIndex, audience: AudienceIndex, cursor: u64) -> bool {
        const NEAR: u64 = 256;
        const FAR: u64 = 1_024;
        let session = self.sessions.at(index);
        let conflation = self.options_of(audience).conflation;
        // Reading afresh costs a look at each topic; how many there are is known from the last time.
        let known = session.replay.as_ref().map_or(0, |replay| replay.done.len() as u64);
        let far = if known == 0 { FAR } else { NEAR.max(2 * known) };
        self.deliveries.newest() - cursor > far
            && session.replay.as_ref().is_none_or(|replay| replay.todo.is_empty())
            && (session.throttle.is_some()
                || matches!(conflation, Conflation::Lagging | Conflation::Always))
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
        if replay.is_some_and(|r| r.todo.iter().any(|wanted| wanted.topic == topic_index)) {
            return;
        }
        let by_cursor = match &topic.history {
            _ if topic.newest_delivery <= cursor => Place::After(topic.head),
            None => Place::Lost(topic.head),
            Some(history) => history.place_at(cursor, topic.head, topic.newest_delivery),
        };
        let place = match (by_cursor, replay.and_then(|replay| replay.done.get(&topic_index))) {
            (Place::After(at) | Place::Lost(at), Some(done)) if *done >= at => Place::After(*done),
            (place, _) => place,
        };
        if place == Place::After(topic.head) {
            return;
        }
        let newest_before = match topic.history.as_deref().and_then(History::newest) {
            Some(newest) => newest.sequence().back(1),
            None => topic.head,
        };
        let policy = self.policy(topic.policy);
        let mode = self.mode_for(self.sessions.at(index), audience, topic_index);
        let skips = self.skips_afresh(self.sessions.at(index), audience, topic_index);
        let lost = |to| (to, Some(ReplayGap { from: None, reason: GapReason::Lagged }));
        let (after, gap) = match place {
            Place::After(after) | Place::Lost(after) if skips => {
                let newest_before = newest_before.max(after);
                self.counters.conflated += newest_before.get() - after.get();
                (newest_before, None)
            }
            _ if mode == Conflation::Unsubscribe => {
                self.taken_away.push((index, topic_index));
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
        let audience = self.audiences.at(audience);
        let announce = !audience.selects_plainly(topic.name.as_str());
        let (topic, reason) = (topic_index, GapReason::Lagged);
        let (conflates_after, recovered) = (after, None);
        let wanted =
            ReplayTopic { topic, after, conflates_after, gap, reason, announce, recovered };
        let replay = self.sessions.at_mut(index).replay.get_or_insert_default();
        replay.done.remove(&topic_index);
        replay.add_new([wanted]);
    }

    fn close_slow(&mut self, index: SessionIndex, why: &str) {
        let text = format!(
            "cannot go on sending: this client was too slow and {why}; come back and resume from \
             your positions, read fewer topics, or ask for conflation"
        );
        self.closing.push_back((index, Refusal::new(Code::TooSlow, text)));
    }
}
