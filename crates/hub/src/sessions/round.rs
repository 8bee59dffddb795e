//! Rounds of a session that may be sent less than there is: in each it is told once of everything that changed, those that
//! have waited longest first.
//!
//! Going through the recent deliveries, leaving out what a newer one replaces, the same things would be told again and
//! again: of all others what is to be told is replaced before their turn comes. So what is to be told is settled when a
//! round begins, and what comes meanwhile is the next round's. Within a topic the order stays that of the publications. Topics
//! that are about one thing each have their turns without, see `take_turns`.

use model::{Conflation, HashSet};
use smallvec::SmallVec;

use crate::hub::Hub;
use crate::sending::encoder::Encoder;
use crate::sessions::session::Session;
use crate::sessions::steps::Lag;
use crate::sessions::throttle::{Allowance, Round, reaching};
use crate::tables::index::{SessionIndex, TopicIndex};
use crate::topics::conflation_keys::EntityIndex;
use crate::topics::delivery::What;

/// Deliveries that a round looks at once, when it begins. Who is further behind goes on without rounds.
const LOOKED_AT_MAX: u64 = 16_384;
/// The same where a filter decides about each.
const FILTERED_MAX: u64 = 1_024;
/// Deliveries that are told in a round, of the oldest of those that wait: 8 kB.
const TOLD_MAX: usize = 1_024;

impl<E: Encoder> Hub<E> {
    /// The round that a session is in with its subscriptions of one priority, which stand at `lags`, if it is.
    pub(crate) fn round_of(&self, session: &Session, lags: &[Lag]) -> Option<&Round> {
        let (priority, first) = (lags.first()?.priority, lags.iter().map(|lag| lag.cursor).min()?);
        let rounds = &self.sessions.throttle(session)?.rounds;
        let round = rounds.iter().find(|round| round.priority == priority)?;
        (first < round.through && round.is_of(lags, self.topics.readers_changed)).then_some(round)
    }

    /// Begins the rounds of a session that may not be sent at once all that it lacks, where it is in none.
    pub(crate) fn begin_rounds(&mut self, index: SessionIndex, allowance: Allowance) {
        let session = self.sessions.at(index);
        if !session.is_throttled {
            return;
        }
        let mut lags = self.lags(session);
        lags.sort_by_key(|lag| std::cmp::Reverse(lag.priority));
        let mut begun: SmallVec<[(i8, Option<Round>); 1]> = SmallVec::new();
        let mut replaced = 0;
        for lags in lags.chunk_by(|one, other| one.priority == other.priority) {
            if self.round_of(session, lags).is_none() {
                let round = self.new_round(session, lags, allowance, &mut replaced);
                begun.push((lags[0].priority, round));
            }
        }
        self.counters.conflated += replaced;
        let Some(throttle) = self.sessions.throttle_mut(index) else { return };
        for (priority, round) in begun {
            throttle.rounds.retain(|known| known.priority != priority);
            throttle.rounds.extend(round);
        }
    }

    /// What a session is to be told next; `None` if all of it may be told at once, or it is too far behind.
    fn new_round(
        &self,
        session: &Session,
        lags: &[Lag],
        allowance: Allowance,
        replaced: &mut u64,
    ) -> Option<Round> {
        let first = lags.iter().map(|lag| lag.cursor).min()?;
        let bound = lags.iter().map(|lag| lag.bound).filter(|bound| *bound > first).min()?;
        let has_filter = lags.iter().any(|lag| self.has_filter(lag.audience));
        let through = if has_filter { bound.min(first + FILTERED_MAX) } else { bound };
        if through.saturating_sub(first) > LOOKED_AT_MAX || !self.deliveries.reaches_back_to(first)
        {
            return None;
        }
        let (mut numbers, mut bytes, mut count) = (Vec::new(), 0, 0);
        let mut newer: HashSet<(TopicIndex, EntityIndex)> = HashSet::default();
        for number in (first + 1..=through).rev() {
            self.note_work(1);
            let Some(delivery) = self.deliveries.get(number) else { continue };
            let Some(topic) = self.topics.get(delivery.topic) else { continue };
            let Some(lag) = self.lag_about(topic, lags, number) else { continue };
            if let What::Publication(publication) = &delivery.what {
                if has_filter && !self.accepts(lag.audience, delivery.topic, publication) {
                    continue;
                }
                let mode = self.mode_for(session, lag.audience, delivery.topic);
                let conflates = matches!(mode, Conflation::Lagging | Conflation::Always)
                    && self.is_about_known(delivery.topic, delivery.entity);
                if conflates && !newer.insert((delivery.topic, delivery.entity)) {
                    count += 1;
                    continue;
                }
                bytes += publication.kept_bytes();
            }
            numbers.push(number);
        }
        if count == 0 || numbers.len() <= allowance.messages && bytes <= allowance.bytes {
            return None;
        }
        numbers.reverse();
        numbers.truncate(TOLD_MAX);
        let through = if numbers.len() < TOLD_MAX { through } else { *numbers.last()? };
        *replaced += count;
        let audiences = reaching(lags, through).collect();
        let (priority, readers_changed) = (lags[0].priority, self.topics.readers_changed);
        Some(Round { priority, audiences, readers_changed, first, through, numbers })
    }
}
