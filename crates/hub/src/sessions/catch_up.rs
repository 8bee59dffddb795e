//! Reading on after falling behind: topics to be read afresh first, then recent deliveries in order.
//!
//! Nothing is changed while the bytes are gathered. Marks tell what each message means for the
//! session; `settle_catch_up` applies those whose message was begun to be sent.

use std::borrow::Cow;
use std::time::Duration;

use model::HashMap;
use model::planted::{Fault, is_planted};
use model::{
    Conflation, Event, Gap, GapReason, Publication, Sequence, Stamps, SubscribedTopic,
    SubscriptionId,
};
use smallvec::SmallVec;

use crate::hub::Hub;
use crate::sending::batch::{Builder, Mark, Marked, begun_message};
use crate::sending::encoder::{Encoder, EncodingIndex, Form, Progress, Record};
use crate::sending::transfer::Transfer;
use crate::sessions::replay::Replay;
use crate::sessions::replay_queue::{Announce, ReplayTopic};
use crate::sessions::session::{LargeRest, Session};
use crate::sessions::steps::{Budget, CatchUpStep, Lag, Told, WALK_MAX};
use crate::sessions::throttle::Allowance;
use crate::tables::index::{AudienceIndex, SessionIndex, TopicIndex};
use crate::topics::conflation_keys::EntityIndex;
use crate::topics::delivery::What;
use crate::topics::topic::{EpochIndex, Topic, TopicTable};

/// The same where a filter decides about each: that takes longer.
const FILTERED_WALK_MAX: u64 = 256;

impl<E: Encoder> Hub<E> {
    /// Gathers what a session that is behind has to get next, with marks.
    pub(crate) fn catch_up(&mut self, index: SessionIndex, allowance: Allowance) {
        if self.sessions.at(index).is_in_step() {
            return;
        }
        self.rewind_if_lapped(index);
        if self.sessions.at(index).must_wait() {
            return;
        }
        self.begin_anew_in_ended_epochs(index);
        self.take_turns(index, allowance);
        self.begin_rounds(index, allowance);
        let (mut out, mut marks) = self.flush.take_buffers();
        let session = self.sessions.at(index);
        let mut builder = Builder::new(
            &self.encoder,
            session.encoding,
            self.settings.limits.batch_bytes_max,
            &mut out,
            &mut marks,
        );
        let budget = Budget::new(allowance, builder.out.len());
        let told = match &session.replay {
            Some(replay) => self.replay(index, session, replay, budget, &mut builder),
            None => Some(Told::default()),
        };
        let reads_no_further =
            |replay: &Replay| !replay.rewinding.is_empty() || replay.is_losing_topics;
        if let Some(told) = told
            && !session.replay.as_deref().is_some_and(reads_no_further)
        {
            let told = Told { reader: Some(index), ..told };
            self.read_deliveries(session, budget, &mut builder, &told);
        }
        builder.finish();
        self.flush.put_buffers(out, marks);
    }

    /// Tells a publication by itself, or the first piece of it if it is large.
    pub(crate) fn tell_whole(
        &self,
        told_in: (EncodingIndex, Stamps),
        number: u32,
        topic: &Topic,
        publication: &Publication,
        step: CatchUpStep,
        builder: &mut Builder<'_, E, CatchUpStep>,
    ) {
        let (encoding, stamps) = told_in;
        match self.transfer_of(encoding, number, topic, publication, stamps) {
            Some(transfer) => {
                let piece = transfer.next(self.settings.limits.fragment_bytes);
                builder.record(transfer.record(piece), step);
            }
            None => builder.record(self.whole(number, topic, publication, stamps), step),
        }
    }

    /// A publication told by itself.
    fn whole<'a>(
        &'a self,
        number: u32,
        topic: &'a Topic,
        publication: &'a Publication,
        stamps: Stamps,
    ) -> Record<'a> {
        Record::Publication {
            topic: &topic.name,
            number,
            publication,
            form: Form::Full,
            compress: self.policy(topic.policy).compress,
            stamps,
        }
    }

    /// The stamps of publications for whoever reads as this audience does.
    pub(crate) fn stamps_of(&self, reader: Option<AudienceIndex>) -> Stamps {
        reader.map_or_else(Stamps::default, |reader| self.options_of(reader).stamps)
    }

    /// Reads the recent deliveries that the session lacks: those of the highest priority first, and of
    /// each priority in the order in which they happened.
    fn read_deliveries(
        &self,
        session: &Session,
        budget: Budget,
        builder: &mut Builder<'_, E, CatchUpStep>,
        told: &Told,
    ) {
        let mut lags = self.lags(session);
        lags.sort_by_key(|lag| std::cmp::Reverse(lag.priority));
        for lags in lags.chunk_by(|one, other| one.priority == other.priority) {
            if !self.read_priority(session, lags, budget, builder, told) {
                return;
            }
        }
    }

    /// The same, of one priority; answers whether it came to the end.
    fn read_priority(
        &self,
        session: &Session,
        lags: &[Lag],
        budget: Budget,
        builder: &mut Builder<'_, E, CatchUpStep>,
        told: &Told,
    ) -> bool {
        let Some(Lag { priority, .. }) = lags.first().copied() else { return true };
        let Some(first) = lags.iter().map(|lag| lag.cursor).min() else { return true };
        let bound = lags.iter().map(|lag| lag.bound).max().unwrap_or(first);
        let walk_max = match lags.iter().any(|lag| self.has_filter(lag.audience)) {
            true => FILTERED_WALK_MAX,
            false => WALK_MAX,
        };
        let round = self.round_of(session, lags);
        let numbers = match round {
            Some(round) => Some(Cow::Borrowed(round.after(first))),
            None => self.numbers_from_topics(lags, first, bound, walk_max as usize).map(Cow::Owned),
        };
        let last = match (&numbers, round) {
            (_, Some(round)) => round.through,
            (Some(numbers), None) if numbers.len() as u64 == walk_max => {
                numbers.last().map_or(bound, |it| *it)
            }
            (Some(_), None) => bound,
            (None, None) => bound.min(first + walk_max),
        };
        let walk = || -> Box<dyn Iterator<Item = u64> + '_> {
            match &numbers {
                Some(numbers) => Box::new(numbers.iter().copied()),
                None => Box::new(first + 1..=last),
            }
        };
        let is_round = round.is_some();
        let accepted = match is_round {
            true => HashMap::default(),
            false => self.newest_accepted(lags, walk()),
        };
        let told = &Told { accepted, is_round, ..told.clone() };
        for number in walk() {
            self.note_work(1);
            if budget.is_used_up(builder)
                || !self.read_delivery(session, lags, number, builder, told)
            {
                return false;
            }
        }
        builder.silent(CatchUpStep::Delivery { number: last, priority });
        last == bound
    }

    /// Reads one delivery; answers whether the next may be read too.
    fn read_delivery(
        &self,
        session: &Session,
        lags: &[Lag],
        number: u64,
        builder: &mut Builder<'_, E, CatchUpStep>,
        told: &Told,
    ) -> bool {
        let Some(delivery) = self.deliveries.get(number) else { return true };
        let Some(topic) = self.topics.get(delivery.topic) else { return true };
        let Some(lag) = self.lag_about(topic, lags, number) else { return true };
        let through = delivery.what.through();
        let is_known = told.replayed.contains(&delivery.topic)
            || session.replay.as_ref().is_some_and(|replay| replay.has(delivery.topic, through));
        let is_known = match &delivery.what {
            What::Publication(_) | What::Lost(_) => is_known,
            // Told before the first publication of it, where that was read afresh.
            What::Epoch { at } => {
                told.replayed.contains(&delivery.topic) && topic.head > *at
                    || session.replay.as_ref().is_some_and(|it| it.has(delivery.topic, at.next()))
            }
            // Told with the first publication, where that was read afresh.
            What::Announcement { start } => is_known && topic.head > *start,
        };
        if is_known {
            return true;
        }
        let priority = lag.priority;
        let step = CatchUpStep::Delivery { number, priority };
        builder.progress = self.progress_in_order(lag.audience);
        match &delivery.what {
            What::Publication(publication)
                if !self.accepts(lag.audience, delivery.topic, publication) =>
            {
                builder.filtered(step);
            }
            What::Publication(publication) => {
                let mode = self.mode_for(session, lag.audience, delivery.topic);
                let about = (delivery.topic, delivery.entity);
                let is_replaced = match told.accepted.get(&about) {
                    Some(newest) => *newest > number,
                    None => !told.is_round && self.is_replaced(about.0, about.1, number),
                };
                let age =
                    Duration::from_millis(self.now.unix_ms.saturating_sub(publication.unix_ms()));
                match mode {
                    Conflation::Unsubscribe if age >= self.settings.limits.lag_unsubscribe_ms => {
                        let (delivery, topic) = (number, delivery.topic);
                        builder.silent(CatchUpStep::TakeAway { delivery, priority, topic });
                        return false;
                    }
                    Conflation::Lagging | Conflation::Always if is_replaced => {
                        builder.replaced(step);
                    }
                    _ => {
                        let number = self.number_in(lag.audience, about.0, topic);
                        let told_in = (session.encoding, self.stamps_of(Some(lag.audience)));
                        self.tell_whole(told_in, number, topic, publication, step, builder);
                    }
                }
            }
            What::Announcement { .. } if !self.selects_by_pattern(lag.audience, topic) => {}
            What::Lost(lost) if self.is_on_disk(topic) => {
                let (delivery, topic, after) = (number, delivery.topic, lost.after);
                builder.silent(CatchUpStep::Rewind { delivery, priority, topic, after });
                return false;
            }
            what => {
                let number = self.number_in(lag.audience, delivery.topic, topic);
                let is_named = matches!(what, What::Announcement { .. });
                let reader = told.reader.filter(|_| is_named);
                let served = |it| self.served_by(it, lag.audience, &topic.name, &[]);
                let subscriptions = reader.map(served).unwrap_or_default();
                let described = Described { number, subscriptions };
                write_event(&self.topics, delivery.topic, what, described, |record| {
                    builder.record(record, step);
                });
            }
        }
        true
    }

    /// The numbers of the first deliveries, at most so many, that concern a session with few topics, asked of the
    /// topics themselves, or `None` where walking all recent deliveries is better or necessary.
    fn numbers_from_topics(
        &self,
        lags: &[Lag],
        first: u64,
        last: u64,
        count_max: usize,
    ) -> Option<Vec<u64>> {
        const SHORT_WALK: u64 = 256;
        const FEW_TOPICS: usize = 16;
        let is_renewed = lags.iter().any(|lag| self.has_renewed_after(lag.cursor));
        if last.saturating_sub(first) < SHORT_WALK || is_renewed {
            return None;
        }
        let mut numbers = Vec::new();
        for lag in lags {
            let selectors = &self.audiences.at(lag.audience).key.selectors;
            if selectors.len() > FEW_TOPICS {
                return None;
            }
            for selector in selectors {
                let topic = self.topics.at(self.topics.find(selector.as_topic()?)?);
                if topic.newest_delivery <= lag.cursor {
                    continue;
                }
                let history = topic.history.as_ref()?;
                if !history.reaches_back_to(lag.cursor) {
                    return None;
                }
                let lacking = history.deliveries_after(lag.cursor).take_while(|n| *n <= lag.bound);
                // What was taken over from a topic's home has the number of some delivery before.
                let mut before = lag.cursor;
                let is_new = |number: &u64| {
                    std::mem::replace(&mut before, *number) != *number
                        || is_planted(Fault::DeliveryComesTwice)
                };
                numbers.extend(lacking.filter(is_new).take(count_max));
            }
        }
        numbers.sort_unstable();
        if !is_planted(Fault::DeliveryComesTwice) {
            numbers.dedup();
        }
        self.note_work(numbers.len());
        numbers.truncate(count_max);
        Some(numbers)
    }

    pub(crate) fn lags(&self, session: &Session) -> Vec<Lag> {
        session
            .memberships
            .iter()
            .filter_map(|membership| {
                let (audience, cursor) = (membership.audience, membership.cursor()?);
                let (priority, bound) =
                    (self.options_of(audience).priority, self.joinable_at(audience));
                Some(Lag { audience, priority, cursor, bound })
            })
            .collect()
    }

    fn joinable_at(&self, audience: AudienceIndex) -> u64 {
        let (work, newest) = (self.audiences.at(audience).work, self.deliveries.newest());
        work.map_or(newest, |work| self.flush.work(work).joinable_at(newest))
    }

    fn progress_in_order(&self, audience: AudienceIndex) -> Progress {
        self.options.at(self.audiences.at(audience).key.options).progress_in_order()
    }

    /// Which of a session's memberships, in order of audience, lacks a delivery of `topic`: a session sees each
    /// topic once.
    pub(crate) fn lag_about<'a>(
        &self,
        topic: &Topic,
        lags: &'a [Lag],
        number: u64,
    ) -> Option<&'a Lag> {
        let lag = if topic.readers.len() < lags.len() {
            self.note_work(topic.readers.len());
            let find = |reader| lags.binary_search_by_key(reader, |lag| lag.audience).ok();
            topic.readers.iter().find_map(find).map(|at| &lags[at])
        } else {
            self.note_work(lags.len());
            lags.iter().find(|lag| topic.is_read_by(lag.audience))
        };
        lag.filter(|lag| lag.cursor < number && number <= lag.bound)
    }

    /// What a session may skip of a topic. Being throttled implies conflation, unless the topic's policy
    /// says that nothing may be skipped.
    pub(crate) fn mode_for(
        &self,
        session: &Session,
        audience: AudienceIndex,
        topic: TopicIndex,
    ) -> Conflation {
        let mode = self.conflation_of(audience, topic);
        let is_free = self.policy(self.topics.at(topic).policy).conflation.is_none();
        let skips = session.is_throttled || is_planted(Fault::ConflatesUnasked);
        match skips && is_free {
            true => mode.max(Conflation::Lagging),
            false => mode,
        }
    }

    /// Of subscriptions with filters, which delivery is the newest accepted one about each thing: what the
    /// filter does not accept replaces nothing.
    fn newest_accepted(
        &self,
        lags: &[Lag],
        walk: impl Iterator<Item = u64>,
    ) -> HashMap<(TopicIndex, EntityIndex), u64> {
        let mut newest = HashMap::default();
        if !lags.iter().any(|lag| self.has_filter(lag.audience)) {
            return newest;
        }
        for number in walk {
            let Some(delivery) = self.deliveries.get(number) else { continue };
            let (What::Publication(publication), Some(topic)) =
                (&delivery.what, self.topics.get(delivery.topic))
            else {
                continue;
            };
            let is_accepted = self.lag_about(topic, lags, number).is_some_and(|lag| {
                self.has_filter(lag.audience)
                    && self.accepts(lag.audience, delivery.topic, publication)
            });
            if is_accepted && self.is_about_known(delivery.topic, delivery.entity) {
                newest.insert((delivery.topic, delivery.entity), number);
            }
        }
        newest
    }

    pub(crate) fn has_filter(&self, audience: AudienceIndex) -> bool {
        self.options.at(self.audiences.at(audience).key.options).filter.is_some()
    }

    /// Applies the marks of what was sent, and keeps the rest of a message that was begun.
    pub(crate) fn settle_catch_up(&mut self, index: SessionIndex, sent: usize) {
        let (out, marks) = self.flush.take_buffers();
        let newest = self.deliveries.newest();
        let lags = self.lags(self.sessions.at(index));
        let mut taken_away = None;
        let begun = self.transfers_begun(index, &marks, sent);
        let rewound = marks.iter().find_map(|mark| match mark.step {
            CatchUpStep::Rewind { delivery, topic, .. } => Some((delivery, topic)),
            _ => None,
        });
        let epoch_known =
            rewound.map(|(delivery, topic)| self.epoch_known_at(self.topics.at(topic), delivery));
        // How far it came with each priority.
        let mut reached: SmallVec<[(i8, u64); 2]> = SmallVec::new();
        let session = self.sessions.at_mut(index);
        for mark in marks.iter().filter(|mark| mark.end <= sent || mark.start < sent) {
            mark.what.count(&mut self.counters);
            match mark.step {
                CatchUpStep::Renewed { entry } => {
                    let replay = session.replay.as_mut().expect("its marks are of its replay");
                    let wanted = replay.todo.entry_mut(entry);
                    wanted.epoch = self.topics.at(wanted.topic).epoch;
                }
                CatchUpStep::Announced { entry } => {
                    let replay = session.replay.as_mut().expect("its marks are of its replay");
                    replay.todo.entry_mut(entry).announce = Announce::No;
                }
                CatchUpStep::Replay { entry, after, is_finished } => {
                    let replay = session.replay.as_mut().expect("its marks are of its replay");
                    replay.advance(entry, after, is_finished);
                    replay.done_at = newest;
                }
                CatchUpStep::PassBy { entry } => {
                    let replay = session.replay.as_mut().expect("its marks are of its replay");
                    replay.pass_by(entry);
                }
                CatchUpStep::Delivery { number, priority }
                | CatchUpStep::TakeAway { delivery: number, priority, .. }
                | CatchUpStep::Rewind { delivery: number, priority, .. } => {
                    if let CatchUpStep::TakeAway { topic, .. } = mark.step {
                        taken_away = Some(topic);
                    }
                    if let CatchUpStep::Rewind { topic, after, .. } = mark.step {
                        let replay = session.replay.get_or_insert_default();
                        let after = replay.done.get(&topic).map_or(after, |done| after.max(*done));
                        let epoch = epoch_known.unwrap_or(EpochIndex::NONE);
                        replay.add_one(ReplayTopic::going_on(topic, after, epoch));
                    }
                    if let Some(replay) = &mut session.replay {
                        replay.has_skipped_ahead = false;
                    }
                    // What is to be taken away is never passed: the session may be served again before it is taken.
                    let is_told = !matches!(mark.step, CatchUpStep::TakeAway { .. });
                    let number = if is_told { number } else { number - 1 };
                    match reached.iter_mut().find(|(known, _)| *known == priority) {
                        Some((_, newest)) => *newest = number,
                        None => reached.push((priority, number)),
                    }
                }
            }
        }
        for lag in &lags {
            let number = reached.iter().find(|(priority, _)| *priority == lag.priority);
            let at = session.position_of(lag.audience);
            if let (Some((_, number)), Some(at)) = (number, at) {
                session.memberships[at].fall_behind(lag.cursor.max((*number).min(lag.bound)));
            }
        }
        self.work.set(self.work.get() + (marks.len() + lags.len()) as u64);
        let copied_bytes_max = self.settings.limits.batch_bytes_max;
        if let Some((begun, is_large)) = begun_message(&marks, sent, copied_bytes_max) {
            let rest = is_large.then(|| self.large_rest_of_step(index, begun.step)).flatten();
            let outgoing = self.outgoing(index);
            match rest {
                Some(rest) => {
                    let sent_bytes = sent - begun.start;
                    outgoing.large = Some(Box::new(LargeRest { sent_bytes, ..rest }));
                }
                None => outgoing.bytes.extend_from_slice(&out[sent..begun.end]),
            }
        }
        if let Some(replay) = &mut self.sessions.at_mut(index).replay {
            replay.drop_finished();
        }
        self.flush.put_buffers(out, marks);
        begun.iter().for_each(|transfer| self.begin_transfer(index, transfer));
        self.flush.taken_away.extend(taken_away.map(|topic| (index, topic)));
    }

    /// The large publications of which the first piece was begun to be sent.
    fn transfers_begun(
        &self,
        index: SessionIndex,
        marks: &[Mark<CatchUpStep>],
        sent: usize,
    ) -> Vec<Transfer> {
        let told = marks.iter().filter(|mark| mark.what == Marked::FirstPiece && mark.start < sent);
        let rests = told.filter_map(|mark| self.large_rest_of_step(index, mark.step));
        rests
            .map(|LargeRest { topic, number, publication, stamps, .. }| {
                let compress = self.policy_for(&topic).compress;
                Transfer { topic, number, publication, told_bytes: 0, compress, stamps }
            })
            .collect()
    }

    fn large_rest_of_step(&self, index: SessionIndex, step: CatchUpStep) -> Option<LargeRest> {
        match step {
            CatchUpStep::Delivery { number, .. } => {
                let topic = self.topics.at(self.deliveries.get(number)?.topic);
                let reader = self.sessions.at(index).audience_reading(topic)?;
                let rest = self.large_rest(reader, number, Form::Full, 0)?;
                let progress = self.progress_in_order(reader);
                Some(LargeRest { progress, stamps: self.stamps_of(Some(reader)), ..rest })
            }
            CatchUpStep::Announced { .. }
            | CatchUpStep::Renewed { .. }
            | CatchUpStep::PassBy { .. }
            | CatchUpStep::Rewind { .. }
            | CatchUpStep::TakeAway { .. } => None,
            CatchUpStep::Replay { entry, after, .. } => {
                let session = self.sessions.at(index);
                let replay = session.replay.as_ref()?;
                let index = replay.todo.get(entry)?.topic;
                let topic = self.topics.get(index)?;
                let fetched = replay.page.as_ref().filter(|page| page.topic == index);
                let fetched = fetched.and_then(|page| page.publication(after));
                let kept = || topic.history.as_ref()?.after(after.back(1)).next();
                let kept = || kept().filter(|kept| kept.sequence() == after);
                let recent = || self.recent_at(index, after);
                let publication = fetched.or_else(kept).or_else(recent)?;
                let reader = session.audience_reading(topic);
                let in_order = replay.in_order.as_deref();
                Some(LargeRest {
                    progress: self.progress_afresh(reader, topic, in_order),
                    stamps: self.stamps_of(reader),
                    topic: topic.name.clone(),
                    number: self.number_for(reader, index, topic),
                    publication: publication.clone(),
                    form: Form::Full,
                    delta: None,
                    sent_bytes: 0,
                })
            }
        }
    }

    /// Lets a session that has everything up to its audiences' batches step in with them.
    pub(crate) fn join_if_caught_up(&mut self, index: SessionIndex) {
        let is_reading = self.sessions.at(index).replay.as_deref().is_some_and(Replay::is_reading);
        if is_reading || self.park_if_ahead(index) {
            return;
        }
        let replay = self.sessions.at(index).replay.as_deref();
        let replayed_at = replay.map_or(0, |replay| replay.done_at);
        for at in 0..self.sessions.at(index).memberships.len() {
            let membership = self.sessions.at(index).memberships[at];
            let bound = self.joinable_at(membership.audience);
            if membership.cursor() != Some(bound) || replayed_at > bound {
                continue;
            }
            let members = &mut self.audiences.at_mut(membership.audience).members;
            members.push(index.member());
            let slot = members.len() - 1;
            self.sessions.at_mut(index).memberships[at].step_in(slot);
            self.audiences.behind -= 1;
        }
        self.tell_complete(index);
        let session = self.sessions.at_mut(index);
        let is_over = |replay: &Replay| replay.completing.is_empty();
        if session.is_in_step() && session.replay.as_deref().is_some_and(is_over) {
            session.replay = None;
        }
    }

    pub(crate) fn gap(
        &self,
        number: u32,
        topic: &Topic,
        from: Option<Sequence>,
        to: Sequence,
        reason: GapReason,
    ) -> Gap {
        Gap {
            topic: topic.name.clone(),
            number,
            epoch: self.topics.epoch(topic.epoch).clone(),
            from,
            to,
            reason,
        }
    }
}

/// How a session is told of a topic.
pub(crate) struct Described {
    pub number: u32,
    pub subscriptions: Vec<SubscriptionId>,
}

/// Hands the record of a delivery that is no publication to `write`.
pub(crate) fn write_event(
    topics: &TopicTable,
    index: TopicIndex,
    what: &What,
    told: Described,
    write: impl FnOnce(Record<'_>),
) {
    let topic = topics.at(index);
    let epoch = topics.epoch(topic.epoch).clone();
    let Described { number, subscriptions } = told;
    let name = topic.name.clone();
    match what {
        What::Publication(_) => {}
        What::Announcement { start } => write(Record::Topic(&SubscribedTopic {
            topic: name,
            number,
            subscriptions,
            epoch,
            head: *start,
            start: *start,
            recovered: None,
        })),
        What::Epoch { at } => write(Record::Event(&Event::Gap(Gap {
            topic: name,
            number,
            epoch,
            from: None,
            to: *at,
            reason: GapReason::Epoch,
        }))),
        What::Lost(lost) => write(Record::Event(&Event::Gap(Gap {
            topic: name,
            number,
            epoch,
            from: None,
            to: lost.to,
            reason: GapReason::Lagged,
        }))),
    }
}
