//! Sending: batches to audiences, and what single sessions still have to get.
//!
//! An audience's batch is encoded once and handed to each member in step. The work is resumable: a
//! flush stops when its budget is used up and goes on in the next turn; an audience's next batch is
//! cut only when its last one has reached everybody. Sessions with answers of their own, and those
//! that are behind, are served one by one, and everything that one session gets in a flush goes
//! out in one send.

use std::collections::{HashSet, VecDeque};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use model::Moment;
use smallvec::SmallVec;

use crate::batch::{Builder, MadeRecords, Mark, Taken, begun_message};
use crate::catch_up::{CatchUpStep, write_event};
use crate::delivery::{Delivery, What};
use crate::delta::{Delta, MadeDeltas};
use crate::encoder::{Encoder, Form, Outlet, Piece, Record, Sent};
use crate::hub::Hub;
use crate::index::{AudienceIndex, SessionIndex, Slots};
use crate::session::{LargeRest, Membership, Outgoing, Session};
use crate::throttle::Allowance;
use crate::timers::Timer;
use crate::transfer::{TRANSFERS_MAX, Transfer};
use crate::verdict::Verdict;

/// The place of a [`Work`], plus 1: four bytes also in an `Option`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WorkIndex(NonZeroU32);

impl WorkIndex {
    fn of(slot: u32) -> Self {
        Self(NonZeroU32::MIN.saturating_add(slot))
    }

    fn slot(self) -> u32 {
        self.0.get() - 1
    }
}

/// What an audience has to get: deliveries not yet cut into a batch, and the batch being sent.
#[derive(Debug)]
pub(crate) struct Work {
    audience: AudienceIndex,
    /// Deliveries for the next batch, oldest first.
    pub pending: Vec<u64>,
    /// Deliveries of the batch being sent.
    cut: Vec<u64>,
    /// What becomes of each of them; empty where all are told as they are.
    verdicts: Vec<Verdict>,
    is_prepared: bool,
    /// The batch with every publication whole.
    whole: Batch,
    /// The batch with deltas, for members who were in step before delivery `deltas_since`.
    deltas: Batch,
    /// 0 if there is no delta in it.
    deltas_since: u64,
    /// Members before `visited` have everything up to `through`, those from there to `end` have
    /// everything up to `since`, and those from `end` on joined with everything up to `through`.
    pub since: u64,
    pub through: u64,
    pub visited: usize,
    pub end: usize,
    pub is_active: bool,
    /// The next batch is cut then, not earlier: the audience has an interval.
    pub rests_until: Option<Duration>,
    /// Sessions that step in once the next batch is cut.
    pub joiners: HashSet<SessionIndex, RandomState>,
}

/// A batch as bytes, and what each member that takes all of it gets.
#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    marks: Vec<Mark<u64>>,
    taken: Taken,
    /// What is told in pieces, with the delivery of each.
    large: Vec<(u64, Transfer)>,
    is_encoded: bool,
}

/// Which of a work's batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Telling {
    Whole,
    Deltas,
}

impl Batch {
    fn clear(&mut self) {
        self.bytes.clear();
        self.marks.clear();
        self.large.clear();
        self.is_encoded = false;
    }
}

/// The state of sending on one shard.
#[derive(Debug, Default)]
pub(crate) struct Flush {
    works: Slots<Work>,
    spare: Vec<Work>,
    /// Works with pending deliveries and no batch being sent.
    dirty: Vec<WorkIndex>,
    /// Works whose batch is being sent.
    active: VecDeque<WorkIndex>,
    /// Sessions to be served one by one.
    queue: VecDeque<SessionIndex>,
    made: MadeRecords,
    pub made_deltas: MadeDeltas,
    scratch: Vec<u8>,
    parts: Vec<Part>,
    marks: Vec<Mark<CatchUpStep>>,
}

/// A piece of what one session gets in one send.
#[derive(Clone, Copy, Debug)]
struct Part {
    start: usize,
    end: usize,
    of: PartOf,
}

#[derive(Clone, Copy, Debug)]
enum PartOf {
    /// The rest of a large message.
    Large,
    /// Its own bytes.
    Answers,
    /// The next piece of a large publication.
    Piece(Piece),
    /// The batch that the audience of this membership has under way.
    Batch { membership: usize, work: WorkIndex, telling: Telling },
}

/// So many bytes, made for one session and sent, cost about as much time as a small send.
const BYTES_OF_A_SEND: usize = 8 << 10;

impl Flush {
    /// Lets a session be served by itself in the next flush.
    pub(crate) fn queue(&mut self, index: SessionIndex, session: &mut Session) {
        if !session.is_queued {
            session.is_queued = true;
            self.queue.push_back(index);
        }
    }

    pub(crate) fn work(&self, index: WorkIndex) -> &Work {
        self.works.get(index.slot()).expect("an audience's work exists")
    }

    pub(crate) fn work_mut(&mut self, index: WorkIndex) -> &mut Work {
        self.works.get_mut(index.slot()).expect("an audience's work exists")
    }

    /// Opens the work of an audience whose members have everything up to `since`.
    pub(crate) fn open_work(&mut self, audience: AudienceIndex, since: u64) -> WorkIndex {
        let mut work = self.spare.pop().unwrap_or_else(Work::empty);
        (work.audience, work.since, work.through) = (audience, since, since);
        let index = WorkIndex::of(self.works.insert(work));
        self.dirty.push(index);
        index
    }

    /// Lends out the buffers in which a session's bytes are gathered.
    pub(crate) fn take_buffers(&mut self) -> (Vec<u8>, Vec<Mark<CatchUpStep>>) {
        (std::mem::take(&mut self.scratch), std::mem::take(&mut self.marks))
    }

    fn take_parts(&mut self) -> (Vec<u8>, Vec<Part>) {
        (std::mem::take(&mut self.scratch), std::mem::take(&mut self.parts))
    }

    fn put_parts(&mut self, scratch: Vec<u8>, parts: Vec<Part>) {
        (self.scratch, self.parts) = (scratch, parts);
    }

    pub(crate) fn put_buffers(&mut self, scratch: Vec<u8>, marks: Vec<Mark<CatchUpStep>>) {
        (self.scratch, self.marks) = (scratch, marks);
    }

    /// Whether something is held back until `due`.
    pub(crate) fn holds_back(&self, index: WorkIndex, due: Duration) -> bool {
        let work = self.works.get(index.slot());
        work.is_some_and(|work| work.rests_until == Some(due) && !work.pending.is_empty())
    }

    /// Hears that an audience's interval is over; answers the audience if nothing came meanwhile.
    pub(crate) fn end_rest(&mut self, index: WorkIndex, due: Duration) -> Option<AudienceIndex> {
        let work = self.works.get_mut(index.slot())?;
        if work.rests_until != Some(due) {
            return None;
        }
        work.rests_until = None;
        let audience = work.audience;
        if !work.pending.is_empty() || !work.joiners.is_empty() {
            self.dirty.push(index);
            return None;
        }
        self.close_work(index);
        Some(audience)
    }

    fn close_work(&mut self, index: WorkIndex) {
        const SPARE_MAX: usize = 1024;
        const SPARE_BYTES_MAX: usize = 256 << 10;
        let Some(mut work) = self.works.remove(index.slot()) else { return };
        work.reset();
        if self.spare.len() < SPARE_MAX && work.whole.bytes.capacity() <= SPARE_BYTES_MAX {
            self.spare.push(work);
        }
    }

    /// Forgets the work of an audience that nobody is in any more.
    pub(crate) fn drop_work(&mut self, index: WorkIndex) {
        self.dirty.retain(|dirty| *dirty != index);
        self.active.retain(|active| *active != index);
        self.close_work(index);
    }
}

impl Work {
    fn empty() -> Self {
        Self {
            audience: AudienceIndex(0),
            pending: Vec::new(),
            cut: Vec::new(),
            verdicts: Vec::new(),
            is_prepared: false,
            whole: Batch::default(),
            deltas: Batch::default(),
            deltas_since: 0,
            since: 0,
            through: 0,
            visited: 0,
            end: 0,
            is_active: false,
            rests_until: None,
            joiners: HashSet::default(),
        }
    }

    fn reset(&mut self) {
        self.pending.clear();
        self.clear_batch();
        self.joiners.clear();
        (self.is_active, self.rests_until) = (false, None);
        (self.visited, self.end) = (0, 0);
    }

    fn clear_batch(&mut self) {
        self.cut.clear();
        self.verdicts.clear();
        self.whole.clear();
        self.deltas.clear();
        (self.is_prepared, self.deltas_since) = (false, 0);
    }

    fn batch(&self, telling: Telling) -> &Batch {
        match telling {
            Telling::Whole => &self.whole,
            Telling::Deltas => &self.deltas,
        }
    }

    /// How a member is told: with deltas if it has what they are made from.
    fn telling_for(&self, membership: &Membership) -> Telling {
        match membership.was_in_step_before(self.deltas_since) {
            true => Telling::Deltas,
            false => Telling::Whole,
        }
    }

    /// The delta by which a delivery of the batch is told, if it is.
    fn delta_of(&self, delivery: u64) -> Option<Arc<Delta>> {
        let at = self.cut.binary_search(&delivery).ok()?;
        match self.verdicts.get(at)? {
            Verdict::Delta(delta) => Some(Arc::clone(delta)),
            _ => None,
        }
    }

    /// Up to where a session must have read to join the members in step, when `newest` is the newest
    /// delivery.
    pub(crate) fn joinable_at(&self, newest: u64) -> u64 {
        match (self.is_active, self.pending.is_empty()) {
            (true, _) => self.through,
            (false, false) => self.since,
            // Nothing is held back yet: its members have everything.
            (false, true) => newest,
        }
    }
}

impl<E: Encoder> Hub<E> {
    /// Sends what there is to send, at most about `budget` sends, and tells whether some is left.
    ///
    /// Nothing is received meanwhile. The caller goes back to receiving in between, so that a long
    /// fan-out does not keep others waiting. What is held back until later is not counted as left:
    /// [`Hub::due_at`] tells when.
    pub fn flush(&mut self, outlet: &mut impl Outlet, budget: usize, now: Moment) -> bool {
        self.now = now;
        self.run_timers();
        self.cut_batches();
        let mut left = budget;
        // Sessions that catch up may take half, so that those in step keep their latency.
        let share = budget.div_ceil(2).max(1);
        for _ in 0..self.flush.queue.len() {
            if budget - left >= share {
                break;
            }
            let Some(session) = self.flush.queue.pop_front() else { break };
            left = left.saturating_sub(self.serve(session, outlet));
        }
        while left > 0
            && let Some(work) = self.flush.active.pop_front()
        {
            const SLICE: usize = 64;
            left = left.saturating_sub(self.send_batch(work, left.min(SLICE), outlet).max(1));
        }
        while let Some((session, topic)) = self.taken_away.pop() {
            self.take_away(session, topic);
        }
        if self.flush.active.is_empty() {
            self.flush.made.clear();
            self.flush.made_deltas.clear();
        }
        let has_more = !self.flush.active.is_empty()
            || !self.flush.queue.is_empty()
            || !self.flush.dirty.is_empty();
        if !has_more && self.behind == 0 && self.flush.works.len() == 0 {
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
                Timer::Session(session) => self.end_rest(session, due),
            }
        }
    }

    /// Turns the pending deliveries of every idle work into a batch to be sent.
    fn cut_batches(&mut self) {
        let newest = self.deliveries.newest();
        while let Some(index) = self.flush.dirty.pop() {
            let work = self.flush.work_mut(index);
            let members = self.audiences.at(work.audience).members.len();
            work.clear_batch();
            std::mem::swap(&mut work.pending, &mut work.cut);
            work.through = newest;
            (work.visited, work.end) = (0, members);
            work.is_active = true;
            let joiners = std::mem::take(&mut work.joiners);
            self.flush.active.push_back(index);
            for joiner in joiners {
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
        while count < count_max {
            let work = self.flush.work_mut(index);
            if work.visited >= work.end {
                self.finish_batch(index);
                return count;
            }
            let member = self.audiences.at(work.audience).members[work.visited];
            let session = self.sessions.at(member);
            if session.is_served_alone() {
                count += self.serve(member, outlet);
                continue;
            }
            let telling = work.telling_for(&session.memberships[0]);
            let batch = work.batch(telling);
            if !batch.is_encoded {
                self.encode_batch(index, telling);
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
    fn begin_transfers(
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

    fn finish_batch(&mut self, index: WorkIndex) {
        let now = self.now.elapsed;
        let work = self.flush.work_mut(index);
        work.is_active = false;
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
            self.flush.dirty.push(index);
        }
    }

    /// Whether a batch can be made for all members at once: everything in it is still among the
    /// recent deliveries, and nothing in it must be fetched from the store for each.
    fn is_encodable(&self, index: WorkIndex) -> bool {
        let mut cut = self.flush.work(index).cut.iter();
        cut.all(|number| match self.deliveries.get(*number) {
            None => false,
            Some(Delivery { topic, what: What::Gap { .. }, .. }) => {
                !self.topics.get(*topic).is_some_and(|topic| self.is_on_disk(topic))
            }
            Some(_) => true,
        })
    }

    /// Takes the members that lack a batch which can no longer be made out of step: each reads on
    /// by itself, from the topics' histories.
    fn abandon_batch(&mut self, index: WorkIndex) {
        let Work { audience, visited, end, since, .. } = *self.flush.work(index);
        for slot in (visited..end).rev() {
            let member = self.audiences.at(audience).members[slot];
            self.step_out(member, audience, since);
            let session = self.sessions.at_mut(member);
            self.flush.queue(member, session);
        }
    }

    /// Decides what becomes of each delivery of a batch, once for all members.
    fn prepare_batch(&mut self, index: WorkIndex) {
        let work = self.flush.works.get_mut(index.slot()).expect("an audience's work exists");
        if work.is_prepared {
            return;
        }
        work.is_prepared = true;
        let audience = work.audience;
        let known = self.options.at(self.audiences.at(audience).key.options);
        if known.is_plain() && !self.settings.conflates_always() {
            return;
        }
        let cut = std::mem::take(&mut work.cut);
        let judged = self.judge(audience, &cut);
        let work = self.flush.work_mut(index);
        (work.cut, work.verdicts, work.deltas_since) = (cut, judged.verdicts, judged.deltas_since);
    }

    /// Makes the bytes of a batch in one telling, once for all members.
    fn encode_batch(&mut self, index: WorkIndex, telling: Telling) {
        self.prepare_batch(index);
        let Flush { works, made, .. } = &mut self.flush;
        let work = works.get_mut(index.slot()).expect("an audience's work exists");
        let batch = match telling {
            Telling::Whole => &mut work.whole,
            Telling::Deltas => &mut work.deltas,
        };
        if batch.is_encoded {
            return;
        }
        batch.is_encoded = true;
        let options = self.audiences.at(work.audience).key.options;
        let encoding = self.options.at(options).manner.encoding;
        let fragment_bytes = self.settings.limits.fragment_bytes;
        let (has_fragments, mut large) = (self.encoder.fragments(encoding), Vec::new());
        let mut builder = Builder::new(
            &self.encoder,
            encoding,
            self.settings.limits.batch_bytes_max,
            &mut batch.bytes,
            &mut batch.marks,
        );
        for (at, &number) in work.cut.iter().enumerate() {
            let Some(delivery) = self.deliveries.get(number) else { continue };
            let topic = self.topics.at(delivery.topic);
            let What::Publication(publication) = &delivery.what else {
                write_event(&self.topics, delivery.topic, &delivery.what, |record| {
                    builder.record(record, number);
                });
                continue;
            };
            let (name, topic_number) = (&topic.name, topic.number);
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
                    };
                    if topic.readers.len() > 1 {
                        let bytes = made.find_or_make((number, encoding, form), |out| {
                            self.counters.records_encoded += 1;
                            self.encoder.record(encoding, record, out);
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
        member: SessionIndex,
        index: WorkIndex,
        telling: Telling,
        sent_bytes: usize,
    ) {
        let place = self.keep_rest_of_batch(member, index, telling, 0, sent_bytes);
        self.begin_transfers(member, index, telling, place);
        self.block(member);
        let session = self.sessions.at(member);
        let audience = session.memberships[0].audience;
        self.step_out(member, audience, place);
    }

    /// Keeps the end of the message of a batch that `sent_bytes` ends in, and answers the delivery
    /// up to which the session then has everything. The batch began at `skipped` in what was sent.
    fn keep_rest_of_batch(
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
            let rest = self.large_rest(begun.step, Form::Full, sent - begun.start)?;
            let topic = self.topics.at(self.deliveries.get(begun.step)?.topic);
            let is_next =
                work.verdicts.is_empty() && self.settings.policy(topic.policy).interval.is_zero();
            let form = if is_next { Form::Short } else { Form::Full };
            let delta = (telling == Telling::Deltas).then(|| work.delta_of(begun.step)).flatten();
            Some(LargeRest { form, delta, ..rest })
        };
        let large = is_large.then(rest).flatten();
        let outgoing = self.sessions.at_mut(member).outgoing.get_or_insert_default();
        match large {
            Some(rest) => outgoing.large = Some(Box::new(rest)),
            None => outgoing.bytes.splice(0..0, batch.bytes[range].iter().copied()).for_each(drop),
        }
        place
    }

    pub(crate) fn large_rest(
        &self,
        delivery: u64,
        form: Form,
        sent_bytes: usize,
    ) -> Option<LargeRest> {
        let delivery = self.deliveries.get(delivery)?;
        let What::Publication(publication) = &delivery.what else { return None };
        let topic = self.topics.at(delivery.topic);
        Some(LargeRest {
            topic: topic.name.clone(),
            number: topic.number,
            publication: publication.clone(),
            form,
            delta: None,
            sent_bytes,
        })
    }

    fn block(&mut self, member: SessionIndex) {
        let session = self.sessions.at_mut(member);
        if !session.is_blocked {
            session.is_blocked = true;
            self.counters.stalls += 1;
            self.stalled.insert(member);
        }
    }

    /// Serves one session by itself, everything in one send; answers what it cost: 1 for a small send,
    /// more for a larger one.
    fn serve(&mut self, index: SessionIndex, outlet: &mut impl Outlet) -> usize {
        let Some(session) = self.sessions.get_mut(index) else { return 1 };
        session.is_queued = false;
        if session.is_blocked {
            // Its audiences must not wait for it; `handle_writable` queues it again.
            self.step_out_everywhere(index);
            return 1;
        }
        let allowance = match &mut session.throttle {
            Some(throttle) => throttle.allowance(self.now.elapsed),
            None => Allowance::UNBOUNDED,
        };
        let rests = session.rests();
        let transfers = session.outgoing.as_ref().map_or(0, |outgoing| outgoing.transfers.len());
        let delivered_before = self.counters.delivered;
        self.tell_lag(index);
        self.flush.scratch.clear();
        self.flush.parts.clear();
        self.flush.marks.clear();
        self.gather_own(index);
        let own_bytes = self.flush.scratch.len();
        if rests || transfers >= TRANSFERS_MAX {
            self.step_out_everywhere(index);
        } else {
            self.gather_batches(index, allowance);
        }
        if !rests {
            self.gather_next_piece(index);
        }
        if !rests && transfers < TRANSFERS_MAX {
            self.catch_up(index, allowance);
        }
        let (link, whole) = (self.sessions.at(index).link, self.flush.scratch.len());
        let sent = match whole {
            0 => Sent::Taken(0),
            _ => outlet.send(link, &self.flush.scratch),
        };
        match sent {
            Sent::Taken(bytes) => self.settle(index, bytes),
            Sent::Closed => {
                self.settle(index, 0);
                self.block(index);
                self.step_out_everywhere(index);
            }
        }
        let messages = self.counters.delivered - delivered_before;
        if !rests && (messages > 0 || whole > own_bytes) {
            self.charge(index, whole - own_bytes, messages as usize);
        }
        1 + whole / BYTES_OF_A_SEND
    }

    /// Lets a session rest that was sent as much as it may be.
    fn charge(&mut self, index: SessionIndex, bytes: usize, messages: usize) {
        let now = self.now.elapsed;
        let session = self.sessions.at_mut(index);
        let Some(throttle) = &mut session.throttle else { return };
        if let Some(until) = throttle.charge(bytes, messages, now) {
            self.timers.set(until, Timer::Session(index));
            self.counters.rests += 1;
            self.stalled.insert(index);
            self.step_out_everywhere(index);
        }
    }

    /// Hears that a session has rested long enough.
    fn end_rest(&mut self, index: SessionIndex, due: Duration) {
        let Some(session) = self.sessions.get_mut(index) else { return };
        let Some(throttle) = &mut session.throttle else { return };
        if throttle.rests_until != Some(due) {
            return;
        }
        throttle.rests_until = None;
        if !session.is_blocked {
            self.stalled.remove(&index);
        }
        if session.has_something_to_do() {
            self.flush.queue(index, session);
        }
    }

    fn gather_next_piece(&mut self, index: SessionIndex) {
        let (mut scratch, mut parts) = self.flush.take_parts();
        let start = scratch.len();
        if let Some(piece) = self.gather_piece(index, &mut scratch) {
            parts.push(Part { start, end: scratch.len(), of: PartOf::Piece(piece) });
        }
        self.flush.put_parts(scratch, parts);
    }

    /// Gathers the bytes that belong to the session alone.
    fn gather_own(&mut self, index: SessionIndex) {
        let (mut scratch, mut parts) = self.flush.take_parts();
        self.gather_own_into(index, &mut scratch, &mut parts);
        self.flush.put_parts(scratch, parts);
    }

    fn gather_own_into(&self, index: SessionIndex, scratch: &mut Vec<u8>, parts: &mut Vec<Part>) {
        let session = self.sessions.at(index);
        let Some(outgoing) = &session.outgoing else { return };
        if let Some(large) = &outgoing.large {
            let mut message = self.encoder.begin(session.encoding, scratch);
            let compress = self.policy_for(&large.topic).compress;
            let record = match &large.delta {
                Some(delta) => Record::Delta {
                    topic: &large.topic,
                    number: large.number,
                    publication: &large.publication,
                    delta,
                    compress,
                },
                None => Record::Publication {
                    topic: &large.topic,
                    number: large.number,
                    publication: &large.publication,
                    form: large.form,
                    compress,
                },
            };
            self.encoder.append(&mut message, record, scratch);
            self.encoder.finish(message, scratch);
            scratch.drain(..large.sent_bytes);
            parts.push(Part { start: 0, end: scratch.len(), of: PartOf::Large });
        }
        let start = scratch.len();
        scratch.extend_from_slice(&outgoing.bytes);
        parts.push(Part { start, end: scratch.len(), of: PartOf::Answers });
    }

    /// Gathers the batches that the session's audiences have under way and that it lacks, and
    /// counts it among those that have them. A batch that is more than it may be sent it reads by itself.
    fn gather_batches(&mut self, index: SessionIndex, allowance: Allowance) {
        for at in 0..self.sessions.at(index).memberships.len() {
            let membership = self.sessions.at(index).memberships[at];
            let Some(slot) = membership.slot() else { continue };
            let Some(work) = self.audiences.at(membership.audience).work else { continue };
            let state = self.flush.work(work);
            if !state.is_active || slot < state.visited || slot >= state.end {
                continue;
            }
            let (next, since) = (state.visited, state.since);
            if !state.is_prepared && !self.is_encodable(work) {
                continue;
            }
            self.prepare_batch(work);
            let telling = self.flush.work(work).telling_for(&membership);
            self.encode_batch(work, telling);
            let batch = self.flush.work(work).batch(telling);
            let messages = batch.taken.publications() as usize;
            if batch.bytes.len() > allowance.bytes || messages > allowance.messages {
                self.step_out(index, membership.audience, since);
                continue;
            }
            self.swap_members(membership.audience, slot, next);
            let work_state =
                self.flush.works.get_mut(work.slot()).expect("an audience's work exists");
            work_state.visited += 1;
            let start = self.flush.scratch.len();
            self.flush.scratch.extend_from_slice(&work_state.batch(telling).bytes);
            let end = self.flush.scratch.len();
            let of = PartOf::Batch { membership: at, work, telling };
            self.flush.parts.push(Part { start, end, of });
        }
    }

    /// Takes note of what the connection took: the first `sent` bytes of what was gathered.
    fn settle(&mut self, index: SessionIndex, sent: usize) {
        let whole = self.flush.scratch.len();
        let parts = std::mem::take(&mut self.flush.parts);
        let mut unsent_places = Vec::new();
        for part in &parts {
            match part.of {
                PartOf::Large => {
                    self.settle_large(index, sent.min(part.end) - part.start);
                    if sent >= part.end {
                        self.outgoing(index).large = None;
                    }
                }
                PartOf::Answers => {
                    let taken = sent.clamp(part.start, part.end) - part.start;
                    self.outgoing(index).bytes.drain(..taken);
                }
                PartOf::Batch { work, telling, .. } if sent >= part.end => {
                    self.counters.add(self.flush.work(work).batch(telling).taken);
                    self.begin_transfers(index, work, telling, u64::MAX);
                }
                PartOf::Piece(piece) if sent > part.start => {
                    self.settle_piece(index, piece);
                    let rest = self.flush.scratch[sent.min(part.end)..part.end].to_vec();
                    self.outgoing(index).bytes.splice(0..0, rest).for_each(drop);
                }
                PartOf::Piece(_) => {}
                PartOf::Batch { membership, work, telling } => {
                    let place = self.keep_rest_of_batch(index, work, telling, part.start, sent);
                    self.begin_transfers(index, work, telling, place);
                    let audience = self.sessions.at(index).memberships[membership].audience;
                    unsent_places.push((audience, place));
                }
            }
        }
        self.flush.parts = parts;
        self.settle_catch_up(index, sent);
        self.drop_empty_outgoing(index);
        if sent < whole {
            self.block(index);
            for (audience, place) in unsent_places {
                self.step_out(index, audience, place);
            }
            self.step_out_everywhere(index);
            return;
        }
        self.join_if_caught_up(index);
        self.want_page(index);
        if self.awaits_cut(index) {
            return;
        }
        let session = self.sessions.at_mut(index);
        if session.has_something_to_do() {
            self.flush.queue(index, session);
        }
    }

    /// Whether a session has only to wait for batches that are held back, to step in with them.
    fn awaits_cut(&mut self, index: SessionIndex) -> bool {
        let session = self.sessions.at(index);
        let has_replay = session.replay.as_deref().is_some_and(|replay| !replay.todo.is_empty());
        if session.outgoing.is_some() || has_replay || session.rests() {
            return false;
        }
        let mut works: SmallVec<[WorkIndex; 2]> = SmallVec::new();
        for membership in &session.memberships {
            let Some(cursor) = membership.cursor() else { continue };
            let Some(index) = self.audiences.at(membership.audience).work else { return false };
            let work = self.flush.work(index);
            if work.rests_until.is_none() || cursor < work.since {
                return false;
            }
            works.push(index);
        }
        for work in &works {
            self.flush.work_mut(*work).joiners.insert(index);
        }
        !works.is_empty()
    }

    fn settle_large(&mut self, index: SessionIndex, taken: usize) {
        if let Some(large) = &mut self.outgoing(index).large {
            large.sent_bytes += taken;
        }
    }

    fn outgoing(&mut self, index: SessionIndex) -> &mut Outgoing {
        self.sessions.at_mut(index).outgoing.get_or_insert_default()
    }

    fn drop_empty_outgoing(&mut self, index: SessionIndex) {
        let session = self.sessions.at_mut(index);
        let is_empty = |out: &Outgoing| {
            out.large.is_none() && out.bytes.is_empty() && out.transfers.is_empty()
        };
        if session.outgoing.as_deref().is_some_and(is_empty) {
            session.outgoing = None;
        }
    }

    /// Takes a session out of step with all its audiences, each at the place where it stands.
    fn step_out_everywhere(&mut self, index: SessionIndex) {
        for at in 0..self.sessions.at(index).memberships.len() {
            let membership = self.sessions.at(index).memberships[at];
            if let Some(slot) = membership.slot() {
                let place = self.place_in_step(membership.audience, slot);
                self.step_out(index, membership.audience, place);
            }
        }
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
        self.behind += 1;
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

    fn swap_members(&mut self, audience: AudienceIndex, one: usize, other: usize) {
        if one == other {
            return;
        }
        self.audiences.at_mut(audience).members.swap(one, other);
        for slot in [one, other] {
            let member = self.audiences.at(audience).members[slot];
            let session = self.sessions.at_mut(member);
            let at = session.position_of(audience).expect("a member knows its audience");
            if session.memberships[at].slot().is_some() {
                session.memberships[at].step_in(slot);
            }
        }
    }
}
