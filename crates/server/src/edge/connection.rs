//! What a shard remembers of one connection: how its bytes travel, times what is said. Idle WebSockets are the many: they must stay
//! small.

use std::collections::HashMap;

use hub::ConnectionId;
use model::RandomState;
use protocol::websocket::Channel;

use super::input::Inbounds;
use super::poll::Poll;
use crate::byte_queue::ByteQueue;
use crate::dialects::{Conversation, Native};
use crate::port::session::Locals;

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    /// When the peer was last heard, in whole seconds; for requests, when they began.
    pub heard_at: u32,
    pub transport: Transport,
    pub conversation: Conversation,
}

/// How a connection's bytes travel. What most connections do not need is beside them, in [`Transports`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Transport {
    /// Requests, or one whose body stays open.
    Http,
    /// A WebSocket.
    WebSocket(Channel),
    /// The body of a response that goes on.
    Response { is_closing: bool },
    /// None: what is told waits for polls.
    Polls { is_closing: bool },
    /// None: a bridge of this process is told records.
    Local { is_closing: bool },
}

/// State of transports beside the connections themselves: of most connections there is nothing here.
#[derive(Debug, Default)]
pub(crate) struct Transports {
    /// Messages that are half-received.
    pub inbounds: Inbounds,
    /// State between polled sessions and their polls.
    pub polls: HashMap<ConnectionId, Poll, RandomState>,
    /// State of the sessions of bridges.
    pub locals: Locals,
    /// When responses that go on began, in whole seconds.
    pub responses: HashMap<ConnectionId, u32, RandomState>,
}

impl Transport {
    /// Whether its last words were said: nothing is heard any more.
    pub(crate) fn is_closing(&self) -> bool {
        match self {
            Self::Http => false,
            Self::WebSocket(channel) => channel.is_closing(),
            Self::Response { is_closing }
            | Self::Polls { is_closing }
            | Self::Local { is_closing } => *is_closing,
        }
    }
}

impl Connection {
    /// A connection on which requests may come.
    pub(crate) fn new(heard_at: u32) -> Self {
        let conversation = Conversation::Head(ByteQueue::default());
        Self { heard_at, transport: Transport::Http, conversation }
    }

    /// The session of the native dialect, unless it is being closed.
    pub(crate) fn open_native(&self) -> Option<&Native> {
        self.conversation.native().filter(|_| !self.transport.is_closing())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_small() {
        assert!(size_of::<Option<Connection>>() <= 32, "{}", size_of::<Option<Connection>>());
    }
}
