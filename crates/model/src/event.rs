//! Events: messages to a peer, independent of the dialect. Publications are sent beside these.

use std::sync::Arc;

use crate::{
    AckLevel, Asked, CommandId, Epoch, Features, HistoryPage, Position, Refusal, Response,
    Selector, Sequence, SubscriptionId, TopicName,
};

/// A message to a peer.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Answers `hello`.
    Welcome {
        /// Which command.
        id: Option<CommandId>,
        /// The session's public name.
        session: String,
        /// The node's name.
        node: String,
        /// The server's version.
        version: String,
        /// Of a session over plain HTTP: what names it in requests, and proves that they are its owner's.
        key: Option<String>,
        /// Bytes that one payload may have.
        payload_bytes_max: usize,
        /// Bytes that one message to us may have.
        message_bytes_max: usize,
        /// The server's features, if it lists them.
        features: Option<Features>,
    },
    /// Answers `subscribe`, before the first publication of it.
    Subscribed(Subscribed),
    /// Answers `unsubscribe`.
    Unsubscribed {
        /// Which command.
        id: Option<CommandId>,
        /// The subscription that ended, if it has an id.
        subscription: Option<SubscriptionId>,
        /// The selectors that are no longer read.
        selectors: Vec<Selector>,
        /// Whether we ended it, because the reader was too far behind.
        has_lagged: bool,
    },
    /// All that was published when a subscription with an id was made was sent.
    Complete {
        /// Which subscription.
        subscription: SubscriptionId,
    },
    /// How far the reader is behind; 0 once it is not any more.
    Lag {
        /// The age of the oldest publication that it lacks, in milliseconds.
        ms: u64,
    },
    /// A topic that a pattern selects has come into being (or was found by it).
    Topic(SubscribedTopic),
    /// Publications that cannot be had any more.
    Gap(Gap),
    /// Answers `publish`.
    Published {
        /// Which command.
        id: Option<CommandId>,
        /// Where.
        topic: TopicName,
        /// The place it was given.
        position: Position,
        /// How safe it is.
        level: AckLevel,
    },
    /// Says that a command was not carried out.
    Refused {
        /// Which command, if it could be read.
        id: Option<CommandId>,
        /// Code and sentence.
        refusal: Refusal,
    },
    /// Answers `history`.
    History {
        /// Which command.
        id: Option<CommandId>,
        /// Which topic.
        topic: TopicName,
        /// The page.
        page: HistoryPage,
    },
    /// Answers `acknowledge`: the positions are on disk.
    Acknowledged {
        /// Which command.
        id: Option<CommandId>,
    },
    /// Answers `handle`.
    Handling {
        /// Which command.
        id: Option<CommandId>,
        /// The selectors that are now handled.
        selectors: Vec<Selector>,
    },
    /// Answers `unhandle`.
    Unhandled {
        /// Which command.
        id: Option<CommandId>,
        /// The selectors that are no longer handled.
        selectors: Vec<Selector>,
    },
    /// A request, to whoever handles it.
    Request(Asked),
    /// Answers `request`.
    Response(Response),
    /// The end of the answers to a request to all.
    Responded {
        /// Which command.
        id: Option<CommandId>,
        /// How many answered.
        count: u64,
        /// How many were asked and did not.
        missing: u64,
    },
    /// Answers `attach`: others find the device.
    Attached {
        /// Which command.
        id: Option<CommandId>,
        /// `APPLICATION/DEVICE`.
        device: Arc<str>,
    },
    /// Answers `detach`, or says that another connection has the device's name now.
    Detached {
        /// Which command, if it answers one.
        id: Option<CommandId>,
        /// `APPLICATION/DEVICE`.
        device: Arc<str>,
        /// Why, if the session did not ask for it.
        refusal: Option<Refusal>,
    },
    /// Answers `ping`.
    Pong {
        /// Which command.
        id: Option<CommandId>,
    },
    /// The connection is about to be closed by us.
    Closing {
        /// Code and sentence.
        refusal: Refusal,
        /// How long to wait before the next attempt, in milliseconds.
        retry_after_ms: u64,
    },
}

impl Event {
    /// The names of all events on the wire.
    pub const NAMES: [&'static str; 20] = [
        "welcome",
        "subscribed",
        "unsubscribed",
        "complete",
        "lag",
        "topic",
        "gap",
        "published",
        "refused",
        "history",
        "acknowledged",
        "handling",
        "unhandled",
        "request",
        "response",
        "responded",
        "attached",
        "detached",
        "pong",
        "closing",
    ];

    /// Its name on the wire.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Welcome { .. } => "welcome",
            Self::Subscribed(_) => "subscribed",
            Self::Unsubscribed { .. } => "unsubscribed",
            Self::Complete { .. } => "complete",
            Self::Lag { .. } => "lag",
            Self::Topic(_) => "topic",
            Self::Gap(_) => "gap",
            Self::Published { .. } => "published",
            Self::Refused { .. } => "refused",
            Self::History { .. } => "history",
            Self::Acknowledged { .. } => "acknowledged",
            Self::Handling { .. } => "handling",
            Self::Unhandled { .. } => "unhandled",
            Self::Request(_) => "request",
            Self::Response(_) => "response",
            Self::Responded { .. } => "responded",
            Self::Attached { .. } => "attached",
            Self::Detached { .. } => "detached",
            Self::Pong { .. } => "pong",
            Self::Closing { .. } => "closing",
        }
    }
}

/// The answer to `subscribe`.
#[derive(Clone, Debug, PartialEq)]
pub struct Subscribed {
    /// Which command.
    pub id: Option<CommandId>,
    /// The subscription, if it has an id.
    pub subscription: Option<SubscriptionId>,
    /// The selectors that are now read.
    pub selectors: Vec<Selector>,
    /// The topics named without wildcard. Those that patterns select follow as `Event::Topic`.
    pub topics: Vec<SubscribedTopic>,
}

/// A topic with its wire number and the place from which reading starts.
#[derive(Clone, Debug, PartialEq)]
pub struct SubscribedTopic {
    /// Its name.
    pub topic: TopicName,
    /// Its number in records. A session with several readings of it is told a number for each.
    pub number: u32,
    /// The subscriptions with ids that take what comes under this number.
    pub subscriptions: Vec<SubscriptionId>,
    /// The life of its numbering.
    pub epoch: Epoch,
    /// The newest sequence when the answer was given; 0 when nothing was ever published.
    pub head: Sequence,
    /// The place after which this session's reading starts.
    pub start: Sequence,
    /// Whether a position was given and everything after it follows (`Some(true)`), or a
    /// `gap` comes first (`Some(false)`). `None` when no position was given.
    pub recovered: Option<bool>,
}

/// Publications that this session cannot have any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Of which topic.
    pub topic: TopicName,
    /// The topic's wire number.
    pub number: u32,
    /// The epoch that `to` counts in.
    pub epoch: Epoch,
    /// The first that is missing; `None` where the reader knows better: the one after its last.
    pub from: Option<Sequence>,
    /// The last that is missing.
    pub to: Sequence,
    /// Why.
    pub reason: GapReason,
}

/// Why publications cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GapReason {
    /// History no longer reaches back that far.
    History,
    /// The numbering began anew: the position was of another epoch.
    Epoch,
    /// The reader was slower than history is long.
    Lagged,
    /// A reason of a later version, as a client hears it.
    Other,
}

impl GapReason {
    /// The name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::History => "history",
            Self::Epoch => "epoch",
            Self::Lagged => "lagged",
            Self::Other => "other",
        }
    }

    /// The reason with this name on the wire.
    pub fn from_name(name: &str) -> Self {
        let mut known = [Self::History, Self::Epoch, Self::Lagged].into_iter();
        known.find(|reason| reason.name() == name).unwrap_or(Self::Other)
    }
}
