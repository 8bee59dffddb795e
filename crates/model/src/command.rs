//! What a peer asks of us, whatever dialect it said it in.

use crate::{Conflation, Draft, Position, Selector, TopicName};

/// A number by which a peer recognises the answer to its command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CommandId(pub u64);

/// What a peer asks of us.
#[derive(Debug, PartialEq)]
pub enum Command {
    /// Says who it is and how it wants to be spoken to. Optional; at most once, first.
    Hello(Hello),
    /// Wants to read.
    Subscribe(Subscribe),
    /// Wants to read no more.
    Unsubscribe(Unsubscribe),
    /// Has something to say.
    Publish(Publish),
    /// Wants to know that we are there.
    Ping,
}

/// Who a peer is and how it wants to be spoken to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// A token from the configuration; without one the peer is anonymous.
    pub token: Option<String>,
    /// The client's own name, for logs.
    pub client: Option<String>,
    /// Whether several records may share one WebSocket message.
    pub batch: bool,
}

/// A wish to read, all of it under the same options.
#[derive(Clone, Debug, PartialEq)]
pub struct Subscribe {
    /// Topics and patterns; at least one.
    pub selectors: Vec<Selector>,
    /// Where to start in topics that `positions` does not name.
    pub start: Start,
    /// Where to resume in topics read before.
    pub positions: Vec<(TopicName, Position)>,
    /// How to read.
    pub options: SubscribeOptions,
}

/// How a subscription is read. Part of what makes an audience.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SubscribeOptions {
    /// What may be skipped while behind, if more than the topic's policy already allows.
    pub conflation: Conflation,
}

/// Where reading starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// With the newest publication, if one is kept.
    #[default]
    Snapshot,
    /// With the next publication.
    Now,
    /// With the newest so many that are kept.
    Last(u64),
}

/// A wish to read no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsubscribe {
    /// Selectors exactly as they were subscribed.
    pub selectors: Vec<Selector>,
}

/// Something to be kept and passed on.
#[derive(Debug, PartialEq)]
pub struct Publish {
    /// The message.
    pub draft: Draft,
}
