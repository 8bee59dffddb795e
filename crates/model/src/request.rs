//! Requests between sessions, and their answers.

use std::sync::Arc;
use std::time::Duration;

use crate::{CommandId, Payload, Selector, TopicName};

/// A wish to answer requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handle {
    /// The topics whose requests it answers.
    pub selectors: Vec<Selector>,
    /// The capacity of the session, over all its selectors.
    pub capacity: Capacity,
}

/// The capacity of a session for requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// How many may be open with it at a time.
    pub concurrency: usize,
    /// Bytes that the payload of one may have, if fewer than of any payload.
    pub payload_bytes_max: Option<usize>,
}

/// A wish to answer them no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unhandle {
    /// Selectors exactly as they were handled.
    pub selectors: Vec<Selector>,
}

/// Something to be answered.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The topic.
    pub topic: TopicName,
    /// The payload.
    pub payload: Arc<Payload>,
    /// How long the answer may take.
    pub timeout: Duration,
    /// The handlers that may answer.
    pub to: Recipients,
    /// Makes a repeated request have the first one's outcome.
    pub key: Option<Box<str>>,
}

/// Which of the sessions that handle a topic are asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recipients {
    /// The attached device of this name, `APPLICATION/DEVICE`, instead of a session.
    pub device: Option<Box<str>>,
    /// Only the one with this public name.
    pub session: Option<Box<str>>,
    /// Only those of this principal.
    pub principal: Option<Box<str>>,
    /// Only those that this expression accepts.
    pub filter: Option<Arc<str>>,
    /// All of them, not one.
    pub all: bool,
}

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Respond {
    /// The number of the request.
    pub request: u64,
    /// The answer's payload, or the reason why there is none.
    pub result: Result<Arc<Payload>, Unanswered>,
}

/// Why whoever was asked does not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// It declines, and says why.
    Declined(Box<str>),
    /// It handles no such requests any more: somebody else may.
    NotHandled,
}

/// A request as its handler hears it.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    /// Its number, for the answer.
    pub request: u64,
    /// The topic.
    pub topic: TopicName,
    /// The payload.
    pub payload: Arc<Payload>,
    /// How long the answer may take.
    pub timeout: Duration,
    /// The public name of the session that asks; empty for requests over HTTP.
    pub session: Arc<str>,
    /// The requester's principal.
    pub principal: Arc<str>,
}

/// An answer as whoever asked hears it.
#[derive(Clone, Debug, PartialEq)]
pub struct Response {
    /// Which command.
    pub id: Option<CommandId>,
    /// The public name of the session that answered.
    pub session: Arc<str>,
    /// The payload.
    pub payload: Arc<Payload>,
    /// Whether others may answer, too.
    pub has_more: bool,
}
