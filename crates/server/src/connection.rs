//! What a shard remembers of one connection: how its bytes travel, times what is said. Idle WebSockets are the many: they must stay
//! small.

use std::collections::HashMap;
use std::sync::Arc;

use admin::AnswerTaker;
use engine::{Io, Sent, Socket};
use hub::{ConnectionId, SessionIndex};
use model::{Principal, RandomState};
use protocol::http::{BodyReader, RequestHead};
use protocol::websocket::Channel;
use protocol::{echo, native};

use crate::byte_queue::ByteQueue;
use crate::devices::{Attached, DeviceSocket};
use crate::input::Inbounds;
use crate::poll::Poll;

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
}

/// State of transports beside the connections themselves: of most connections there is nothing here.
#[derive(Debug, Default)]
pub(crate) struct Transports {
    /// Messages that are half-received.
    pub inbounds: Inbounds,
    /// State between polled sessions and their polls.
    pub polls: HashMap<ConnectionId, Poll, RandomState>,
    /// When responses that go on began, in whole seconds.
    pub responses: HashMap<ConnectionId, u32, RandomState>,
}

impl Transport {
    /// Whether its last words were said: nothing is heard any more.
    pub(crate) fn is_closing(&self) -> bool {
        match self {
            Self::Http => false,
            Self::WebSocket(channel) => channel.is_closing(),
            Self::Response { is_closing } | Self::Polls { is_closing } => *is_closing,
        }
    }
}

/// The conversation on a connection. A dialect is one of these, a folder of `protocol`, and its line in each match of `events`.
#[derive(Debug)]
pub(crate) enum Conversation {
    /// A request head is arriving; what is here of it, and of requests after it.
    Head(ByteQueue),
    /// A request body is arriving.
    Body(Box<Arriving>),
    /// A request was handed on; its answer is awaited or being sent.
    Answering(Box<Answering>),
    /// The native dialect.
    Native(Native),
    /// Everything comes back.
    Echo(Box<Echo>),
    /// An attached device.
    Device(Box<Attached>),
    /// An application asks one device.
    Queries(Box<DeviceSocket>),
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

impl Conversation {
    /// The session of the native dialect.
    pub(crate) fn native(&self) -> Option<&Native> {
        match self {
            Self::Native(native) => Some(native),
            _ => None,
        }
    }

    /// Mutable access to the native conversation.
    pub(crate) fn native_mut(&mut self) -> Option<&mut Native> {
        match self {
            Self::Native(native) => Some(native),
            _ => None,
        }
    }

    /// Bytes that the socket did not take yet, where they are kept here: the hub keeps those of its sessions.
    pub(crate) fn unsent(&self) -> Option<&ByteQueue> {
        match self {
            Self::Echo(echo) => Some(&echo.unsent),
            Self::Device(attached) => Some(&attached.unsent),
            Self::Queries(open) => Some(&open.unsent),
            Self::Head(_) | Self::Body(_) | Self::Answering(_) | Self::Native(_) => None,
        }
    }

    /// Mutable access to what was said and not taken.
    pub(crate) fn unsent_mut(&mut self) -> Option<&mut ByteQueue> {
        match self {
            Self::Echo(echo) => Some(&mut echo.unsent),
            Self::Device(attached) => Some(&mut attached.unsent),
            Self::Queries(open) => Some(&mut open.unsent),
            Self::Head(_) | Self::Body(_) | Self::Answering(_) | Self::Native(_) => None,
        }
    }

    /// Whether it may stand for days: such ones are looked at in turn, not all at once.
    pub(crate) fn is_long_lived(&self) -> bool {
        matches!(self, Self::Native(_) | Self::Device(_) | Self::Queries(_))
    }
}

/// A request whose body is arriving.
#[derive(Debug)]
pub(crate) struct Arriving {
    pub head: RequestHead,
    pub body: BodyReader,
    /// What the socket did not take yet of `100 Continue`.
    pub unsent: ByteQueue,
}

/// A request that was handed on.
#[derive(Debug, Default)]
pub(crate) struct Answering {
    pub keep_alive: bool,
    /// The request was a HEAD: the answer has no body.
    pub is_head: bool,
    /// Bytes received after the request.
    pub early: ByteQueue,
    /// Bytes of the answer that the socket did not take yet.
    pub unsent: ByteQueue,
    /// Where the API waits to make more of it.
    pub taker: Option<AnswerTaker>,
    /// All of the answer is here.
    pub is_whole: bool,
    /// When its first byte was here, in whole seconds.
    pub begun_at: Option<u32>,
}

/// A session of the native dialect.
#[derive(Debug)]
pub(crate) struct Native {
    pub session: SessionIndex,
    pub principal: Arc<Principal>,
    pub speech: native::Conversation,
}

/// A WebSocket that echoes.
#[derive(Debug)]
pub(crate) struct Echo {
    pub speech: echo::Conversation,
    pub unsent: ByteQueue,
}

/// Sends on the socket of a connection.
pub(crate) fn send(io: &mut impl Io, link: ConnectionId, bytes: &[u8]) -> Sent {
    match link.socket() {
        Some(socket) => io.send(Socket(socket), bytes),
        None => Sent::Closed,
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
