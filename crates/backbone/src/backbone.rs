//! The trait between a shard and whatever orders and keeps publications.

use model::{AckLevel, Draft, Moment, Position, Publication, Refusal, TopicName};

use crate::ReadWanted;

/// The caller's own number for something asked; the answer carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(pub u64);

/// Where publications are ordered and kept. Every implementation passes [`crate::contract`].
///
/// - Order: two drafts of one topic appended one after the other get growing sequences, without
///   holes.
/// - Time: what is published later, to whichever topic, is never labelled with an earlier time.
/// - Safety: `Kept` is answered only once the draft is as safe as `level` says.
/// - Identity: a draft whose idempotency key was kept before answers `Repeated` with the first
///   position.
/// - Numbering: no position is ever given twice, whatever happened in between.
pub trait Backbone {
    /// Asks for `draft` to be kept. Answered with `Kept`, `Repeated` or `NotKept`.
    fn append(&mut self, ticket: Ticket, draft: Draft, level: AckLevel, now: Moment);

    /// Asks where `topic` stands. Answered with `Head`.
    fn head(&mut self, topic: &TopicName);

    /// Asks for `topic`'s publications as they are kept, by whomever: `Head` first, then one
    /// `Kept` each. What is appended through this value is answered with `Kept` in any case.
    fn follow(&mut self, topic: &TopicName);

    /// Wants no more of what others publish to `topic`.
    fn unfollow(&mut self, topic: &TopicName);

    /// Asks for `topic`'s publications that are kept beyond memory. Answered with `Read`.
    fn read(&mut self, ticket: Ticket, topic: &TopicName, wanted: ReadWanted);

    /// The next answer or arriving publication, if there is one.
    fn poll_event(&mut self) -> Option<BackboneEvent>;
}

/// What a backbone tells.
#[derive(Clone, Debug, PartialEq)]
pub enum BackboneEvent {
    /// A publication was kept.
    Kept {
        /// Of the append that it answers; `None` for what somebody else published.
        ticket: Option<Ticket>,
        /// Where.
        topic: TopicName,
        /// Its position.
        position: Position,
        /// The publication, which carries the sequence too.
        publication: Publication,
    },
    /// The idempotency key was kept before: nothing new happened.
    Repeated {
        /// Of the append.
        ticket: Ticket,
        /// Where.
        topic: TopicName,
        /// The first position.
        position: Position,
    },
    /// The draft was not kept and will not be.
    NotKept {
        /// Of the append.
        ticket: Ticket,
        /// Why, and what to do.
        refusal: Refusal,
    },
    /// Publications that were asked for.
    Read {
        /// Of the question.
        ticket: Ticket,
        /// Oldest first; none when there are no more.
        publications: Vec<Publication>,
    },
    /// Where a topic stands.
    Head {
        /// Which topic.
        topic: TopicName,
        /// Its newest position; `Sequence::START` when nothing was ever published.
        position: Position,
    },
}
