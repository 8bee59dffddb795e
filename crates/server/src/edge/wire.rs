//! Where the hub sends: sockets, and what waits for polls.

use engine::Io;
use hub::{ConnectionId, Outlet};

use super::{Edge, send};
use crate::memory::Memory;

/// Where a hub sends.
pub(crate) struct Wire<'a, I> {
    edge: &'a mut Edge<I>,
    memory: &'a Memory,
    poll_bytes_max: usize,
    /// Sessions without a socket that were told something.
    told: Vec<ConnectionId>,
    broken: Vec<ConnectionId>,
}

impl<'a, I> Wire<'a, I> {
    pub(crate) fn new(edge: &'a mut Edge<I>, memory: &'a Memory, poll_bytes_max: usize) -> Self {
        Self { edge, memory, poll_bytes_max, told: Vec::new(), broken: Vec::new() }
    }

    /// The sessions without a socket that were told something, and the connections that broke.
    pub(crate) fn into_told_and_broken(self) -> (Vec<ConnectionId>, Vec<ConnectionId>) {
        (self.told, self.broken)
    }
}

impl<I: Io> Outlet for Wire<'_, I> {
    fn send(&mut self, link: ConnectionId, bytes: &[u8]) -> hub::Sent {
        self.edge.touch(link);
        if link.socket().is_none() {
            if let Some(local) = self.edge.transports.locals.get_mut(&link) {
                self.told.push(link);
                return local.take(bytes);
            }
            let Some(poll) = self.edge.transports.polls.get_mut(&link) else {
                return hub::Sent::Closed;
            };
            let sent = poll.take(bytes, self.poll_bytes_max, self.memory);
            if sent == hub::Sent::Taken(bytes.len()) {
                self.told.push(link);
            }
            return sent;
        }
        match send(&mut self.edge.io, link, bytes) {
            engine::Sent::Bytes(taken) => hub::Sent::Taken(taken),
            engine::Sent::Closed => {
                self.broken.push(link);
                hub::Sent::Closed
            }
        }
    }
}
