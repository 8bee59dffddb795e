//! The outside world as a shard needs it: the simulator implements it as well.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// A connection's socket, as its shard names it.
///
/// It is a small dense number (the descriptor, in a table private to the shard), so it indexes a
/// plain vector. The number is used again after `close`; an event that was already collected for
/// the old socket may then reach the new one, and is harmless there: it only says "look".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Socket(pub u32);

/// Something that happened outside since the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoEvent {
    /// A peer connected.
    Accepted {
        /// Its socket, non-blocking and watched already.
        socket: Socket,
        /// Where it comes from.
        peer: SocketAddr,
    },
    /// There may be bytes to receive (or the end of them, or an error). Said once per change.
    Readable {
        /// Where.
        socket: Socket,
        /// The last bytes wait: nothing more will be said, so receive until `Ended` or `Closed`.
        ends: bool,
    },
    /// There may be room to send again. Said once per change.
    Writable(Socket),
}

/// The result of `receive`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Received {
    /// So many bytes, at least 1. Fewer than the buffer holds means that no more wait; the end may.
    Bytes(usize),
    /// Nothing waits now; `Readable` will tell when something does.
    Nothing,
    /// The peer sends nothing more. It may have closed the connection, or only its own side of it: then it takes answers still.
    Ended,
    /// The connection broke.
    Closed,
}

/// The result of `send`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a socket may take less than it is given"]
pub enum Sent {
    /// So many bytes were taken, possibly 0. Fewer than given means that the socket is full;
    /// `Writable` will tell when it is not.
    Bytes(usize),
    /// The connection broke.
    Closed,
}

/// The counts of an [`Io`] since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoCounters {
    /// Connections accepted.
    pub accepts: u64,
    /// Connections closed by us, after either side wished it.
    pub closes: u64,
    /// Times that accepting paused because no descriptor or connection was left.
    pub accept_pauses: u64,
    /// `recv` calls.
    pub receives: u64,
    /// `send` calls.
    pub sends: u64,
    /// `send` calls that the socket took less of than given.
    pub sends_cut_short: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// TLS handshakes that succeeded.
    pub tls_handshakes: u64,
    /// TLS handshakes that failed.
    pub tls_handshakes_failed: u64,
    /// Times that a TLS handshake had to wait for a later turn.
    pub tls_handshakes_put_off: u64,
}

/// A connection that was refused before its shard heard of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Where it came from, if that can be said.
    pub peer: Option<IpAddr>,
    /// The number by which the floors above know the reason.
    pub code: u16,
    /// The reason in words.
    pub text: String,
}

/// A shard's view of the outside. Edge-triggered: each change is told once.
pub trait Io {
    /// Waits until something happened, a wake-up came, or `timeout` passed (`None`: no limit).
    fn wait(&mut self, timeout: Option<Duration>);

    /// The next thing that happened, of those that `wait` collected.
    ///
    /// `Accepted` events are paced: at most a configured number come out of one `wait`, so that a
    /// storm of new connections cannot starve the connected ones.
    fn poll_event(&mut self) -> Option<IoEvent>;

    /// Receives into `buffer`, which is not empty.
    fn receive(&mut self, socket: Socket, buffer: &mut [u8]) -> Received;

    /// Sends as much of `bytes` as the socket takes. One system call.
    fn send(&mut self, socket: Socket, bytes: &[u8]) -> Sent;

    /// Where the peer of a socket is, if that can be said.
    fn peer_address(&self, socket: Socket) -> Option<IpAddr>;

    /// Which listener accepted a socket: its place among them.
    fn listener(&self, socket: Socket) -> usize;

    /// Whose certificate the peer of a socket showed, if it showed one.
    fn peer_name(&self, _: Socket) -> Option<&str> {
        None
    }

    /// Closes the socket. Bytes already taken by `send` still go out.
    fn close(&mut self, socket: Socket);

    /// Closes the socket, and keeps its number from being given again.
    fn retire(&mut self, socket: Socket);

    /// A connection that was refused before its shard heard of it, if there was one.
    fn poll_refused(&mut self) -> Option<Refused> {
        None
    }

    /// The counts so far.
    fn counters(&self) -> IoCounters;
}
