//! Sending: batches to audiences, and what single sessions still have to get.
//!
//! An audience's batch is encoded once and handed to each member in step. The work is resumable: a
//! flush stops when its budget is used up and goes on in the next turn; an audience's next batch is
//! cut only when its last one has reached everybody. Sessions with answers of their own, and those
//! that are behind, are served one by one, and everything that one session gets in a flush goes
//! out in one send.

use std::time::Duration;

use model::planted::{Fault, is_planted};
use model::{Moment, Stamps};

use crate::audiences::job::{Batch, Telling, Verdict, Work, WorkIndex};
use crate::hub::Hub;
use crate::sending::batch::{Builder, Taken, begun_message};
use crate::sending::encoder::{Encoder, Form, Outlet, Progress, Record, Sent};
use crate::sending::schedule::Flush;
use crate::sending::timers::Timer;
use crate::sending::transfer::Transfer;
use crate::sessions::catch_up::{Described, write_event};
use crate::sessions::session::LargeRest;
use crate::tables::index::{AudienceIndex, Member, SessionIndex};
use crate::topics::delivery::{Delivery, What};

impl<E: Encoder> Hub<E> {
    /// Sends what there is to send, at most about `budget` sends, and tells whether some is left.
    ///
    /// Nothing is received meanwhile. The caller goes back to receiving in between, so that a long
    /// fan-out does not keep others waiting. What is held back until later is not counted as left:
    /// [`Hub::due_at`] tells when.
    pub fn flush(&mut self, outlet: &mut impl Outlet, budget: usize, now: Moment) -> bool {
        self.now = now;
        self.run_timers();
        self.run_operations();
        self.cut_batches();
        let mut left = budget;
        // Sessions that catch up may take half, and a small part of it while a batch is on its way to those
        // in step, so that these keep their latency.
        const PART_BESIDE_BATCHES: usize = 8;
        let part = if self.flush.active.is_empty() { 2 } else { PART_BESIDE_BATCHES };
        let share = budget.div_ceil(part).max(1);
        for _ in 0..self.flush.queue.len() {
            if budget - left >= share {
                break;
            }
            let Some(session) = self.flush.queue.pop_front() else { break };
            left = left.saturating_sub(self.serve(session, outlet));
        }
        while left > 0
            && let Some(work) = self.flush.pop_active()
        {
            const SLICE: usize = 64;
            left = left.saturating_sub(self.send_batch(work, left.min(SLICE), outlet).max(1));
        }
        self.take_topics_away();
        if self.flush.active.is_empty() {
            self.flush.made.clear();
            self.flush.made_deltas.clear();
        }
        // Serving a session may have begun some.
        let has_more = self.operations.len() > 0
            || !self.flush.active.is_empty()
            || !self.flush.queue.is_empty()
            || !self.flush.dirty.is_empty();
        if !has_more && self.audiences.behind == 0 && self.flush.works.len() == 0 {
            self.deliveries.forget();
        }
        has_more
    }

    /// When there will be something to send that is held back now.
    pub fn due_at(&self) -> Option<Duration> {
        self.timers.next()
    }

    fn run_timers(&mut self) {
        while let Some((due, timer)) = self.timers.pop_due(self.now.elapsed) {
            match timer {
                Timer::Work(work) => {
                    self.counters.batches_held += u64::from(self.flush.holds_back(work, due));
                    if let Some(audience) = self.flush.end_rest(work, due) {
                        self.audiences.at_mut(audience).work = None;
                    }
                }
                Timer::Topic(topic) => self.open_gate(topic, due, self.now),
                Timer::Age(topic) => self.drop_old(topic, self.now),
                Timer::Session(session) => self.end_rest(session, due),
            }
        }
    }

    /// Turns the pending deliveries of every idle work into a batch to be sent.
    fn cut_batches(&mut self) {
        let newest = self.deliveries.newest();
        while let Some(index) = self.flush.pop_dirty() {
            let work = self.flush.work_mut(index);
            let members = self.audiences.at(work.audience).members.len();
            work.clear_batch();
            std::mem::swap(&mut work.pending, &mut work.cut);
            work.through = newest;
            (work.visited, work.end) = (0, members);
            work.is_active = true;
            // Making an empty table is not for nothing either.
            let joiners = match work.joiners.is_empty() {
                true => None,
                false => Some(std::mem::take(&mut work.joiners)),
            };
            self.flush.active.push_back(index);
            for joiner in joiners.into_iter().flatten() {
                if let Some(session) = self.sessions.get_mut(joiner) {
                    self.flush.queue(joiner, session);
                }
            }
        }
    }

    /// Sends an audience's batch to at most `count_max` members; answers how many sends it took.
    fn send_batch(
        &mut self,
        index: WorkIndex,
        count_max: usize,
        outlet: &mut impl Outlet,
    ) -> usize {
        let work = self.flush.work(index);
        if work.visited < work.end && !work.is_prepared {
            if !self.is_encodable(index) {
                self.abandon_batch(index);
            }
            self.prepare_batch(index);
        }
        let mut count = 0;
        // Serving one by itself may count for several.
        while count < count_max {
            count += self.hand_on(index, count_max - count, outlet);
            if count >= count_max {
                break;
            }
            let work = self.flush.work_mut(index);
            if work.visited >= work.end {
                self.finish_batch(index);
                return count;
            }
            let member = self.audiences.at(work.audience).members[work.visited];
            let session = self.sessions.of_member(member);
            if session.is_served_alone() {
                count += self.serve(self.sessions.index_of(member), outlet);
                continue;
            }
            let telling = work.telling_for(&session.memberships[0]);
            let batch = work.batch(telling);
            if !batch.is_encoded {
                match self.is_encodable(index) || is_planted(Fault::LateTellingOfLess) {
                    true => self.encode_batch(index, telling),
                    false => self.abandon_member(member, index),
                }
                continue;
            }
            if batch.bytes.is_empty() {
                self.counters.add(batch.taken);
                work.visited += 1;
                continue;
            }
            count += 1;
            match outlet.send(session.link, &batch.bytes) {
                Sent::Taken(bytes) if bytes == batch.bytes.len() => {
                    let has_pieces = batch.taken.in_pieces > 0;
                    self.counters.add(batch.taken);
                    work.visited += 1;
                    if has_pieces {
                        let member = self.sessions.index_of(member);
                        self.begin_transfers(member, index, telling, u64::MAX);
                    }
                }
                Sent::Taken(bytes) => self.stall_in_batch(member, index, telling, bytes),
                Sent::Closed => self.stall_in_batch(member, index, telling, 0),
            }
        }
        self.flush.active.push_back(index);
        count
    }

    /// Lets a member have the other pieces of what a batch told the first piece of, up to a delivery.
    pub(crate) fn begin_transfers(
        &mut self,
        member: SessionIndex,
        index: WorkIndex,
        telling: Telling,
        through: u64,
    ) {
        let large = &self.flush.work(index).batch(telling).large;
        let begun: Vec<Transfer> = large
            .iter()
            .filter(|(delivery, _)| *delivery <= through)
            .map(|(_, transfer)| transfer.clone())
            .collect();
        begun.iter().for_each(|transfer| self.begin_transfer(member, transfer));
    }

    /// Hands a batch that is encoded to the next members, at most `count_max`, up to the first with whom there is more
    /// to do than that; answers how many sends it took.
    fn hand_on(&mut self, index: WorkIndex, count_max: usize, outlet: &mut impl Outlet) -> usize {
        let Self { flush, audiences, sessions, counters, .. } = self;
        let work = flush.work_mut(index);
        let Batch { bytes, taken, is_encoded, .. } = &work.whole;
        if !is_encoded || bytes.is_empty() || taken.in_pieces > 0 || work.deltas_since > 0 {
            return 0;
        }
        let lacking = work.visited..work.end.min(work.visited + count_max);
        let (mut whole, mut cut) = (0, None);
        for &member in &audiences.at(work.audience).members[lacking] {
            let session = sessions.of_member(member);
            if session.is_served_alone() {
                break;
            }
            match outlet.send(session.link, bytes) {
                Sent::Taken(count) if count == bytes.len() => whole += 1,
                Sent::Taken(count) => cut = Some((member, count)),
                Sent::Closed => cut = Some((member, 0)),
            }
            if cut.is_some() {
                break;
            }
        }
        counters.add_times(*taken, whole as u64);
        work.visited += whole;
        let Some((member, count)) = cut else { return whole };
        self.stall_in_batch(member, index, Telling::Whole, count);
        whole + 1
    }

    fn finish_batch(&mut self, index: WorkIndex) {
        let now = self.now.elapsed;
        self.note_finished(index);
        let work = self.flush.work_mut(index);
        (work.is_active, work.is_listed) = (false, false);
        work.since = work.through;
        let audience = work.audience;
        let interval = self.options_of(audience).interval;
        let work = self.flush.work_mut(index);
        if !interval.is_zero() {
            let due = now + interval;
            work.rests_until = Some(due);
            self.timers.set(due, Timer::Work(index));
        } else if work.pending.is_empty() {
            self.audiences.at_mut(audience).work = None;
            self.flush.close_work(index);
        } else {
            work.is_listed = true;
            self.flush.dirty.push(index);
        }
    }

    fn note_finished(&mut self, index: WorkIndex) {
        const NOTED_MAX: usize = 64;
        if self.flush.finished.len() == NOTED_MAX {
            return;
        }
        // A topic that is new is announced before its first publication.
        const LOOKED_AT: usize = 8;
        let mut first = self.flush.work(index).cut.iter().take(LOOKED_AT);
        let kept_at = first.find_map(|number| match self.deliveries.get(*number)?.what {
            What::Publication(ref publication) => Some(publication.unix_ms()),
            _ => None,
        });
        self.flush.finished.extend(kept_at);
    }

    /// When the oldest publication was kept of each batch that all its readers in step have been sent since this was last
    /// asked, in milliseconds since 1970: of a few of these batches.
    pub fn take_finished(&mut self) -> std::vec::Drain<'_, u64> {
        self.flush.finished.drain(..)
    }

    /// Whether a batch can be made for all members at once: everything in it is still among the
    /// recent deliveries, and nothing in it must be fetched from the store for each.
    pub(crate) fn is_encodable(&self, index: WorkIndex) -> bool {
        let work = self.flush.work(index);
        let is_by_id = self.is_by_id(work.audience);
        work.cut.iter().all(|number| match self.deliveries.get(*number) {
            None => false,
            Some(Delivery { topic, what: What::Lost(_), .. }) => {
                !self.topics.get(*topic).is_some_and(|topic| self.is_on_disk(topic))
            }
            // It says which subscriptions of a session it is for.
            Some(Delivery { what: What::Announcement { .. }, .. }) => !is_by_id,
            Some(_) => true,
        })
    }

    /// Takes the members that lack a batch which can no longer be made out of step: each reads on
    /// by itself, from the topics' histories.
    fn abandon_batch(&mut self, index: WorkIndex) {
        let Work { audience, visited, end, since, .. } = *self.flush.work(index);
        for slot in (visited..end).rev() {
            let member = self.audiences.at(audience).members[slot];
            self.let_read_on_from(member, audience, since);
        }
    }

    /// The same with one member, of a batch that can no longer be made in its telling.
    fn abandon_member(&mut self, member: Member, index: WorkIndex) {
        let Work { audience, since, .. } = *self.flush.work(index);
        self.let_read_on_from(member, audience, since);
    }

    fn let_read_on_from(&mut self, member: Member, audience: AudienceIndex, place: u64) {
        let member = self.sessions.index_of(member);
        self.step_out(member, audience, place);
        let session = self.sessions.at_mut(member);
        self.flush.queue(member, session);
    }

    /// Decides what becomes of each delivery of a batch, once for all members.
    pub(crate) fn prepare_batch(&mut self, index: WorkIndex) {
        let work = self.flush.works.get_mut(index.0).expect("an audience's work exists");
        if work.is_prepared {
            return;
        }
        work.is_prepared = true;
        let audience = work.audience;
        let known = self.options.at(self.audiences.at(audience).key.options);
        if known.is_plain() && !self.flush.conflates_always {
            return;
        }
        let cut = std::mem::take(&mut work.cut);
        let judged = self.judge(audience, &cut);
        let work = self.flush.work_mut(index);
        (work.cut, work.verdicts, work.deltas_since) = (cut, judged.verdicts, judged.deltas_since);
    }

    /// Makes the bytes of a batch in one telling, once for all members.
    pub(crate) fn encode_batch(&mut self, index: WorkIndex, telling: Telling) {
        self.prepare_batch(index);
        let Flush { works, made, .. } = &mut self.flush;
        let work = works.get_mut(index.0).expect("an audience's work exists");
        let batch = match telling {
            Telling::Whole => &mut work.whole,
            Telling::Deltas => &mut work.deltas,
        };
        if batch.is_encoded {
            return;
        }
        batch.is_encoded = true;
        let options = self.audiences.at(work.audience).key.options;
        let (encoding, stamps) = self.options.at(options).told_in();
        let fragment_bytes = self.settings.limits.fragment_bytes;
        let (has_fragments, mut large) = (self.encoder.fragments(encoding), Vec::new());
        let progress = self.options.at(options).progress_in_order();
        let mut builder = Builder::new(
            &self.encoder,
            encoding,
            self.settings.limits.batch_bytes_max,
            &mut batch.bytes,
            &mut batch.marks,
        );
        builder.progress = progress;
        for (at, &number) in work.cut.iter().enumerate() {
            let Some(delivery) = self.deliveries.get(number) else { continue };
            let topic = self.topics.at(delivery.topic);
            let (name, topic_number) =
                (&topic.name, self.options.number_of(options, delivery.topic, topic.number));
            let What::Publication(publication) = &delivery.what else {
                let told = Described { number: topic_number, subscriptions: Vec::new() };
                write_event(&self.topics, delivery.topic, &delivery.what, told, |record| {
                    builder.record(record, number);
                });
                continue;
            };
            let policy = self.settings.policy(topic.policy);
            let verdict = work.verdicts.get(at);
            // Where some are left out, the low bits of a sequence could be ambiguous.
            let is_next = verdict.is_none() && policy.interval.is_zero();
            match (verdict, telling) {
                (Some(Verdict::Replaced), _) => builder.replaced(number),
                (Some(Verdict::Filtered), _) => builder.filtered(number),
                (Some(Verdict::Delta(delta)), Telling::Deltas) => {
                    self.counters.records_encoded += 1;
                    let record = Record::Delta {
                        topic: name,
                        number: topic_number,
                        publication,
                        delta,
                        compress: policy.compress,
                        stamps,
                    };
                    builder.record(record, number);
                }
                _ if has_fragments && publication.payload().len() > fragment_bytes => {
                    self.counters.records_encoded += 1;
                    let transfer = Transfer {
                        topic: name.clone(),
                        number: topic_number,
                        publication: publication.clone(),
                        told_bytes: 0,
                        compress: policy.compress,
                        stamps,
                    };
                    builder.record(transfer.record(transfer.next(fragment_bytes)), number);
                    large.push((number, transfer));
                }
                _ => {
                    let form = if is_next { Form::Short } else { Form::Full };
                    let record = Record::Publication {
                        topic: name,
                        number: topic_number,
                        publication,
                        form,
                        compress: policy.compress,
                        stamps,
                    };
                    if topic.readers.len() > 1 {
                        let of = (number, topic_number, encoding, form, progress, stamps);
                        let bytes = made.find_or_make(of, |out| {
                            self.counters.records_encoded += 1;
                            self.encoder.record(encoding, record, progress, out);
                        });
                        builder.made(bytes, policy.compress, number);
                    } else {
                        self.counters.records_encoded += 1;
                        builder.record(record, number);
                    }
                }
            }
        }
        builder.finish();
        (batch.taken, batch.large) = (Taken::of(&batch.marks), large);
    }

    /// Takes a session whose connection is full out of step with the audience of `index`.
    fn stall_in_batch(
        &mut self,
        member: Member,
        index: WorkIndex,
        telling: Telling,
        sent_bytes: usize,
    ) {
        let member = self.sessions.index_of(member);
        let place = self.keep_rest_of_batch(member, index, telling, 0, sent_bytes);
        self.begin_transfers(member, index, telling, place);
        self.block(member);
        let session = self.sessions.at(member);
        let audience = session.memberships[0].audience;
        self.step_out(member, audience, place);
    }

    /// Keeps the end of the message of a batch that `sent_bytes` ends in, and answers the delivery
    /// up to which the session then has everything. The batch began at `skipped` in what was sent.
    pub(crate) fn keep_rest_of_batch(
        &mut self,
        member: SessionIndex,
        index: WorkIndex,
        telling: Telling,
        skipped: usize,
        sent_bytes: usize,
    ) -> u64 {
        let sent = sent_bytes.saturating_sub(skipped);
        let work = self.flush.work(index);
        let batch = work.batch(telling);
        let mut place = work.since;
        for mark in batch.marks.iter().filter(|mark| mark.start < sent || mark.end <= sent) {
            place = mark.step;
            mark.what.count(&mut self.counters);
        }
        let copied_bytes_max = self.settings.limits.batch_bytes_max;
        let Some((begun, is_large)) = begun_message(&batch.marks, sent, copied_bytes_max) else {
            return place;
        };
        let range = sent..begun.end;
        let rest = || {
            let rest =
                self.large_rest(work.audience, begun.step, Form::Full, sent - begun.start)?;
            let topic = self.topics.at(self.deliveries.get(begun.step)?.topic);
            let is_next =
                work.verdicts.is_empty() && self.settings.policy(topic.policy).interval.is_zero();
            let form = if is_next { Form::Short } else { Form::Full };
            let delta = (telling == Telling::Deltas).then(|| work.delta_of(begun.step)).flatten();
            let options = self.audiences.at(work.audience).key.options;
            let known = self.options.at(options);
            let (progress, (_, stamps)) = (known.progress_in_order(), known.told_in());
            Some(LargeRest { form, delta, progress, stamps, ..rest })
        };
        let large = is_large.then(rest).flatten();
        let bytes = batch.bytes.get(range).unwrap_or_default().to_vec();
        let outgoing = self.outgoing(member);
        match large {
            Some(rest) => outgoing.large = Some(Box::new(rest)),
            None => outgoing.bytes.splice(0..0, bytes).for_each(drop),
        }
        place
    }

    pub(crate) fn large_rest(
        &self,
        audience: AudienceIndex,
        delivery: u64,
        form: Form,
        sent_bytes: usize,
    ) -> Option<LargeRest> {
        let delivery = self.deliveries.get(delivery)?;
        let What::Publication(publication) = &delivery.what else { return None };
        let topic = self.topics.at(delivery.topic);
        Some(LargeRest {
            topic: topic.name.clone(),
            number: self.number_in(audience, delivery.topic, topic),
            publication: publication.clone(),
            form,
            progress: Progress::Unknown,
            stamps: Stamps::default(),
            delta: None,
            sent_bytes,
        })
    }

    /// The delivery up to which the member in `slot` has everything.
    pub(crate) fn place_in_step(&self, audience: AudienceIndex, slot: usize) -> u64 {
        let Some(work) = self.audiences.at(audience).work else {
            return self.deliveries.newest();
        };
        let work = self.flush.work(work);
        let lacks_batch = work.is_active && (work.visited..work.end).contains(&slot);
        if lacks_batch { work.since } else { work.joinable_at(self.deliveries.newest()) }
    }

    /// Removes a session from the members in step; it has everything up to `place`.
    pub(crate) fn step_out(&mut self, index: SessionIndex, audience: AudienceIndex, place: u64) {
        let session = self.sessions.at_mut(index);
        let at = session.position_of(audience).expect("a member knows its audience");
        let Some(slot) = session.memberships[at].slot() else { return };
        session.memberships[at].fall_behind(place);
        self.audiences.behind += 1;
        self.remove_member(audience, slot);
    }

    /// Removes the member in `slot`, keeping those who have the batch, those who lack it and those
    /// who joined since apart.
    fn remove_member(&mut self, audience: AudienceIndex, slot: usize) {
        let mut hole = slot;
        if let Some(work) = self.audiences.at(audience).work {
            let state = self.flush.work_mut(work);
            if state.is_active {
                let borders = [
                    (slot < state.visited).then_some(&mut state.visited),
                    (slot < state.end).then_some(&mut state.end),
                ];
                let mut moves = [None, None];
                for (border, step) in borders.into_iter().zip(&mut moves) {
                    if let Some(border) = border {
                        *border -= 1;
                        *step = Some(*border);
                    }
                }
                for last in moves.into_iter().flatten() {
                    self.swap_members(audience, hole, last);
                    hole = last;
                }
            }
        }
        let last = self.audiences.at(audience).members.len() - 1;
        self.swap_members(audience, hole, last);
        self.audiences.at_mut(audience).members.pop();
    }

    pub(crate) fn swap_members(&mut self, audience: AudienceIndex, one: usize, other: usize) {
        if one == other {
            return;
        }
        self.audiences.at_mut(audience).members.swap(one, other);
        for slot in [one, other] {
            let member = self.audiences.at(audience).members[slot];
            let session = self.sessions.of_member_mut(member);
            let at = session.position_of(audience).expect("a member knows its audience");
            if session.memberships[at].slot().is_some() {
                session.memberships[at].step_in(slot);
            }
        }
    }
}
