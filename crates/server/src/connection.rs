//! What a shard remembers of one connection. Idle WebSockets are the many: they must stay small.

use std::sync::Arc;

use hub::SessionIndex;
use model::Principal;
use protocol::http::{BodyReader, RequestHead};
use protocol::websocket::{Deflater, Inbound};

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    /// Tells connections apart that had the same socket number.
    pub serial: u32,
    /// When the peer was last heard, in whole seconds; for requests, when they began.
    pub heard_at: u32,
    pub state: State,
}

/// What a connection is at.
#[derive(Debug)]
pub(crate) enum State {
    /// A request head is arriving; these bytes of it are here.
    Head(Vec<u8>),
    /// A request body is arriving.
    Body(Box<Arriving>),
    /// A request was handed on; its answer is awaited or being sent.
    Answering(Box<Answering>),
    /// A WebSocket that speaks the native dialect.
    Native(Native),
    /// A WebSocket that echoes.
    Echo(Box<Echo>),
}

/// A request whose body is arriving.
#[derive(Debug)]
pub(crate) struct Arriving {
    pub head: RequestHead,
    pub body: BodyReader,
}

/// A request that was handed on.
#[derive(Debug, Default)]
pub(crate) struct Answering {
    pub keep_alive: bool,
    /// Bytes received after the request.
    pub early: Vec<u8>,
    /// Bytes of the answer that the socket did not take yet.
    pub unsent: Vec<u8>,
    /// All of the answer is here.
    pub is_whole: bool,
}

/// A WebSocket that speaks the native dialect.
#[derive(Debug)]
pub(crate) struct Native {
    pub session: SessionIndex,
    pub inbound: Inbound,
    pub principal: Arc<Principal>,
    /// A command was heard: `hello` comes too late.
    pub has_spoken: bool,
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
    pub unsent: Vec<u8>,
    pub is_closing: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_small() {
        assert!(size_of::<Option<Connection>>() <= 48, "{}", size_of::<Option<Connection>>());
    }
}
