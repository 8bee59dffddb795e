//! A reader: its audiences, its cursors, and the bytes that its connection still has to take.

use std::collections::VecDeque;
use std::sync::Arc;

use model::{HashMap, Publication, Stamps, TopicName};
use smallvec::SmallVec;

use crate::audiences::delta::Delta;
use crate::sending::encoder::{EncodingIndex, Form, Progress};
use crate::sending::transfer::Transfer;
use crate::sessions::readers::ReaderPart;
use crate::sessions::replay::Replay;
use crate::sessions::throttle::Throttle;
use crate::tables::connections::ConnectionId;
use crate::tables::index::{AudienceIndex, Member, SessionIndex, SlotMap};
use crate::topics::topic::Topic;

/// A reader. It never holds publications, only places in them.
#[derive(Debug)]
pub(crate) struct Session {
    pub link: ConnectionId,
    pub encoding: EncodingIndex,
    /// The connection takes nothing until `handle_writable`.
    pub is_blocked: bool,
    /// It stands in the queue of sessions to be served one by one.
    pub is_queued: bool,
    /// It was told that it lags, and not yet that it does not any more.
    pub is_told_lagging: bool,
    /// How much it is sent is bounded: `SessionTable` has its throttle.
    pub is_throttled: bool,
    /// It was sent as much as it may be for now.
    pub rests: bool,
    /// Which reader of its connection's session it is.
    pub part: ReaderPart,
    /// In order of audience.
    pub memberships: SmallVec<[Membership; 1]>,
    /// Bytes of its own that wait: answers, and the end of a message that was begun.
    pub outgoing: Option<Box<Outgoing>>,
    /// Topics that it reads afresh, while it does.
    pub replay: Option<Box<Replay>>,
}

/// A session's place in one audience. 16 bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Membership {
    pub audience: AudienceIndex,
    /// Its index among the members while in step, `BEHIND` otherwise.
    slot: u32,
    /// While behind: the delivery up to which it took everything. In step: the one after which it
    /// stepped in.
    cursor: u64,
}

const BEHIND: u32 = u32::MAX;
const NOT_STARTED: u64 = u64::MAX;

impl Membership {
    /// A membership whose audience does not know all its topics yet.
    pub(crate) fn waiting(audience: AudienceIndex) -> Self {
        Self { audience, slot: BEHIND, cursor: NOT_STARTED }
    }

    pub(crate) fn behind(audience: AudienceIndex, cursor: u64) -> Self {
        Self { audience, slot: BEHIND, cursor }
    }

    /// Its index among the members, while in step.
    pub(crate) fn slot(&self) -> Option<usize> {
        (self.slot != BEHIND).then_some(self.slot as usize)
    }

    /// The delivery up to which it took everything, while behind and started.
    pub(crate) fn cursor(&self) -> Option<u64> {
        (self.slot == BEHIND && self.cursor != NOT_STARTED).then_some(self.cursor)
    }

    /// Whether its audience does not know all its topics yet.
    pub(crate) fn is_waiting(&self) -> bool {
        self.slot == BEHIND && self.cursor == NOT_STARTED
    }

    pub(crate) fn fall_behind(&mut self, cursor: u64) {
        (self.slot, self.cursor) = (BEHIND, cursor);
    }

    pub(crate) fn step_in(&mut self, slot: usize) {
        self.slot = u32::try_from(slot).expect("fewer than 2^32 members");
    }

    /// Whether it is in step, and was before `delivery`.
    pub(crate) fn was_in_step_before(&self, delivery: u64) -> bool {
        self.slot != BEHIND && self.cursor < delivery
    }
}

/// Bytes of one session's own that wait for its connection.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    /// The rest of a large message that was begun. It goes before `bytes`.
    pub large: Option<Box<LargeRest>>,
    /// The rest of a small message that was begun, then answers.
    pub bytes: Vec<u8>,
    /// Large publications of which pieces are still to be told.
    pub transfers: VecDeque<Transfer>,
}

impl Outgoing {
    /// Makes room for `bytes` where nothing waits yet, so that what is written does not grow the buffer step by step.
    pub(crate) fn reserve_first(&mut self, bytes: usize) {
        if self.bytes.capacity() == 0 {
            self.bytes.reserve_exact(bytes);
        }
    }
}

/// The rest of a message too large to copy: it is encoded again when there is room.
#[derive(Debug)]
pub(crate) struct LargeRest {
    pub topic: TopicName,
    pub number: u32,
    pub publication: Publication,
    pub form: Form,
    /// From where the session could go on after it.
    pub progress: Progress,
    /// The stamps that it is told with.
    pub stamps: Stamps,
    /// The difference, if it was told as one.
    pub delta: Option<Arc<Delta>>,
    /// How many bytes of the message went out already.
    pub sent_bytes: usize,
}

impl Session {
    pub(crate) fn is_in_step(&self) -> bool {
        self.memberships.iter().all(|membership| membership.slot().is_some())
    }

    /// Another reader of the same connection, that reads nothing yet.
    pub(crate) fn sibling(&self) -> Self {
        Self {
            is_queued: false,
            is_told_lagging: false,
            memberships: SmallVec::new(),
            outgoing: None,
            replay: None,
            ..*self
        }
    }

    /// Whether serving it alone could get it on.
    pub(crate) fn has_something_to_do(&self) -> bool {
        let waits = |replay: &Replay| {
            replay.is_parked && replay.todo.is_empty()
                || !replay.rewinding.is_empty() && replay.todo.is_empty()
                || replay.awaits_page()
        };
        let waits = self.must_wait() || self.replay.as_deref().is_some_and(waits);
        let has_own = |out: &Outgoing| {
            out.large.is_some() || !out.bytes.is_empty() || !self.rests && !out.transfers.is_empty()
        };
        self.outgoing.as_deref().is_some_and(has_own)
            || !waits
                && !self.rests
                && self.memberships.iter().any(|membership| membership.cursor().is_some())
    }

    /// Whether it can read nothing on its own: which of its topics are read afresh is not known yet, or not who
    /// reads them.
    pub(crate) fn must_wait(&self) -> bool {
        self.replay.as_deref().is_some_and(|replay| {
            replay.is_adding()
                || !replay.todo.is_empty() && self.memberships.iter().any(Membership::is_waiting)
        })
    }

    /// Whether a batch cannot simply be handed to it.
    pub(crate) fn is_served_alone(&self) -> bool {
        self.memberships.len() > 1
            || self.outgoing.is_some()
            || self.is_throttled
            || self.part != ReaderPart::Whole
    }

    pub(crate) fn position_of(&self, audience: AudienceIndex) -> Option<usize> {
        match &self.memberships[..] {
            [only] => (only.audience == audience).then_some(0),
            many => many.binary_search_by_key(&audience, |membership| membership.audience).ok(),
        }
    }

    pub(crate) fn add_membership(&mut self, membership: Membership) {
        let at = self.memberships.partition_point(|known| known.audience < membership.audience);
        self.memberships.insert(at, membership);
    }

    /// The audience by which it reads a topic, if it does: a session sees each topic once.
    pub(crate) fn audience_reading(&self, topic: &Topic) -> Option<AudienceIndex> {
        if topic.readers.len() <= self.memberships.len() {
            let is_its = |reader: &AudienceIndex| self.position_of(*reader).is_some();
            return topic.readers.iter().copied().find(is_its);
        }
        let mut audiences = self.memberships.iter().map(|membership| membership.audience);
        audiences.find(|audience| topic.is_read_by(*audience))
    }
}

/// The sessions of a shard.
#[derive(Debug, Default)]
pub(crate) struct SessionTable {
    slots: SlotMap<Session>,
    /// What bounds how much a session is sent, by its connection: most have none.
    throttles: HashMap<ConnectionId, Throttle>,
}

impl SessionTable {
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn insert(&mut self, session: Session) -> SessionIndex {
        SessionIndex(self.slots.insert(session))
    }

    pub(crate) fn remove(&mut self, index: SessionIndex) -> Option<Session> {
        let session = self.slots.remove(index.0)?;
        if session.is_throttled {
            self.throttles.remove(&session.link);
        }
        Some(session)
    }

    /// Bounds how much a session is sent, or does not.
    pub(crate) fn set_throttle(&mut self, index: SessionIndex, throttle: Option<Throttle>) {
        let session = self.at_mut(index);
        (session.is_throttled, session.rests) = (throttle.is_some(), false);
        let link = session.link;
        match throttle {
            Some(throttle) => self.throttles.insert(link, throttle),
            None => self.throttles.remove(&link),
        };
    }

    pub(crate) fn throttle(&self, session: &Session) -> Option<&Throttle> {
        if !session.is_throttled {
            return None;
        }
        self.throttles.get(&session.link)
    }

    pub(crate) fn throttle_mut(&mut self, index: SessionIndex) -> Option<&mut Throttle> {
        let session = self.slots.get(index.0).filter(|session| session.is_throttled)?;
        self.throttles.get_mut(&session.link)
    }

    pub(crate) fn get(&self, index: SessionIndex) -> Option<&Session> {
        self.slots.get(index.0)
    }

    pub(crate) fn get_mut(&mut self, index: SessionIndex) -> Option<&mut Session> {
        self.slots.get_mut(index.0)
    }

    /// Whoever is in a session's place now.
    pub(crate) fn in_place_of(&self, gone: SessionIndex) -> Option<SessionIndex> {
        self.slots.get_at(gone.0.place())?;
        self.slots.slot_at(gone.0.place()).map(SessionIndex)
    }

    /// A session that an audience lists.
    pub(crate) fn of_member(&self, member: Member) -> &Session {
        self.slots.get_at(member.place()).expect("members are open")
    }

    /// Mutable access to a session that an audience lists.
    pub(crate) fn of_member_mut(&mut self, member: Member) -> &mut Session {
        self.slots.get_at_mut(member.place()).expect("members are open")
    }

    pub(crate) fn index_of(&self, member: Member) -> SessionIndex {
        SessionIndex(self.slots.slot_at(member.place()).expect("members are open"))
    }

    pub(crate) fn at(&self, index: SessionIndex) -> &Session {
        self.slots.get(index.0).expect("the slot holds a session")
    }

    pub(crate) fn at_mut(&mut self, index: SessionIndex) -> &mut Session {
        self.slots.get_mut(index.0).expect("the slot holds a session")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_session_is_small() {
        assert!(size_of::<Option<Session>>() <= 56, "{} bytes", size_of::<Option<Session>>());
        assert_eq!(size_of::<Membership>(), 16);
    }
}
