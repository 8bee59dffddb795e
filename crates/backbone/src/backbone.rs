//! The trait between a shard and whatever orders and keeps publications.

use model::{AckLevel, Draft, Epoch, Moment, Position, Publication, Refusal, Sequence, TopicName};

use crate::{ReadWanted, StoreMail};

/// The caller's own number for something asked; the answer carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Orders and keeps publications. Every implementation passes [`crate::contract`].
///
/// There are two kinds. One gives numbers when it is asked (memory, disk): `Kept` follows `append`, and a topic's
/// sequences grow by one. The other learns the order from a log that others write, too (a broker's stream): a topic's
/// sequences have holes, and each publication carries the sequence before it in its topic.
///
/// - Order: the `Kept` of one topic come in order, own and others' alike, and each follows the one before it
///   ([`Publication::follows`]).
/// - Time: what is published later, to whichever topic, is never labelled with an earlier time.
/// - Safety: `Kept` is answered only once the draft is as safe as `level` says.
/// - Identity: a draft whose idempotency key was kept before is answered with `Repeated` and the first position.
/// - Numbering: no position is ever given twice, whatever happened in between.
/// - Outcome: each append has exactly one. `NotKept` means that it is not kept and never will be.
pub trait Backbone {
    /// Asks for `draft` to be kept. Answered once: with `Kept`, `Repeated`, `NotKept` or `Unknown`.
    fn append(&mut self, ticket: Ticket, draft: Draft, level: AckLevel, now: Moment);

    /// Wants this topic: answered with `State`, and then with every `Kept` after it, without a seam. An append through this value is answered in any case.
    fn follow(&mut self, topic: &TopicName);

    /// Wants no more of what others publish to `topic`.
    fn unfollow(&mut self, topic: &TopicName);

    /// Asks for `topic`'s publications that are kept beyond memory. Answered with `Read`.
    fn read(&mut self, ticket: Ticket, topic: &TopicName, wanted: ReadWanted);

    /// The abilities of this kind.
    fn abilities(&self) -> Abilities;

    /// Hears what its threads have to tell it. Such mail is never lost.
    fn handle_mail(&mut self, _mail: BackboneMail) {}

    /// Hears that somebody who may be trusted has a position that was never given: an older copy of what is kept may have been put back. Answers
    /// whether that can happen to it. Of an epoch that has ended already it shows nothing.
    fn handle_beyond(&mut self, _position: &Position) -> bool {
        false
    }

    /// The next answer or arriving publication, if there is one.
    fn poll_event(&mut self) -> Option<BackboneEvent>;
}

/// A message from a backbone's own threads, for every kind of backbone.
#[derive(Debug)]
pub enum BackboneMail {
    /// From the store on disk.
    Store(StoreMail),
}

/// The abilities that only some kinds of backbone have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// A topic's sequences grow by one.
    pub is_contiguous: bool,
    /// It honours [`Draft::expected`]. Where it does not, such a draft is refused.
    pub expects: bool,
    /// It honours [`Draft::idempotency_key`].
    pub has_keys: bool,
    /// It keeps a history of each topic beyond memory, which can be read.
    pub has_history: bool,
    /// The most that its `Kept` may be asked to mean.
    pub level_max: AckLevel,
}

/// An event of a backbone.
#[derive(Clone, Debug, PartialEq)]
pub enum BackboneEvent {
    /// A publication was kept. In order for each topic; where one does not follow the one before it, something is gone.
    Kept {
        /// Of the append that it answers; `None` for what somebody else published.
        ticket: Option<Ticket>,
        /// Where.
        topic: TopicName,
        /// Its position.
        position: Position,
        /// The publication, which carries the sequence too, and the one before it.
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
    /// The draft is not kept and never will be.
    NotKept {
        /// Of the append.
        ticket: Ticket,
        /// Why, and what to do.
        refusal: Refusal,
    },
    /// Nobody knows whether the draft is kept. It must not be repeated without an idempotency key.
    Unknown {
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
        /// Of what was asked for, everything after this is in the page, or comes after the page: what lies between that and where the
        /// page was to begin is not kept, or did not fit.
        complete_after: Sequence,
    },
    /// Where a topic stands, for who follows it.
    State {
        /// Which topic.
        topic: TopicName,
        /// Its newest position; `Sequence::START` when nothing was ever published.
        head: Position,
        /// Its newest publications, oldest first, as many as the backbone has at hand; the last is the head.
        newest: Vec<Publication>,
        /// Everything after this sequence is among `newest`, or follows.
        complete_after: Sequence,
    },
    /// All that there is of a partition's topics was told through this position. Only of a log that others write, too.
    Through {
        /// Which partition.
        partition: u16,
        /// How far.
        position: Position,
    },
    /// The numbering of a partition goes on in another epoch: what is told from now on is of it.
    NewLife {
        /// Which partition; 0 where there is but one.
        partition: u16,
        /// The epoch that ended.
        ended: Epoch,
        /// The new one.
        epoch: Epoch,
    },
    /// A partition cannot be reached: what is appended waits, or is refused.
    Cut {
        /// Which partition.
        partition: u16,
    },
    /// A partition can be reached again.
    Joined {
        /// Which partition.
        partition: u16,
    },
}
