//! What is to be sent in this turn and in the next: batches of audiences, and sessions that are served one by one.

use std::collections::VecDeque;
use std::time::Duration;

use model::HashSet;

use crate::audiences::delta::MadeDeltas;
use crate::audiences::job::{Telling, Work, WorkIndex};
use crate::sending::batch::{MadeRecords, Mark};
use crate::sending::encoder::Piece;
use crate::sessions::session::Session;
use crate::sessions::steps::CatchUpStep;
use crate::tables::index::{AudienceIndex, SessionIndex, SlotMap, TopicIndex};

/// The state of sending on one shard.
#[derive(Debug, Default)]
pub(crate) struct Flush {
    /// Boxed: they come and go with each batch, and are not moved about then.
    pub works: SlotMap<Box<Work>>,
    #[expect(clippy::vec_box, reason = "they are taken out as they are, and not moved")]
    pub(crate) spare: Vec<Box<Work>>,
    /// Works with pending deliveries and no batch being sent.
    pub(crate) dirty: Vec<WorkIndex>,
    /// Works whose batch is being sent.
    pub(crate) active: VecDeque<WorkIndex>,
    /// Sessions to be served one by one.
    pub(crate) queue: VecDeque<SessionIndex>,
    /// When the oldest publication of each batch that was finished since they were taken was kept; of some of them.
    pub(crate) finished: Vec<u64>,
    pub(crate) made: MadeRecords,
    pub made_deltas: MadeDeltas,
    pub scratch: Vec<u8>,
    pub parts: Vec<Part>,
    pub marks: Vec<Mark<CatchUpStep>>,
    /// Sessions that take nothing now: their connections are full, or they were sent all they may be.
    pub stalled: HashSet<SessionIndex>,
    /// Topics to be taken, at the end of a flush, from sessions that lag too far behind.
    pub taken_away: Vec<(SessionIndex, TopicIndex)>,
    /// Whether any topic conflates also for readers in step.
    pub conflates_always: bool,
}

impl Flush {
    /// Lets a session be served by itself in the next flush.
    pub(crate) fn queue(&mut self, index: SessionIndex, session: &mut Session) {
        if !session.is_queued {
            session.is_queued = true;
            self.queue.push_back(index);
        }
    }

    pub(crate) fn work(&self, index: WorkIndex) -> &Work {
        self.works.get(index.0).expect("an audience's work exists")
    }

    pub(crate) fn work_mut(&mut self, index: WorkIndex) -> &mut Work {
        self.works.get_mut(index.0).expect("an audience's work exists")
    }

    /// Opens the work of an audience whose members have everything up to `since`.
    pub(crate) fn open_work(&mut self, audience: AudienceIndex, since: u64) -> WorkIndex {
        let mut work = self.spare.pop().unwrap_or_else(|| Box::new(Work::empty()));
        (work.audience, work.since, work.through) = (audience, since, since);
        work.is_listed = true;
        let index = WorkIndex(self.works.insert(work));
        self.dirty.push(index);
        index
    }

    /// Lends out the buffers in which a session's bytes are gathered.
    pub(crate) fn take_buffers(&mut self) -> (Vec<u8>, Vec<Mark<CatchUpStep>>) {
        (std::mem::take(&mut self.scratch), std::mem::take(&mut self.marks))
    }

    pub(crate) fn take_parts(&mut self) -> (Vec<u8>, Vec<Part>) {
        (std::mem::take(&mut self.scratch), std::mem::take(&mut self.parts))
    }

    pub(crate) fn put_parts(&mut self, scratch: Vec<u8>, parts: Vec<Part>) {
        (self.scratch, self.parts) = (scratch, parts);
    }

    pub(crate) fn put_buffers(&mut self, scratch: Vec<u8>, marks: Vec<Mark<CatchUpStep>>) {
        (self.scratch, self.marks) = (scratch, marks);
    }

    /// Whether something is held back until `due`.
    pub(crate) fn holds_back(&self, index: WorkIndex, due: Duration) -> bool {
        let work = self.works.get(index.0);
        work.is_some_and(|work| work.rests_until == Some(due) && !work.pending.is_empty())
    }

    /// Hears that an audience's interval is over; answers the audience if nothing came meanwhile.
    pub(crate) fn end_rest(&mut self, index: WorkIndex, due: Duration) -> Option<AudienceIndex> {
        let work = self.works.get_mut(index.0)?;
        if work.rests_until != Some(due) {
            return None;
        }
        work.rests_until = None;
        let audience = work.audience;
        if !work.pending.is_empty() || !work.joiners.is_empty() {
            work.is_listed = true;
            self.dirty.push(index);
            return None;
        }
        self.close_work(index);
        Some(audience)
    }

    pub(crate) fn close_work(&mut self, index: WorkIndex) {
        const SPARE_MAX: usize = 1024;
        const SPARE_BYTES_MAX: usize = 256 << 10;
        let Some(mut work) = self.works.remove(index.0) else { return };
        work.reset();
        if self.spare.len() < SPARE_MAX && work.whole.bytes.capacity() <= SPARE_BYTES_MAX {
            self.spare.push(work);
        }
    }

    /// Forgets the work of an audience that nobody is in any more.
    pub(crate) fn drop_work(&mut self, index: WorkIndex) {
        let work = self.work_mut(index);
        (work.is_dropped, work.rests_until) = (true, None);
        if !work.is_listed {
            self.close_work(index);
        }
    }

    /// The next work with pending deliveries and no batch being sent.
    pub(crate) fn pop_dirty(&mut self) -> Option<WorkIndex> {
        loop {
            let index = self.dirty.pop()?;
            if !self.close_if_dropped(index) {
                return Some(index);
            }
        }
    }

    /// The next work whose batch is being sent.
    pub(crate) fn pop_active(&mut self) -> Option<WorkIndex> {
        loop {
            let index = self.active.pop_front()?;
            if !self.close_if_dropped(index) {
                return Some(index);
            }
        }
    }

    pub(crate) fn close_if_dropped(&mut self, index: WorkIndex) -> bool {
        let is_dropped = self.work(index).is_dropped;
        if is_dropped {
            self.close_work(index);
        }
        is_dropped
    }
}

/// A piece of what one session gets in one send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) of: PartOf,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum PartOf {
    /// The rest of a large message.
    Large,
    /// Its own bytes.
    Answers,
    /// The next piece of a large publication.
    Piece(Piece),
    /// The batch that the audience of this membership has under way.
    Batch { membership: usize, work: WorkIndex, telling: Telling },
}
