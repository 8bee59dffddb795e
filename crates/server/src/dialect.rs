//! What a shard does for a kind of conversation: each does so in a file of its own.

use engine::Io;
use hub::ConnectionId;
use protocol::websocket::Heard;

use crate::shard::Shard;

/// How a shard carries out what is said. What is not said otherwise holds for requests over HTTP, which are heard by
/// themselves.
pub(crate) trait Dialect<I: Io> {
    /// Hears a message on its WebSocket.
    fn hear(_: &mut Shard<I>, _: ConnectionId, _: Heard<'_>) {}

    /// Hears bytes of a request's open body, as far as the turn goes; answers how many.
    fn hear_bytes(_: &mut Shard<I>, _: ConnectionId, bytes: &[u8]) -> usize {
        bytes.len()
    }

    /// Hears that the socket takes more.
    fn handle_writable(shard: &mut Shard<I>, link: ConnectionId) {
        shard.send_unsent(link);
    }

    /// Hears that the connection is gone.
    fn handle_gone(&self, _: &mut Shard<I>, _: ConnectionId) {}

    /// The same as functions, which outlive the look at the connection.
    fn acts(&self) -> Acts<I> {
        Acts {
            hear: Self::hear,
            hear_bytes: Self::hear_bytes,
            handle_writable: Self::handle_writable,
        }
    }
}

/// What a [`Dialect`] does.
pub(crate) struct Acts<I> {
    pub hear: fn(&mut Shard<I>, ConnectionId, Heard<'_>),
    pub hear_bytes: fn(&mut Shard<I>, ConnectionId, &[u8]) -> usize,
    pub handle_writable: fn(&mut Shard<I>, ConnectionId),
}
