//! An `Io` over another one, in which connections begin once the headers of their proxies were read.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::{Io, IoCounters, IoEvent, Received, Refused, Sent, Socket};
use model::Code;

use crate::proxy::{self, HEADER_BYTES_MAX};
use crate::state::{Stage, State};

/// Whether headers of a peer are believed.
pub type IsTrusted = Arc<dyn Fn(IpAddr) -> bool + Send + Sync>;

/// What the connections of one listener begin with.
#[derive(Clone, Default)]
pub struct Listener {
    /// A PROXY header, which is believed of these peers; others are closed.
    pub header_from: Option<IsTrusted>,
}

/// Bounds of a [`FilteredIo`].
#[derive(Clone, Copy, Debug)]
pub struct FilterOptions {
    /// How long a connection may take until its first byte can reach the shard.
    pub opening: Duration,
}

/// Refusals that wait to be told: a shard asks in every turn.
const REFUSALS_MAX: usize = 256;

/// Connections of which some begin with more than a shard is to see.
pub struct FilteredIo<I> {
    io: I,
    listeners: Vec<Listener>,
    options: FilterOptions,
    /// By socket; empty where no listener expects anything.
    states: Vec<Option<Box<State>>>,
    events: VecDeque<IoEvent>,
    /// Until when connections have to be open, the earliest first; some of them may be, or be gone.
    opening: VecDeque<(Instant, Socket, u64)>,
    refusals: VecDeque<Refused>,
    scratch: Vec<u8>,
    last_id: u64,
}

impl<I: Io> FilteredIo<I> {
    /// The sockets of `io`, whose listeners stand in the order of `listeners`.
    pub fn new(io: I, listeners: Vec<Listener>, options: FilterOptions) -> Self {
        Self {
            io,
            listeners,
            options,
            states: Vec::new(),
            events: VecDeque::new(),
            opening: VecDeque::new(),
            refusals: VecDeque::new(),
            scratch: Vec::new(),
            last_id: 0,
        }
    }

    fn state(&mut self, socket: Socket) -> Option<&mut State> {
        self.states.get_mut(socket.0 as usize)?.as_deref_mut()
    }

    /// Takes up a connection; answers whether the shard is to hear of it.
    fn accept(&mut self, socket: Socket, peer: SocketAddr) -> bool {
        let listener = self.listeners.get(self.io.listener(socket));
        let Some(is_trusted) = listener.and_then(|it| it.header_from.clone()) else { return true };
        if !is_trusted(peer.ip()) {
            let text = "cannot take the connection: the listener expects PROXY headers, and the peer is not in \
                        access.trusted_proxies; add its range, or connect to another listener";
            self.refuse(Some(peer.ip()), Code::UntrustedProxy, text.into());
            self.io.close(socket);
            return false;
        }
        self.begin(socket, Stage::Header);
        // What came with the connection was not told of.
        self.read_header(socket, false);
        false
    }

    fn begin(&mut self, socket: Socket, stage: Stage) {
        let index = socket.0 as usize;
        if index >= self.states.len() {
            self.states.resize_with(index + 1, || None);
        }
        self.last_id += 1;
        self.states[index] = Some(Box::new(State::new(self.last_id, stage)));
        let until = Instant::now() + self.options.opening;
        self.opening.push_back((until, socket, self.last_id));
    }

    /// Receives more of the header of a connection. When it is whole, the shard hears of the connection.
    fn read_header(&mut self, socket: Socket, ends: bool) {
        self.scratch.resize(HEADER_BYTES_MAX, 0);
        let mut scratch = std::mem::take(&mut self.scratch);
        let received = self.io.receive(socket, &mut scratch);
        match received {
            Received::Bytes(count) => self.hear_header(socket, &scratch[..count], ends),
            Received::Nothing => {}
            Received::Ended | Received::Closed => self.forget(socket),
        }
        self.scratch = scratch;
    }

    fn hear_header(&mut self, socket: Socket, bytes: &[u8], ends: bool) {
        let peer = self.io.peer_address(socket);
        let Some(state) = self.state(socket) else { return };
        state.early.extend_from_slice(bytes);
        match proxy::parse(&state.early) {
            Ok(None) if ends => self.forget(socket),
            Ok(None) => {}
            Ok(Some(header)) => {
                state.early.drain(..header.len);
                state.client = header.client;
                state.stage = Stage::Open;
                let direct = SocketAddr::new(peer.unwrap_or(IpAddr::from([0, 0, 0, 0])), 0);
                let peer = header.client.unwrap_or(direct);
                self.events.push_back(IoEvent::Accepted { socket, peer });
                self.events.push_back(IoEvent::Readable { socket, ends });
            }
            Err(why) => {
                let text = format!(
                    "cannot take the connection: {why}; have the proxy send PROXY headers, or set proxy_protocol = \
                     false for the listener"
                );
                self.refuse(peer, Code::BadProxyHeader, text);
                self.forget(socket);
            }
        }
    }

    /// Closes a connection of which the shard does not know.
    fn forget(&mut self, socket: Socket) {
        self.drop_state(socket);
        self.io.close(socket);
    }

    fn drop_state(&mut self, socket: Socket) {
        if let Some(state) = self.states.get_mut(socket.0 as usize) {
            *state = None;
        }
    }

    fn refuse(&mut self, peer: Option<IpAddr>, code: Code, text: String) {
        if self.refusals.len() < REFUSALS_MAX {
            self.refusals.push_back(Refused { peer, code: code.number(), text });
        }
    }

    /// Closes the connections that took too long to open.
    fn close_late(&mut self) {
        let now = Instant::now();
        while let Some((_, socket, id)) = self.opening.pop_front_if(|(until, ..)| *until <= now) {
            let is_late = |state: &mut State| state.id == id && state.stage != Stage::Open;
            if !self.state(socket).is_some_and(is_late) {
                continue;
            }
            let text =
                "cannot wait any longer for the connection to open: it took longer than opening_ms";
            let peer = self.io.peer_address(socket);
            self.refuse(peer, Code::SlowOpening, text.into());
            self.forget(socket);
        }
    }

    /// How long to wait at most, so that connections that open too slowly are closed.
    fn limit_wait(&self, timeout: Option<Duration>) -> Option<Duration> {
        if !self.events.is_empty() {
            return Some(Duration::ZERO);
        }
        let Some((until, ..)) = self.opening.front() else { return timeout };
        let own = until.saturating_duration_since(Instant::now());
        Some(timeout.map_or(own, |timeout| timeout.min(own)))
    }
}

impl<I: Io> Io for FilteredIo<I> {
    fn wait(&mut self, timeout: Option<Duration>) {
        let timeout = self.limit_wait(timeout);
        self.io.wait(timeout);
        if !self.opening.is_empty() {
            self.close_late();
        }
    }

    fn poll_event(&mut self) -> Option<IoEvent> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            let event = self.io.poll_event()?;
            match event {
                IoEvent::Accepted { socket, peer } => {
                    if self.accept(socket, peer) {
                        return Some(event);
                    }
                }
                IoEvent::Readable { socket, ends } => match self.state(socket) {
                    Some(state) if state.stage == Stage::Header => self.read_header(socket, ends),
                    _ => return Some(event),
                },
                IoEvent::Writable(socket) => match self.state(socket) {
                    Some(state) if state.stage == Stage::Header => {}
                    _ => return Some(event),
                },
            }
        }
    }

    fn receive(&mut self, socket: Socket, buffer: &mut [u8]) -> Received {
        let early = match self.state(socket) {
            Some(state) if !state.early.is_empty() => state.take_early(buffer),
            _ => 0,
        };
        if early == 0 {
            return self.io.receive(socket, buffer);
        }
        if early == buffer.len() {
            return Received::Bytes(early);
        }
        match self.io.receive(socket, &mut buffer[early..]) {
            Received::Bytes(count) => Received::Bytes(early + count),
            Received::Nothing => Received::Bytes(early),
            Received::Ended | Received::Closed => {
                // The socket says so again when it is asked.
                self.events.push_back(IoEvent::Readable { socket, ends: true });
                Received::Bytes(early)
            }
        }
    }

    fn send(&mut self, socket: Socket, bytes: &[u8]) -> Sent {
        self.io.send(socket, bytes)
    }

    fn peer_address(&self, socket: Socket) -> Option<IpAddr> {
        let state = self.states.get(socket.0 as usize).and_then(Option::as_deref);
        let client = state.and_then(|state| state.client).map(|client| client.ip());
        client.or_else(|| self.io.peer_address(socket))
    }

    fn listener(&self, socket: Socket) -> usize {
        self.io.listener(socket)
    }

    fn poll_refused(&mut self) -> Option<Refused> {
        self.refusals.pop_front()
    }

    fn close(&mut self, socket: Socket) {
        self.drop_state(socket);
        self.io.close(socket);
    }

    fn retire(&mut self, socket: Socket) {
        self.drop_state(socket);
        self.io.retire(socket);
    }

    fn counters(&self) -> IoCounters {
        self.io.counters()
    }
}
