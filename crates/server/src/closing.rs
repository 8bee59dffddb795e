//! Connections that we are closing: each goes once it took what waits for it, or when its time is up. They are looked at when
//! something happened to them, not in every turn.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use engine::{Io, Socket};
use model::RandomState;

use crate::connection::{Native, State};
use crate::shard::Shard;

/// How long a connection that we close may take to receive the reason.
const CLOSE_PATIENCE: Duration = Duration::from_secs(5);

/// The connections that are being closed.
#[derive(Debug, Default)]
pub(crate) struct ClosingConnections {
    /// With their serials.
    all: HashMap<Socket, u32, RandomState>,
    /// When the time of each is up, the earliest first; some of them may be gone.
    until: VecDeque<(Duration, Socket, u32)>,
    /// To be looked at in this turn.
    touched: Vec<Socket>,
}

impl ClosingConnections {
    fn add(&mut self, socket: Socket, serial: u32, until: Duration) {
        self.touched.push(socket);
        if self.all.insert(socket, serial) != Some(serial) {
            self.until.push_back((until, socket, serial));
        }
    }

    /// Hears that something happened to a connection.
    pub(crate) fn touch(&mut self, socket: Socket) {
        if !self.all.is_empty() && self.all.contains_key(&socket) {
            self.touched.push(socket);
        }
    }

    /// Forgets a connection that is gone.
    pub(crate) fn forget(&mut self, socket: Socket) {
        self.all.remove(&socket);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether something happened that was not looked at.
    pub(crate) fn is_touched(&self) -> bool {
        !self.touched.is_empty()
    }

    /// When the time of the next one is up.
    pub(crate) fn due_at(&self) -> Option<Duration> {
        self.until.front().map(|(until, ..)| *until)
    }

    /// The next connection whose time is up.
    fn pop_due(&mut self, now: Duration) -> Option<Socket> {
        loop {
            let (_, socket, serial) = self.until.pop_front_if(|(until, ..)| *until <= now)?;
            if self.all.get(&socket) == Some(&serial) {
                return Some(socket);
            }
        }
    }
}

impl<I: Io> Shard<I> {
    /// Lets a connection go once it took what waits for it.
    pub(crate) fn close_soon(&mut self, socket: Socket) {
        let until = self.now.elapsed + CLOSE_PATIENCE;
        if let Some(connection) = self.open_connection(socket) {
            self.closing.add(socket, connection.serial, until);
        }
    }

    /// Drops the connections that took what waited for them, and those whose time is up.
    pub(crate) fn finish_closing(&mut self) {
        for socket in std::mem::take(&mut self.closing.touched) {
            self.note_work(1);
            if self.has_taken_all(socket) {
                self.drop_connection(socket);
            }
        }
        while let Some(socket) = self.closing.pop_due(self.now.elapsed) {
            self.note_work(1);
            self.drop_connection(socket);
        }
    }

    /// Whether a connection that is being closed took what waited for it.
    fn has_taken_all(&self, socket: Socket) -> bool {
        let Some(connection) = self.open_connection(socket) else { return false };
        self.closing.all.get(&socket) == Some(&connection.serial)
            && match &connection.state {
                State::Native(Native { session, .. }) => self.hub.answers_bytes(*session) == 0,
                State::Stream(stream) => self.hub.answers_bytes(stream.native.session) == 0,
                State::Polled(polled) => self.hub.answers_bytes(polled.native.session) == 0,
                State::Echo(echo) => echo.unsent.is_empty(),
                State::Device(attached) => attached.unsent.is_empty(),
                State::DeviceSocket(open) => open.unsent.is_empty(),
                State::Answering(answering) => answering.unsent.is_empty() && answering.is_whole,
                State::Head(_) | State::Body(_) => true,
            }
    }
}
