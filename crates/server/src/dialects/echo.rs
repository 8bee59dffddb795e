//! WebSockets that echo.

use protocol::echo;

use crate::byte_queue::ByteQueue;

/// A WebSocket that echoes.
#[derive(Debug)]
pub(crate) struct Echo {
    pub speech: echo::Conversation,
    pub unsent: ByteQueue,
}
