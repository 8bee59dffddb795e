//! The connections of a shard: their sockets, what is known of each, whose input waits, and which are being closed. What is said
//! on them is carried out elsewhere: nothing here knows the shard or its hub.

mod closing;
mod connection;
mod input;
mod poll;
mod subscribing;
mod wire;

use std::collections::{HashSet, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use access::Counted;
use engine::{Io, Received, Sent, Socket};
use hub::{Chunks, Closed, ConnectionId, Connections};
use model::RandomState;
use protocol::websocket::Inflater;

use self::closing::ClosingConnections;
use self::connection::Transports;
pub(crate) use self::connection::{Connection, Transport};
use self::input::WaitingInputs;
pub(crate) use self::input::{CommandSource, Commands, Waiting};
pub(crate) use self::poll::{Poll, Polled};
use self::subscribing::Subscribing;
pub(crate) use self::wire::Wire;
use crate::dialects::Speech;
use crate::port::session::LocalSession;

const READ_BUFFER_BYTES: usize = 64 << 10;

/// The connections of a shard, over real sockets or simulated ones.
pub(crate) struct Edge<I> {
    pub io: I,
    pub connections: Connections<Connection>,
    pub transports: Transports,
    /// Connections of which more may be received or carried out than was: their events were told already.
    pub inputs: WaitingInputs,
    pub subscribing: Subscribing,
    /// Connections to be closed once they took what waits for them, or when the time is up.
    pub closing: ClosingConnections,
    pub inflater: Inflater,
    /// Connections beyond this many get no session, only ordinary answers.
    pub sessions_max: usize,
    /// The places of connections among those of their address, apart: most servers see few addresses that count.
    counted: Chunks<Counted>,
    /// Connections whose peers send nothing more and are to be answered still.
    half_closed: HashSet<ConnectionId, RandomState>,
    /// Connections about HTTP, and some that were: the sweep drops those that became sessions.
    requests: Vec<ConnectionId>,
    /// WebSockets that have to present a token until then, the earliest first.
    unauthenticated: VecDeque<(ConnectionId, Duration)>,
    buffer: Vec<u8>,
}

/// A connection that is gone.
pub(crate) struct Gone {
    pub connection: Connection,
    /// Its place among those of its address.
    pub counted: Option<Counted>,
    /// What stood between it and its polls.
    pub poll: Option<Poll>,
    /// What stood between it and its bridge.
    pub local: Option<LocalSession>,
}

impl<I: Io> Edge<I> {
    /// No connections; at most `sessions_max` sessions are to be.
    pub(crate) fn new(io: I, sessions_max: usize) -> Self {
        Self {
            io,
            connections: Connections::default(),
            transports: Transports::default(),
            inputs: WaitingInputs::default(),
            subscribing: Subscribing::default(),
            closing: ClosingConnections::default(),
            inflater: Inflater::default(),
            sessions_max,
            counted: Chunks::default(),
            half_closed: HashSet::default(),
            requests: Vec::new(),
            unauthenticated: VecDeque::new(),
            buffer: vec![0; READ_BUFFER_BYTES],
        }
    }

    /// Takes a socket in. One whose names are used up is retired.
    pub(crate) fn open(&mut self, socket: Socket, now: u32) -> Option<ConnectionId> {
        let Ok(link) = self.connections.open(socket.0, Connection::new(now)) else {
            self.io.retire(socket);
            return None;
        };
        self.requests.push(link);
        Some(link)
    }

    /// Forgets a connection and closes its socket.
    #[must_use = "what the connection held is to be given back"]
    pub(crate) fn close(&mut self, link: ConnectionId) -> Option<Gone> {
        let Closed { connection, is_used_up } = self.connections.close(link)?;
        self.inputs.forget(link);
        self.closing.forget(link);
        self.subscribing.forget(link);
        self.transports.inbounds.take(link);
        self.half_closed.remove(&link);
        self.transports.responses.remove(&link);
        let poll = self.transports.polls.remove(&link);
        let local = match link.socket() {
            Some(_) => None,
            None => self.transports.locals.remove(&link),
        };
        let counted = match link.socket() {
            Some(socket) => self.counted.take(socket as usize),
            None => poll.as_ref().and_then(|poll| poll.counted),
        };
        match link.socket().map(Socket) {
            None => {}
            Some(socket) if is_used_up => self.io.retire(socket),
            Some(socket) => self.io.close(socket),
        }
        Some(Gone { connection, counted, poll, local })
    }

    /// A connection that is there still.
    pub(crate) fn get(&self, link: ConnectionId) -> Option<&Connection> {
        self.connections.get(link)
    }

    /// Mutable access to it.
    pub(crate) fn get_mut(&mut self, link: ConnectionId) -> Option<&mut Connection> {
        self.connections.get_mut(link)
    }

    /// Where the peer of a connection is, if that can be said.
    pub(crate) fn peer_of(&self, link: ConnectionId) -> Option<IpAddr> {
        self.get(link)?;
        self.io.peer_address(Socket(link.socket()?))
    }

    /// Notes the place of a connection among those of its address.
    pub(crate) fn note_counted(&mut self, link: ConnectionId, counted: Counted) {
        if let Some(socket) = link.socket() {
            self.counted.put(socket as usize, counted);
        }
    }

    /// The place of a connection among those of its address.
    pub(crate) fn counted(&self, link: ConnectionId) -> Option<Counted> {
        self.get(link)?;
        match link.socket() {
            Some(socket) => self.counted.get(socket as usize).copied(),
            None => self.transports.polls.get(&link)?.counted,
        }
    }

    /// Receives on the socket of a connection. What was received is in the buffer, which is to be given back.
    #[must_use = "the buffer is to be given back"]
    pub(crate) fn receive(&mut self, link: ConnectionId) -> (Received, Vec<u8>) {
        let mut buffer = std::mem::take(&mut self.buffer);
        let received = match link.socket() {
            Some(socket) => self.io.receive(Socket(socket), &mut buffer),
            None => Received::Nothing,
        };
        (received, buffer)
    }

    /// Gives the buffer back.
    pub(crate) fn put_buffer(&mut self, buffer: Vec<u8>) {
        self.buffer = buffer;
    }

    /// Hears that something happened to a connection by which its input may go on, or its closing.
    pub(crate) fn touch(&mut self, link: ConnectionId) {
        self.inputs.wake(link);
        self.closing.touch(link);
    }

    /// Sends what a connection's socket did not take yet, where that is kept here; answers false if the socket is closed.
    #[must_use = "the socket may be closed"]
    pub(crate) fn send_unsent(&mut self, link: ConnectionId) -> bool {
        self.touch(link);
        let connection = self.connections.get_mut(link);
        let unsent = connection.and_then(|open| open.conversation.unsent_mut());
        let Some(unsent) = unsent.filter(|unsent| !unsent.is_empty()) else { return true };
        match send(&mut self.io, link, unsent.rest()) {
            Sent::Bytes(taken) => {
                unsent.take(taken);
                true
            }
            Sent::Closed => false,
        }
    }

    /// Lets a connection's input go on in the next turn.
    pub(crate) fn go_on_later(&mut self, link: ConnectionId) -> Option<&mut Waiting> {
        self.get(link)?;
        Some(self.inputs.add(link))
    }

    /// Keeps commands that were received and not carried out.
    pub(crate) fn keep_commands(&mut self, link: ConnectionId, commands: Commands) {
        if let Some(waiting) = self.go_on_later(link) {
            waiting.commands.push_back(commands);
        }
    }

    /// Keeps what was received and not decoded.
    pub(crate) fn keep_bytes(&mut self, link: ConnectionId, bytes: &[u8]) {
        if !bytes.is_empty()
            && let Some(waiting) = self.go_on_later(link)
        {
            waiting.bytes.append(bytes);
        }
    }

    /// Lets a connection go whose last words were said, once it took what waits for it. Input that waited has a turn, which
    /// finds that out.
    pub(crate) fn end_soon(&mut self, link: ConnectionId, now: Duration) {
        self.inputs.wake(link);
        if self.get(link).is_some() {
            self.closing.add(link, now);
        }
    }

    /// Notes that a peer sends nothing more, and is to be answered still.
    pub(crate) fn note_half_closed(&mut self, link: ConnectionId) {
        self.half_closed.insert(link);
    }

    /// Whether a peer sends nothing more.
    pub(crate) fn is_half_closed(&self, link: ConnectionId) -> bool {
        self.half_closed.contains(&link)
    }

    /// The connections about HTTP, which are looked at once a second.
    pub(crate) fn requests(&mut self) -> Vec<ConnectionId> {
        let connections = &self.connections;
        let is_request = |link: &ConnectionId| {
            connections.get(*link).is_some_and(|open| !open.conversation.is_long_lived())
        };
        self.requests.retain(is_request);
        self.requests.clone()
    }

    /// Notes that a WebSocket has to present a token until then.
    pub(crate) fn expect_token(&mut self, link: ConnectionId, until: Duration) {
        self.unauthenticated.push_back((link, until));
    }

    /// The next WebSocket whose time to present a token is up. It may have, or be gone.
    #[must_use]
    pub(crate) fn poll_unauthenticated(&mut self, now: Duration) -> Option<ConnectionId> {
        let (link, _) = self.unauthenticated.pop_front_if(|(.., until)| *until <= now)?;
        Some(link)
    }
}

/// Sends on the socket of a connection.
pub(crate) fn send(io: &mut impl Io, link: ConnectionId, bytes: &[u8]) -> Sent {
    match link.socket() {
        Some(socket) => io.send(Socket(socket), bytes),
        None => Sent::Closed,
    }
}
