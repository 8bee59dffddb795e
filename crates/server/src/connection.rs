//! What a shard remembers of one connection. Idle WebSockets are the many: they must stay small.

use std::sync::Arc;

use access::Counted;
use admin::AnswerTaker;
use engine::{Io, Sent, Socket};
use hub::{ConnectionId, SessionIndex};
use model::{Features, Principal};
use protocol::http::{BodyReader, RequestHead};
use protocol::native::Framing;
use protocol::websocket::{Deflater, Inbound};

use crate::byte_queue::ByteQueue;
use crate::devices::{Attached, DeviceSocket};
use crate::reply::Asker;

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    /// When the peer was last heard, in whole seconds; for requests, when they began.
    pub heard_at: u32,
    pub state: State,
}

/// What a connection is at.
#[derive(Debug)]
pub(crate) enum State {
    /// A request head is arriving; what is here of it, and of requests after it.
    Head(ByteQueue),
    /// A request body is arriving.
    Body(Box<Arriving>),
    /// A request was handed on; its answer is awaited or being sent.
    Answering(Box<Answering>),
    /// A WebSocket that speaks the native dialect.
    Native(Native),
    /// A WebSocket that echoes.
    Echo(Box<Echo>),
    /// A response that goes on.
    Stream(Box<Stream>),
    /// An attached device.
    Device(Box<Attached>),
    /// A WebSocket of an application for one device.
    DeviceSocket(Box<DeviceSocket>),
    /// A session that is polled. It has no connection of its own.
    Polled(Box<Polled>),
}

impl State {
    /// What takes the peer's WebSocket frames, where it is kept here.
    pub(crate) fn inbound_mut(&mut self) -> Option<&mut Inbound> {
        match self {
            Self::Echo(echo) => Some(&mut echo.inbound),
            Self::DeviceSocket(open) => Some(&mut open.inbound),
            Self::Head(_)
            | Self::Body(_)
            | Self::Answering(_)
            | Self::Native(_)
            | Self::Stream(_)
            | Self::Device(_)
            | Self::Polled(_) => None,
        }
    }

    /// What speaks the native dialect, however it is carried.
    pub(crate) fn native(&self) -> Option<&Native> {
        match self {
            Self::Native(native) => Some(native),
            Self::Stream(stream) => Some(&stream.native),
            Self::Polled(polled) => Some(&polled.native),
            Self::Head(_)
            | Self::Body(_)
            | Self::Answering(_)
            | Self::Echo(_)
            | Self::Device(_)
            | Self::DeviceSocket(_) => None,
        }
    }

    /// Whether it may stand for days: such ones are looked at in turn, not all at once.
    pub(crate) fn is_long_lived(&self) -> bool {
        matches!(self, Self::Device(_) | Self::DeviceSocket(_)) || self.native().is_some()
    }

    /// Mutable access to the native conversation.
    pub(crate) fn native_mut(&mut self) -> Option<&mut Native> {
        match self {
            Self::Native(native) => Some(native),
            Self::Stream(stream) => Some(&mut stream.native),
            Self::Polled(polled) => Some(&mut polled.native),
            Self::Head(_)
            | Self::Body(_)
            | Self::Answering(_)
            | Self::Echo(_)
            | Self::Device(_)
            | Self::DeviceSocket(_) => None,
        }
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

/// A response that goes on: Server-Sent Events, or lines.
#[derive(Debug)]
pub(crate) struct Stream {
    pub native: Native,
    pub framing: Framing,
    /// When it began, in whole seconds.
    pub opened_at: u32,
}

/// A session that is polled.
#[derive(Debug)]
pub(crate) struct Polled {
    pub native: Native,
    /// Its place among the connections of its client's address.
    pub counted: Option<Counted>,
    /// The poll that waits for something to tell.
    pub asker: Option<Asker>,
    /// What the next answer will say.
    pub unsent: Vec<u8>,
    /// The number of the last answer.
    pub batch: u64,
    /// The last answer, until it is known to have arrived.
    pub told: Vec<u8>,
}

/// A session of the native dialect.
#[derive(Debug)]
pub(crate) struct Native {
    pub session: SessionIndex,
    pub principal: Arc<Principal>,
    /// Bytes that the answers under way to it may have.
    pub under_way: u32,
    /// A command was heard: `hello` comes too late.
    pub has_spoken: bool,
    /// What the peer named, so that it may be sent.
    pub features: Features,
    /// A ping is out since the peer was last heard.
    pub is_pinged: bool,
    /// We are closing it: nothing is read any more.
    pub is_closing: bool,
}

/// A WebSocket that echoes.
#[derive(Debug, Default)]
pub(crate) struct Echo {
    pub inbound: Inbound,
    /// Compresses what is sent back, if that was agreed.
    pub deflater: Option<Deflater>,
    pub unsent: ByteQueue,
    pub is_closing: bool,
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
