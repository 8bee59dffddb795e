//! Sessions that are behind: telling them, telling the operator, and taking topics from them.

use std::collections::BTreeSet;
use std::time::Duration;

use model::{Conflation, Event, HashSet, Selector, TopicName};

use crate::hub::Hub;
use crate::sending::encoder::Encoder;
use crate::sessions::replay::Replay;
use crate::sessions::session::Session;
use crate::tables::connections::ConnectionId;
use crate::tables::index::{SessionIndex, TopicIndex};
use crate::topics::delivery::{Delivery, What};
use crate::topics::selector_tree::SelectorTree;

/// A session that is behind, for an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowSession {
    /// Its connection.
    pub link: ConnectionId,
    /// The age of the oldest publication that it lacks, in milliseconds.
    pub lag_ms: u64,
    /// Payload bytes that it lacks, of those that are counted.
    pub lag_bytes: u64,
    /// Publications that it lacks, of those that are counted.
    pub lag_count: u64,
    /// The topic of the oldest that it lacks, and what it may skip of that.
    pub topic: Option<(TopicName, Conflation)>,
    /// Whether it waits because it was sent all that it may be, not because its connection is full.
    pub is_throttled: bool,
}

/// How a session is, for an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionLook {
    /// Audiences that it is in.
    pub audiences: usize,
    /// Whether it has everything up to the last batch of each.
    pub is_in_step: bool,
}

/// Deliveries looked at for one session: enough to tell how far it is behind.
const LOOKED_AT_MAX: u64 = 4_096;
/// The same for all sessions that an operator is told of at once.
const LOOKED_AT_FOR_ALL: u64 = 16_384;
/// Sessions of which the slowest are sought.
const SOUGHT_MAX: usize = 16_384;

impl<E: Encoder> Hub<E> {
    /// Sessions that are behind, the one that lags most first, at most `count_max`. The more there are, the fewer of the
    /// deliveries that each lacks are counted.
    pub fn slow_sessions(&self, count_max: usize) -> Vec<SlowSession> {
        let slowest = self.slowest(count_max);
        let looks = LOOKED_AT_FOR_ALL / (slowest.len() as u64).max(1);
        let looks = looks.clamp(1, LOOKED_AT_MAX);
        let describe = |index| self.describe_slow(index, looks);
        let mut slow: Vec<SlowSession> = slowest.into_iter().map(describe).collect();
        slow.sort_by_key(|session| std::cmp::Reverse(session.lag_ms));
        if self.readers.further_count() > 0 {
            // Of a session's readers the one that lags most.
            let mut known = HashSet::default();
            slow.retain(|session| known.insert(session.link));
        }
        slow
    }

    /// How a session is.
    pub fn look_at(&self, session: SessionIndex) -> SessionLook {
        let readers = self.all_readers(session);
        let readers = || readers.iter().map(|reader| self.sessions.at(*reader));
        SessionLook {
            audiences: readers().map(|reader| reader.memberships.len()).sum(),
            is_in_step: readers().all(Session::is_in_step),
        }
    }

    /// The sessions whose cursors are furthest behind.
    pub(crate) fn slowest(&self, count_max: usize) -> Vec<SessionIndex> {
        let stalled = self.flush.stalled.iter().take(SOUGHT_MAX);
        self.note_work(self.flush.stalled.len().min(SOUGHT_MAX));
        let mut slow: Vec<(u64, SessionIndex)> =
            stalled.filter_map(|index| Some((self.oldest_cursor(*index)?, *index))).collect();
        slow.sort_unstable();
        slow.into_iter().take(count_max).map(|(_, index)| index).collect()
    }

    fn oldest_cursor(&self, index: SessionIndex) -> Option<u64> {
        let session = self.sessions.get(index)?;
        session.memberships.iter().filter_map(|membership| membership.cursor()).min()
    }

    fn describe_slow(&self, index: SessionIndex, looks: u64) -> SlowSession {
        let session = self.sessions.at(index);
        let mut described = SlowSession {
            link: session.link,
            lag_ms: 0,
            lag_bytes: 0,
            lag_count: 0,
            topic: None,
            is_throttled: session.rests && !session.is_blocked,
        };
        for delivery in self.lacking(index, looks) {
            let What::Publication(publication) = &delivery.what else { continue };
            if described.topic.is_none() {
                let topic = self.topics.at(delivery.topic);
                let audience = session.audience_reading(topic);
                let mode = audience.map(|audience| self.conflation_of(audience, delivery.topic));
                described.lag_ms = self.now.unix_ms.saturating_sub(publication.unix_ms());
                described.topic = Some((topic.name.clone(), mode.unwrap_or_default()));
            }
            described.lag_count += 1;
            described.lag_bytes += publication.kept_bytes() as u64;
        }
        described
    }

    /// The recent deliveries that a session lacks, as far as is looked.
    fn lacking(&self, index: SessionIndex, looks: u64) -> impl Iterator<Item = &Delivery> {
        let session = self.sessions.at(index);
        let newest = self.deliveries.newest();
        let first = self.oldest_cursor(index).unwrap_or(newest) + 1;
        let first = first.max(self.deliveries.oldest());
        (first..=newest.min(first + looks)).filter_map(move |number| {
            let delivery = self.deliveries.get(number)?;
            let topic = self.topics.get(delivery.topic)?;
            self.note_work(1);
            let at = session.position_of(session.audience_reading(topic)?)?;
            let cursor = session.memberships[at].cursor()?;
            (cursor < number).then_some(delivery)
        })
    }

    /// How old the oldest publication is that a session lacks.
    fn lag_of(&self, index: SessionIndex) -> Duration {
        let oldest = self.lacking(index, LOOKED_AT_MAX).find_map(|delivery| match &delivery.what {
            What::Publication(publication) => Some(publication.unix_ms()),
            _ => None,
        });
        let ms = oldest.map_or(0, |unix_ms| self.now.unix_ms.saturating_sub(unix_ms));
        Duration::from_millis(ms)
    }

    /// Tells a session once when it lags, and once when it does not any more.
    pub(crate) fn tell_lag(&mut self, index: SessionIndex) {
        let session = self.sessions.at(index);
        let was_told = session.is_told_lagging;
        if session.is_in_step() {
            if was_told {
                self.sessions.at_mut(index).is_told_lagging = false;
            }
            if was_told && !self.is_another_told_lagging(index) {
                self.tell(index, &Event::Lag { ms: 0 });
            }
            return;
        }
        if was_told || session.replay.as_deref().is_some_and(Replay::has_topics) {
            return;
        }
        let lag = self.lag_of(index);
        if lag >= self.settings.limits.lag_told_ms {
            self.sessions.at_mut(index).is_told_lagging = true;
            if !self.is_another_told_lagging(index) {
                self.tell(index, &Event::Lag { ms: lag.as_millis() as u64 });
            }
        }
    }

    /// Whether another reader of the session was told that it lags.
    fn is_another_told_lagging(&self, index: SessionIndex) -> bool {
        let mut others = self.all_readers(index).into_iter().filter(|reader| *reader != index);
        others.any(|reader| self.sessions.at(reader).is_told_lagging)
    }

    /// Takes topics from sessions that lag too far behind.
    pub(crate) fn take_topics_away(&mut self) {
        if self.flush.taken_away.is_empty() {
            return;
        }
        let mut taken = std::mem::take(&mut self.flush.taken_away);
        taken.sort_unstable();
        for topics in taken.chunk_by(|(one, _), (other, _)| one == other) {
            let session = topics[0].0;
            self.take_away(session, topics.iter().map(|(_, topic)| *topic));
            let Some(known) = self.sessions.get_mut(session) else { continue };
            if let Some(replay) = &mut known.replay {
                replay.is_losing_topics = false;
            }
            if !known.is_blocked {
                self.flush.queue(session, known);
            }
        }
    }

    /// Takes topics from a session that lags too far behind: it reads the selectors no more under which
    /// it read them, and is told so.
    fn take_away(&mut self, index: SessionIndex, topics: impl Iterator<Item = TopicIndex>) {
        let Some(session) = self.sessions.get(index) else { return };
        let audiences = session.memberships.iter().map(|membership| membership.audience);
        let is_by_id = audiences.clone().next().is_some_and(|audience| self.is_by_id(audience));
        let selectors: Vec<&Selector> = audiences
            .flat_map(|audience| self.audiences.at(audience).key.selectors.iter())
            .collect();
        let mut tree = SelectorTree::default();
        for (at, selector) in selectors.iter().enumerate() {
            tree.insert(selector, at);
        }
        self.note_work(selectors.len());
        let mut taken = BTreeSet::new();
        for topic in topics.filter_map(|topic| self.topics.get(topic)) {
            tree.visit_matches(topic.name.as_str(), &mut |at| {
                taken.insert(at);
            });
        }
        let selectors: Vec<Selector> = taken.into_iter().map(|at| selectors[at].clone()).collect();
        if selectors.is_empty() {
            return;
        }
        self.counters.lagged_unsubscribes += 1;
        if is_by_id {
            return self.end_lagging(index, &selectors);
        }
        if self.end_in(index, &selectors, None).is_ok() {
            let (id, subscription, has_lagged) = (None, None, true);
            self.tell(index, &Event::Unsubscribed { id, subscription, selectors, has_lagged });
        }
    }
}
