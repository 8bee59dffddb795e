//! What hubs of one node say to each other. Each pair of shards keeps the order of its mail.

use model::{Epoch, Publication, Selector, Sequence, TopicName};

use crate::topics::topic::Lateness;

/// What shards call a topic among each other: the number that clients know it by on this node, and which of the
/// topics it is that had this number one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicNumber {
    pub(crate) number: u32,
    pub(crate) generation: u32,
}

/// A message from one shard's hub to another's.
#[derive(Clone, Debug)]
pub enum HubMail {
    /// Asks the topic's home for its state and for what follows.
    Follow {
        /// Which topic.
        topic: TopicName,
        /// The asker's own number for this wish; the answer carries it.
        serial: u64,
    },
    /// Wants no more of a topic.
    Unfollow(TopicName),
    /// Asks a home for the topics that a pattern selects, now and later.
    FollowSelector {
        /// The pattern.
        selector: Selector,
        /// The asker's own number for this wish; the answer carries it.
        serial: u64,
    },
    /// Wants no new topics of a pattern any more.
    UnfollowSelector(Selector),
    /// The state of a topic; what follows it in the same mailbox is exactly the tail.
    Topic(Box<TopicState>),
    /// Answers `FollowSelector`, in pieces.
    Selected {
        /// The pattern.
        selector: Selector,
        /// The wish that it answers.
        serial: u64,
        /// Topics that it selects; those that the asker knows already count as a tail.
        topics: Vec<TopicState>,
        /// Whether this is the last piece.
        is_last: bool,
    },
    /// The numbering of a followed topic goes on in another epoch.
    Epoch {
        /// The topic.
        number: TopicNumber,
        /// The epoch.
        epoch: Epoch,
        /// The last sequence that was given in the one before it.
        ended_at: Sequence,
    },
    /// A publication of a followed topic.
    Deliver {
        /// The topic.
        number: TopicNumber,
        /// What was published.
        publication: Publication,
    },
    /// What a follower missed while its mailbox was full.
    Tail {
        /// The topic.
        number: TopicNumber,
        /// Oldest first. If it does not join on, the rest is lost.
        publications: Vec<Publication>,
        /// The newest sequence, also if nothing of it is kept.
        head: Sequence,
    },
}

/// Why a topic's home tells its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToldFor {
    /// It answers the `Follow` with this number.
    Wish(u64),
    /// A pattern selects the topic, or did when the home had heard of the wishes up to this one: the asker may have taken it
    /// back since.
    Pattern {
        /// The number of the newest wish of the asker that the home had heard.
        heard: u64,
    },
}

/// A topic's state at its home at one instant.
#[derive(Clone, Debug)]
pub struct TopicState {
    /// What it answers.
    pub told_for: ToldFor,
    /// Its name.
    pub topic: TopicName,
    /// Its number on this node.
    pub number: TopicNumber,
    /// The life of its numbering.
    pub epoch: Epoch,
    /// The newest sequence.
    pub head: Sequence,
    /// What is kept, oldest first; shared, not copied.
    pub history: Vec<Publication>,
    /// How late it was told.
    pub lateness: Lateness,
}
