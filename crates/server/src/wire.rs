//! Where the hub sends: sockets, and what waits for polls.

use std::collections::HashMap;

use engine::Io;
use hub::{ConnectionId, Hub, Outlet};
use model::RandomState;

use crate::closing::ClosingConnections;
use crate::connection;
use crate::encoder::NativeEncoder;
use crate::input::WaitingInputs;
use crate::memory::Memory;
use crate::poll::{self, Poll};
use crate::shard::Shard;

/// Sends before the shard looks for received bytes again: about a millisecond.
const SENDS_PER_TURN: usize = 256;

/// Where a hub sends.
pub(crate) struct Wire<'a, I> {
    io: &'a mut I,
    memory: &'a Memory,
    inputs: &'a mut WaitingInputs,
    closing: &'a mut ClosingConnections,
    polls: &'a mut HashMap<ConnectionId, Poll, RandomState>,
    poll_bytes_max: usize,
    /// Polled sessions that were told something.
    told: Vec<ConnectionId>,
    broken: Vec<ConnectionId>,
}

impl<I> Wire<'_, I> {
    /// The polled sessions that were told something, and the connections that broke.
    pub(crate) fn into_told_and_broken(self) -> (Vec<ConnectionId>, Vec<ConnectionId>) {
        (self.told, self.broken)
    }
}

impl<I: Io> Outlet for Wire<'_, I> {
    fn send(&mut self, link: ConnectionId, bytes: &[u8]) -> hub::Sent {
        self.inputs.wake(link);
        self.closing.touch(link);
        if link.socket().is_none() {
            let sent =
                poll::take(self.polls.get_mut(&link), bytes, self.poll_bytes_max, self.memory);
            if sent == hub::Sent::Taken(bytes.len()) {
                self.told.push(link);
            }
            return sent;
        }
        match connection::send(self.io, link, bytes) {
            engine::Sent::Bytes(taken) => hub::Sent::Taken(taken),
            engine::Sent::Closed => {
                self.broken.push(link);
                hub::Sent::Closed
            }
        }
    }
}

impl<I: Io> Shard<I> {
    /// Sends what the hub has for its sessions, as much as a turn may; answers whether there is more.
    pub(crate) fn flush(&mut self) -> bool {
        let now = self.now;
        let (hub, mut wire) = self.hub_and_wire();
        let has_more = hub.flush(&mut wire, SENDS_PER_TURN, now);
        let (told, broken) = wire.into_told_and_broken();
        self.settle_wire(told, broken);
        has_more
    }

    /// The hub, and where it sends.
    pub(crate) fn hub_and_wire(&mut self) -> (&mut Hub<NativeEncoder>, Wire<'_, I>) {
        let wire = Wire {
            io: &mut self.io,
            memory: &self.memory,
            inputs: &mut self.inputs,
            closing: &mut self.closing,
            polls: &mut self.transports.polls,
            poll_bytes_max: self.config.limits.poll_bytes_max,
            told: Vec::new(),
            broken: Vec::new(),
        };
        (&mut self.hub, wire)
    }

    /// Does what follows from what was sent.
    pub(crate) fn settle_wire(&mut self, told: Vec<ConnectionId>, broken: Vec<ConnectionId>) {
        told.into_iter().for_each(|link| self.answer_told_poll(link));
        broken.into_iter().for_each(|link| self.drop_connection(link));
    }
}
