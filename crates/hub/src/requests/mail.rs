//! What shards tell each other of requests.

use std::sync::Arc;
use std::time::Duration;

use model::{Code, Payload, Refusal, Request, Selector, TopicName};

use super::handlers::Registration;
use super::ticket::Ticket;
use crate::tables::connections::ConnectionId;

/// What became of a request: who answered and what, or why nobody did.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The answer.
    pub result: Result<(Arc<str>, Arc<Payload>), Refusal>,
}

impl Outcome {
    pub(super) fn refused(code: Code, text: impl Into<String>) -> Self {
        Self { result: Err(Refusal::new(code, text)) }
    }

    /// Whether whoever was asked left it alone, so that another may be asked.
    pub(super) fn is_left_to_others(&self) -> bool {
        let refusal = self.result.as_ref().err();
        refusal.is_some_and(|it| matches!(it.code, Code::TooManyRequests | Code::NoHandler))
    }

    /// Whether the request may have been carried out.
    pub(super) fn is_final(&self) -> bool {
        let again = [Code::NoHandler, Code::TooManyRequests, Code::Busy];
        self.result.as_ref().err().is_none_or(|refusal| !again.contains(&refusal.code))
    }
}

/// A request on its way to one handler.
#[derive(Clone, Debug)]
pub struct Ask {
    pub(super) ticket: Ticket,
    /// What it was chosen by, and is to handle still; nothing for one that was chosen by name.
    pub(super) handled_as: Option<Selector>,
    pub(super) topic: TopicName,
    pub(super) payload: Arc<Payload>,
    pub(super) due: Duration,
    pub(super) session: Arc<str>,
    pub(super) principal: Arc<str>,
}

/// What shards tell each other of requests.
#[derive(Clone, Debug)]
pub enum RequestMail {
    /// A session handles something; answered by `Registered` with the number of its `handle` at its shard.
    Register(Box<Registration>, u64),
    /// A shard knows of one selector of that `handle`.
    Registered(u64),
    /// A session handles a selector no more, or nothing.
    Unregister(ConnectionId, Option<Selector>),
    /// A request for the handler on a connection of that shard.
    Ask(ConnectionId, Box<Ask>),
    /// A request whose key is at home there.
    AskByKey(Box<AskByKey>),
    /// What became of a request of that shard.
    Settle(Ticket, Box<Outcome>),
}

/// A request on its way to the home of its key.
#[derive(Clone, Debug)]
pub struct AskByKey {
    pub(super) ticket: Ticket,
    pub(super) request: Request,
    pub(super) due: Duration,
    pub(super) session: Arc<str>,
    pub(super) principal: Arc<str>,
}
