//! Sending: batches to audiences, and what single sessions still have to get.
//!
//! An audience's batch is encoded once and handed to each member in step. The work is resumable: a
//! flush stops when its budget is used up and goes on in the next turn; an audience's next batch is
//! cut only when its last one has reached everybody. Sessions with answers of their own, and those
//! that are behind, are served one by one, and everything that one session gets in a flush goes
//! out in one send.

use std::collections::VecDeque;
use std::num::NonZeroU32;

use crate::batch::{Builder, MadeRecords, Mark, Marked, begun_message};
use crate::catch_up::{CatchUpStep, write_event};
use crate::delivery::{Delivery, What};
use crate::encoder::{Encoder, Form, Outlet, Record, Sent};
use crate::hub::Hub;
use crate::index::{AudienceIndex, SessionIndex, Slots};
use crate::session::{LargeRest, Outgoing, Session};

/// The place of a [`Work`], plus 1: four bytes also in an `Option`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    bytes: Vec<u8>,
    marks: Vec<Mark<u64>>,
    is_encoded: bool,
    /// What a member that takes the whole batch gets.
    publications: u64,
    gaps: u64,
    /// Members before `visited` have everything up to `through`, those from there to `end` have
    /// everything up to `since`, and those from `end` on joined with everything up to `through`.
    pub since: u64,
    pub through: u64,
    pub visited: usize,
    pub end: usize,
    pub is_active: bool,
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
    /// The batch that the audience of this membership has under way.
    Batch { membership: usize, work: WorkIndex },
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

    pub(crate) fn put_buffers(&mut self, scratch: Vec<u8>, marks: Vec<Mark<CatchUpStep>>) {
        (self.scratch, self.marks) = (scratch, marks);
    }

    fn close_work(&mut self, index: WorkIndex) {
        const SPARE_MAX: usize = 1024;
        const SPARE_BYTES_MAX: usize = 256 << 10;
        let Some(mut work) = self.works.remove(index.slot()) else { return };
        work.reset();
        if self.spare.len() < SPARE_MAX && work.bytes.capacity() <= SPARE_BYTES_MAX {
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
            bytes: Vec::new(),
            marks: Vec::new(),
            is_encoded: false,
            publications: 0,
            gaps: 0,
            since: 0,
            through: 0,
            visited: 0,
            end: 0,
            is_active: false,
        }
    }

    fn reset(&mut self) {
        self.pending.clear();
        self.cut.clear();
        self.bytes.clear();
        self.marks.clear();
        (self.is_encoded, self.is_active) = (false, false);
        (self.visited, self.end) = (0, 0);
    }

    /// Up to where a session must have read to join the members in step.
    pub(crate) fn joinable_at(&self) -> u64 {
        if self.is_active { self.through } else { self.since }
    }
}

impl<E: Encoder> Hub<E> {
    /// Sends what there is to send, at most about `budget` sends, and tells whether some is left.
    ///
    /// Nothing is received meanwhile. The caller goes back to receiving in between, so that a long
    /// fan-out does not keep others waiting.
    pub fn flush(&mut self, outlet: &mut impl Outlet, budget: usize) -> bool {
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
        if self.flush.active.is_empty() {
            self.flush.made.clear();
        }
        let has_more = !self.flush.active.is_empty()
            || !self.flush.queue.is_empty()
            || !self.flush.dirty.is_empty();
        if !has_more && self.behind == 0 {
            self.deliveries.forget();
        }
        has_more
    }

    /// Turns the pending deliveries of every idle work into a batch to be sent.
    fn cut_batches(&mut self) {
        let newest = self.deliveries.newest();
        while let Some(index) = self.flush.dirty.pop() {
            let work = self.flush.work_mut(index);
            let members = self.audiences.at(work.audience).members.len();
            std::mem::swap(&mut work.pending, &mut work.cut);
            work.pending.clear();
            work.bytes.clear();
            work.marks.clear();
            work.through = newest;
            (work.visited, work.end) = (0, members);
            (work.is_active, work.is_encoded) = (true, false);
            self.flush.active.push_back(index);
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
        if work.visited < work.end && !work.is_encoded {
            if !self.is_encodable(index) {
                self.abandon_batch(index);
            }
            self.encode_batch(index);
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
            if session.memberships.len() > 1 || session.outgoing.is_some() {
                count += self.serve(member, outlet);
                continue;
            }
            count += 1;
            match outlet.send(session.link, &work.bytes) {
                Sent::Taken(bytes) if bytes == work.bytes.len() => {
                    work.visited += 1;
                    self.counters.delivered += work.publications;
                    self.counters.gaps += work.gaps;
                }
                Sent::Taken(bytes) => self.stall_in_batch(member, index, bytes),
                Sent::Closed => self.stall_in_batch(member, index, 0),
            }
        }
        self.flush.active.push_back(index);
        count
    }

    fn finish_batch(&mut self, index: WorkIndex) {
        let work = self.flush.work_mut(index);
        work.is_active = false;
        work.since = work.through;
        if work.pending.is_empty() {
            let audience = work.audience;
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
            Some(Delivery { topic, what: What::Gap { .. } }) => {
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

    /// Makes the bytes of a batch, once for all members.
    fn encode_batch(&mut self, index: WorkIndex) {
        let Flush { works, made, .. } = &mut self.flush;
        let work = works.get_mut(index.slot()).expect("an audience's work exists");
        if work.is_encoded {
            return;
        }
        work.is_encoded = true;
        let encoding = self.audiences.at(work.audience).key.encoding;
        let mut builder = Builder::new(
            &self.encoder,
            encoding,
            self.options.limits.batch_bytes_max,
            &mut work.bytes,
            &mut work.marks,
        );
        for &number in &work.cut {
            let Some(delivery) = self.deliveries.get(number) else { continue };
            let topic = self.topics.at(delivery.topic);
            let What::Publication(publication) = &delivery.what else {
                write_event(&self.topics, delivery.topic, &delivery.what, |record| {
                    builder.record(record, number);
                });
                continue;
            };
            let record = Record::Publication {
                topic: &topic.name,
                number: topic.number,
                publication,
                form: Form::Short,
            };
            if topic.readers.len() > 1 {
                let bytes = made.find_or_make(number, encoding, |out| {
                    self.counters.records_encoded += 1;
                    self.encoder.record(encoding, record, out);
                });
                builder.made(bytes, number);
            } else {
                self.counters.records_encoded += 1;
                builder.record(record, number);
            }
        }
        builder.finish();
        let count = |what| work.marks.iter().filter(|mark| mark.what == what).count() as u64;
        (work.publications, work.gaps) = (count(Marked::Publication), count(Marked::Gap));
    }

    /// Takes a session whose connection is full out of step with the audience of `index`.
    fn stall_in_batch(&mut self, member: SessionIndex, index: WorkIndex, sent_bytes: usize) {
        let place = self.keep_rest_of_batch(member, index, 0, sent_bytes);
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
        skipped: usize,
        sent_bytes: usize,
    ) -> u64 {
        let sent = sent_bytes.saturating_sub(skipped);
        let work = self.flush.work(index);
        let mut place = work.since;
        for mark in work.marks.iter().filter(|mark| mark.start < sent || mark.end <= sent) {
            place = mark.step;
            mark.what.count(&mut self.counters);
        }
        let copied_bytes_max = self.options.limits.batch_bytes_max;
        let Some((begun, is_large)) = begun_message(&work.marks, sent, copied_bytes_max) else {
            return place;
        };
        let range = sent..begun.end;
        let large = is_large
            .then(|| self.large_rest(begun.step, Form::Short, sent - begun.start))
            .flatten();
        let outgoing = self.sessions.at_mut(member).outgoing.get_or_insert_default();
        match large {
            Some(rest) => outgoing.large = Some(Box::new(rest)),
            None => outgoing.bytes.splice(0..0, work.bytes[range].iter().copied()).for_each(drop),
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
            sent_bytes,
        })
    }

    fn block(&mut self, member: SessionIndex) {
        let session = self.sessions.at_mut(member);
        if !session.is_blocked {
            session.is_blocked = true;
            self.counters.stalls += 1;
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
        self.flush.scratch.clear();
        self.flush.parts.clear();
        self.flush.marks.clear();
        self.gather_own(index);
        self.gather_batches(index);
        self.catch_up(index);
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
        1 + whole / BYTES_OF_A_SEND
    }

    /// Gathers the bytes that belong to the session alone.
    fn gather_own(&mut self, index: SessionIndex) {
        let Flush { scratch, parts, .. } = &mut self.flush;
        let session = self.sessions.at(index);
        let Some(outgoing) = &session.outgoing else { return };
        if let Some(large) = &outgoing.large {
            let mut message = self.encoder.begin(session.encoding, scratch);
            let record = Record::Publication {
                topic: &large.topic,
                number: large.number,
                publication: &large.publication,
                form: large.form,
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
    /// counts it among those that have them.
    fn gather_batches(&mut self, index: SessionIndex) {
        for at in 0..self.sessions.at(index).memberships.len() {
            let membership = self.sessions.at(index).memberships[at];
            let Some(slot) = membership.slot() else { continue };
            let Some(work) = self.audiences.at(membership.audience).work else { continue };
            let state = self.flush.work(work);
            if !state.is_active || slot < state.visited || slot >= state.end {
                continue;
            }
            let next = state.visited;
            if !state.is_encoded && !self.is_encodable(work) {
                continue;
            }
            self.encode_batch(work);
            self.swap_members(membership.audience, slot, next);
            let work_state =
                self.flush.works.get_mut(work.slot()).expect("an audience's work exists");
            work_state.visited += 1;
            let start = self.flush.scratch.len();
            self.flush.scratch.extend_from_slice(&work_state.bytes);
            let end = self.flush.scratch.len();
            let of = PartOf::Batch { membership: at, work };
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
                PartOf::Batch { work, .. } if sent >= part.end => {
                    let work = self.flush.work(work);
                    self.counters.delivered += work.publications;
                    self.counters.gaps += work.gaps;
                }
                PartOf::Batch { membership, work } => {
                    let place = self.keep_rest_of_batch(index, work, part.start, sent);
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
        let session = self.sessions.at_mut(index);
        if session.has_something_to_do() {
            self.flush.queue(index, session);
        }
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
        if session.outgoing.as_ref().is_some_and(|out| out.large.is_none() && out.bytes.is_empty())
        {
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
        if !work.is_active || lacks_batch { work.since } else { work.through }
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
