//! Serving one session by itself, everything in one send: its own bytes, the batches that it lacks, what it
//! catches up with, a piece of a large publication.

use std::time::Duration;

use model::planted::{Fault, is_planted};
use smallvec::SmallVec;

use crate::audiences::job::WorkIndex;
use crate::hub::Hub;
use crate::sending::encoder::{Encoder, Outlet, Record, Sent};
use crate::sending::schedule::{Part, PartOf};
use crate::sending::timers::Timer;
use crate::sending::transfer::TRANSFERS_MAX;
use crate::sessions::readers::ReaderPart;
use crate::sessions::session::{Outgoing, Session};
use crate::sessions::throttle::Allowance;
use crate::tables::index::SessionIndex;

/// So many bytes, made for one session and sent, cost about as much time as a small send.
const BYTES_OF_A_SEND: usize = 8 << 10;
/// The same of steps: what a session catches up with is looked for.
const STEPS_OF_A_SEND: u64 = 64;

impl<E: Encoder> Hub<E> {
    pub(crate) fn block(&mut self, member: SessionIndex) {
        if self.sessions.at(member).is_blocked {
            return;
        }
        self.counters.stalls += 1;
        for reader in self.all_readers(member) {
            self.sessions.at_mut(reader).is_blocked = true;
            self.flush.stalled.insert(reader);
        }
    }

    /// Serves one session by itself, everything in one send; answers what it cost: 1 for a small send,
    /// more for a larger one, or where much is looked at before.
    pub(crate) fn serve(&mut self, index: SessionIndex, outlet: &mut impl Outlet) -> usize {
        let before = self.work();
        let bytes = self.serve_all(index, outlet);
        let steps = self.work() - before;
        1 + bytes / BYTES_OF_A_SEND + (steps / STEPS_OF_A_SEND) as usize
    }

    /// The same; answers how many bytes it was.
    fn serve_all(&mut self, index: SessionIndex, outlet: &mut impl Outlet) -> usize {
        let Some(session) = self.sessions.get_mut(index) else { return 0 };
        session.is_queued = false;
        let memberships = session.memberships.len();
        let must_wait = session.part == ReaderPart::Further && !self.has_way(index, outlet);
        let Some(session) = self.sessions.get(index) else { return 0 };
        if session.is_blocked || must_wait {
            // Its audiences must not wait for it; `handle_writable` queues it again.
            self.step_out_everywhere(index);
            self.note_work(memberships);
            if must_wait && !self.sessions.at(index).is_blocked {
                // What it waits for was said meanwhile, and stands before it in the queue.
                let session = self.sessions.at_mut(index);
                self.flush.queue(index, session);
            }
            return 0;
        }
        let rests = session.rests;
        let transfers = session.outgoing.as_ref().map_or(0, |outgoing| outgoing.transfers.len());
        let allowance = match self.sessions.throttle_mut(index) {
            Some(throttle) => throttle.allowance(self.now.elapsed),
            None => Allowance::UNBOUNDED,
        };
        let delivered_before = self.counters.delivered;
        self.note_work(memberships);
        if self.speaker_of(index) == index {
            self.tell_lag(index);
        }
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
        whole
    }

    /// Sends first what waits for the connection of another reader's session; answers whether nothing waits any more.
    fn has_way(&mut self, index: SessionIndex, outlet: &mut impl Outlet) -> bool {
        let first = self.speaker_of(index);
        // What follows may be sent in part, and nothing may come in between.
        self.tell_lag(index);
        let waits = |known: &Session| {
            known.outgoing.as_deref().is_some_and(|it| it.large.is_some() || !it.bytes.is_empty())
        };
        if waits(self.sessions.at(first)) {
            self.serve_all(first, outlet);
        }
        !waits(self.sessions.at(first))
    }

    /// Lets a session rest that was sent as much as it may be.
    fn charge(&mut self, index: SessionIndex, bytes: usize, messages: usize) {
        let now = self.now.elapsed;
        let Some(throttle) = self.sessions.throttle_mut(index) else { return };
        let until = throttle.charge(bytes, messages, now);
        let readers = self.all_readers(index);
        for reader in &readers {
            self.sessions.at_mut(*reader).rests = until.is_some();
        }
        let Some(until) = until else { return };
        self.timers.set(until, Timer::Session(readers[0]));
        self.counters.rests += 1;
        for reader in readers {
            self.flush.stalled.insert(reader);
            self.step_out_everywhere(reader);
        }
    }

    /// Hears that a session has rested long enough.
    pub(crate) fn end_rest(&mut self, index: SessionIndex, due: Duration) {
        let Some(throttle) = self.sessions.throttle_mut(index) else { return };
        if throttle.rests_until != Some(due) {
            return;
        }
        throttle.rests_until = None;
        for reader in self.all_readers(index) {
            let session = self.sessions.at_mut(reader);
            session.rests = false;
            if !session.is_blocked {
                self.flush.stalled.remove(&reader);
            }
            if session.has_something_to_do() {
                self.flush.queue(reader, session);
            }
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
                    stamps: large.stamps,
                },
                None => Record::Publication {
                    topic: &large.topic,
                    number: large.number,
                    publication: &large.publication,
                    form: large.form,
                    compress,
                    stamps: large.stamps,
                },
            };
            self.encoder.append(&mut message, record, large.progress, scratch);
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
            let is_lost = !self.flush.work(work).batch(telling).is_encoded
                && !self.is_encodable(work)
                && !is_planted(Fault::LateTellingOfLess);
            if is_lost {
                self.step_out(index, membership.audience, since);
                continue;
            }
            self.encode_batch(work, telling);
            let batch = self.flush.work(work).batch(telling);
            let messages = batch.taken.publications() as usize;
            if batch.bytes.len() > allowance.bytes || messages > allowance.messages {
                self.step_out(index, membership.audience, since);
                continue;
            }
            self.swap_members(membership.audience, slot, next);
            let work_state = self.flush.works.get_mut(work.0).expect("an audience's work exists");
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
        if session.outgoing.is_some() || has_replay || session.rests {
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

    /// What waits for the connection of a reader's session.
    pub(crate) fn outgoing(&mut self, index: SessionIndex) -> &mut Outgoing {
        let index = self.speaker_of(index);
        self.sessions.at_mut(index).outgoing.get_or_insert_default()
    }

    fn drop_empty_outgoing(&mut self, index: SessionIndex) {
        let speaker = self.speaker_of(index);
        if speaker != index {
            self.drop_empty_outgoing(speaker);
        }
        let session = self.sessions.at_mut(index);
        let is_empty = |out: &Outgoing| {
            out.large.is_none() && out.bytes.is_empty() && out.transfers.is_empty()
        };
        if session.outgoing.as_deref().is_some_and(is_empty) {
            session.outgoing = None;
        }
    }

    /// Takes a session out of step with all its audiences, each at the place where it stands.
    pub(crate) fn step_out_everywhere(&mut self, index: SessionIndex) {
        for at in 0..self.sessions.at(index).memberships.len() {
            let membership = self.sessions.at(index).memberships[at];
            if let Some(slot) = membership.slot() {
                let place = self.place_in_step(membership.audience, slot);
                self.step_out(index, membership.audience, place);
            }
        }
    }
}
