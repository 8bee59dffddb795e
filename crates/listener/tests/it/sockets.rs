//! Sockets in memory: what the other side says comes in pieces, and so much is taken of what is said.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use engine::{Io, IoCounters, IoEvent, Received, Sent, Socket};

/// One socket's two directions.
#[derive(Default)]
pub struct Wire {
    /// What the peer sent.
    pub to_server: VecDeque<u8>,
    /// What the server sent.
    pub to_client: Vec<u8>,
    /// How many bytes the socket takes until it is full.
    pub room: usize,
    /// The most that one call receives.
    pub piece: usize,
    pub has_ended: bool,
    pub is_closed: bool,
    pub listener: usize,
}

/// Some of them.
#[derive(Default)]
pub struct TestIo {
    pub wires: Vec<Wire>,
    pub events: VecDeque<IoEvent>,
}

impl TestIo {
    /// A peer connects.
    pub fn connect(&mut self, listener: usize, piece: usize) -> Socket {
        let socket = Socket(self.wires.len() as u32);
        self.wires.push(Wire { room: usize::MAX, piece, listener, ..Wire::default() });
        let peer = SocketAddr::from(([10, 0, 0, 1], 1));
        self.events.push_back(IoEvent::Accepted { socket, peer });
        socket
    }

    /// A peer sends.
    pub fn say(&mut self, socket: Socket, bytes: &[u8]) {
        self.wires[socket.0 as usize].to_server.extend(bytes);
        self.events.push_back(IoEvent::Readable { socket, ends: false });
    }

    /// A socket has room again.
    pub fn make_room(&mut self, socket: Socket, room: usize) {
        self.wires[socket.0 as usize].room = room;
        self.events.push_back(IoEvent::Writable(socket));
    }
}

impl Io for TestIo {
    fn wait(&mut self, _: Option<Duration>) {}

    fn poll_event(&mut self) -> Option<IoEvent> {
        self.events.pop_front()
    }

    fn receive(&mut self, socket: Socket, buffer: &mut [u8]) -> Received {
        let wire = &mut self.wires[socket.0 as usize];
        let count = wire.to_server.len().min(buffer.len()).min(wire.piece);
        for (to, from) in buffer.iter_mut().zip(wire.to_server.drain(..count)) {
            *to = from;
        }
        match (count, wire.has_ended) {
            (0, true) => Received::Ended,
            (0, false) => Received::Nothing,
            _ => {
                // A short piece says that no more waits: if there is, it is told of.
                if !wire.to_server.is_empty() {
                    self.events.push_back(IoEvent::Readable { socket, ends: false });
                }
                Received::Bytes(count)
            }
        }
    }

    fn send(&mut self, socket: Socket, bytes: &[u8]) -> Sent {
        let wire = &mut self.wires[socket.0 as usize];
        if wire.is_closed {
            return Sent::Closed;
        }
        let count = bytes.len().min(wire.room);
        wire.to_client.extend(&bytes[..count]);
        wire.room -= count;
        Sent::Bytes(count)
    }

    fn peer_address(&self, _: Socket) -> Option<IpAddr> {
        Some(IpAddr::from([10, 0, 0, 1]))
    }

    fn listener(&self, socket: Socket) -> usize {
        self.wires[socket.0 as usize].listener
    }

    fn close(&mut self, socket: Socket) {
        self.wires[socket.0 as usize].is_closed = true;
    }

    fn retire(&mut self, socket: Socket) {
        self.close(socket);
    }

    fn counters(&self) -> IoCounters {
        IoCounters::default()
    }
}
