//! An `Io` over another one, in which connections begin once the headers of their proxies were read, and which encrypts.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::{Io, IoCounters, IoEvent, Received, Refused, Sent, Socket};
use model::Code;

use crate::proxy;
use crate::state::{Stage, State};
use crate::tls::TlsSource;

/// Whether headers of a peer are believed.
pub type IsTrusted = Arc<dyn Fn(IpAddr) -> bool + Send + Sync>;

/// The openings of one listener's connections.
#[derive(Clone, Default)]
pub struct Listener {
    /// A PROXY header, which is believed of these peers; others are closed.
    pub header_from: Option<IsTrusted>,
    /// A TLS handshake.
    pub tls: Option<Arc<TlsSource>>,
}

/// Bounds of a [`FilteredIo`].
#[derive(Clone, Copy, Debug)]
pub struct FilterOptions {
    /// How long a connection may take until its first byte can reach the shard.
    pub opening: Duration,
    /// Steps of handshakes that one turn takes at most; each costs up to some 200 µs.
    pub handshakes_per_turn_max: usize,
}

/// Refusals that wait to be told: a shard asks in every turn.
const REFUSALS_MAX: usize = 256;
/// How long what was said last may take to go out.
const LINGER: Duration = Duration::from_secs(5);
/// Bytes that are received at a time.
const SCRATCH_BYTES: usize = 64 << 10;

/// Connections of which some begin with more than a shard is to see.
pub struct FilteredIo<I> {
    pub(crate) io: I,
    listeners: Vec<Listener>,
    options: FilterOptions,
    /// By socket; empty where no listener expects anything.
    states: Vec<Option<Box<State>>>,
    pub(crate) events: VecDeque<IoEvent>,
    /// Events of the next turn, so that one busy connection does not keep a turn from its end.
    pub(crate) later: Vec<IoEvent>,
    /// Until when connections have to be open, the earliest first; some of them may be, or be gone.
    opening: VecDeque<(Instant, Socket, u64)>,
    /// The same for the last words of those that were closed.
    lingering: VecDeque<(Instant, Socket, u64)>,
    /// Handshakes that go on in a later turn.
    pub(crate) put_off: VecDeque<(Socket, u64)>,
    /// Steps of handshakes that are left of this turn.
    pub(crate) steps_left: usize,
    pub(crate) steps_in_turn: usize,
    refused: VecDeque<Refused>,
    pub(crate) scratch: Vec<u8>,
    pub(crate) sealed: Vec<u8>,
    last_id: u64,
    pub(crate) handshakes: Handshakes,
}

/// The counts of handshakes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handshakes {
    /// Those that succeeded.
    pub done: u64,
    /// Those that failed.
    pub failed: u64,
    /// Times that one had to wait for a later turn.
    pub put_off: u64,
    /// Steps of the busiest turn.
    pub steps_peak: usize,
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
            later: Vec::new(),
            opening: VecDeque::new(),
            lingering: VecDeque::new(),
            put_off: VecDeque::new(),
            steps_left: options.handshakes_per_turn_max,
            steps_in_turn: 0,
            refused: VecDeque::new(),
            scratch: Vec::new(),
            sealed: Vec::new(),
            last_id: 0,
            handshakes: Handshakes::default(),
        }
    }

    /// The sockets below.
    pub fn io_mut(&mut self) -> &mut I {
        &mut self.io
    }

    /// The counts of handshakes.
    pub fn handshakes(&self) -> Handshakes {
        self.handshakes
    }

    pub(crate) fn state(&mut self, socket: Socket) -> Option<&mut State> {
        self.states.get_mut(socket.0 as usize)?.as_deref_mut()
    }

    fn stage(&self, socket: Socket) -> Option<Stage> {
        Some(self.states.get(socket.0 as usize)?.as_deref()?.stage)
    }

    /// The buffer to receive into.
    pub(crate) fn take_scratch(&mut self) -> Vec<u8> {
        self.scratch.resize(SCRATCH_BYTES, 0);
        std::mem::take(&mut self.scratch)
    }

    /// Takes up a connection; answers whether the shard is to hear of it now.
    fn accept(&mut self, socket: Socket, peer: SocketAddr) -> bool {
        let Some(listener) = self.listeners.get(self.io.listener(socket)) else { return true };
        let is_tls = listener.tls.is_some();
        match &listener.header_from {
            Some(is_trusted) if is_trusted(peer.ip()) => {
                self.begin(socket, Stage::Header);
                false
            }
            Some(_) => {
                let text = "cannot take the connection: the listener expects PROXY headers, and the peer is not in \
                            access.trusted_proxies; add its range, or connect to another listener";
                self.refuse(Some(peer.ip()), Code::UntrustedProxy, text.into());
                self.io.close(socket);
                false
            }
            None => {
                if is_tls {
                    self.begin(socket, Stage::Handshake);
                }
                true
            }
        }
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

    /// The settings of a connection's handshake.
    pub(crate) fn tls_of(&self, socket: Socket) -> Option<&Arc<TlsSource>> {
        self.listeners.get(self.io.listener(socket))?.tls.as_ref()
    }

    /// Receives more of the header of a connection. When it is whole, the shard hears of the connection.
    fn read_header(&mut self, socket: Socket, ends: bool) {
        let mut scratch = self.take_scratch();
        // No more than a header may be: what comes after it is received by whom it is for.
        let received = self.io.receive(socket, &mut scratch[..proxy::HEADER_BYTES_MAX]);
        match received {
            Received::Bytes(count) => self.hear_header(socket, &scratch[..count], ends),
            Received::Nothing => {}
            Received::Ended | Received::Closed => self.forget(socket),
        }
        self.scratch = scratch;
    }

    fn hear_header(&mut self, socket: Socket, bytes: &[u8], ends: bool) {
        let peer = self.io.peer_address(socket);
        let is_tls = self.tls_of(socket).is_some();
        let Some(state) = self.state(socket) else { return };
        state.incoming.extend_from_slice(bytes);
        match proxy::parse(&state.incoming) {
            Ok(None) if ends => self.forget(socket),
            Ok(None) => {}
            Ok(Some(header)) => {
                state.client = header.client;
                let mut rest = std::mem::take(&mut state.incoming);
                rest.drain(..header.len);
                match is_tls {
                    true => {
                        (state.stage, state.incoming) = (Stage::Handshake, rest);
                        state.is_incoming_new = true;
                    }
                    false => (state.stage, state.early) = (Stage::Open, rest),
                }
                let direct = SocketAddr::new(peer.unwrap_or(IpAddr::from([0, 0, 0, 0])), 0);
                let peer = header.client.unwrap_or(direct);
                self.events.push_back(IoEvent::Accepted { socket, peer });
                match is_tls {
                    true => self.handshake(socket, ends),
                    false => self.events.push_back(IoEvent::Readable { socket, ends }),
                }
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

    /// Closes a socket of which the shard does not know, or not any more.
    fn forget(&mut self, socket: Socket) {
        self.drop_state(socket);
        self.io.close(socket);
    }

    fn drop_state(&mut self, socket: Socket) {
        if let Some(state) = self.states.get_mut(socket.0 as usize) {
            *state = None;
        }
    }

    pub(crate) fn refuse(&mut self, peer: Option<IpAddr>, code: Code, text: String) {
        if self.refused.len() < REFUSALS_MAX {
            self.refused.push_back(Refused { peer, code: code.number(), text });
        }
    }

    /// Closes the connections that took too long to open, or to take what was said last.
    fn close_late(&mut self) {
        let now = Instant::now();
        while let Some((_, socket, id)) = self.opening.pop_front_if(|(until, ..)| *until <= now) {
            let stage = match self.state(socket) {
                Some(state) if state.id == id => state.stage,
                _ => continue,
            };
            if stage != Stage::Header && stage != Stage::Handshake {
                continue;
            }
            let text =
                "cannot wait any longer for the connection to open: it took longer than opening_ms";
            let peer = self.peer_address(socket);
            self.refuse(peer, Code::SlowOpening, text.into());
            match stage {
                Stage::Header => self.forget(socket),
                _ => self.break_off(socket),
            }
        }
        while let Some((_, socket, id)) = self.lingering.pop_front_if(|(until, ..)| *until <= now) {
            let is_lingering = |it: &mut State| it.id == id && it.stage == Stage::Lingering;
            if self.state(socket).is_some_and(is_lingering) {
                self.forget(socket);
            }
        }
    }

    /// Has the shard close a connection.
    pub(crate) fn break_off(&mut self, socket: Socket) {
        if let Some(state) = self.state(socket) {
            state.stage = Stage::Broken;
            self.events.push_back(IoEvent::Readable { socket, ends: true });
        }
    }

    /// How long to wait at most, so that nothing that is due is forgotten.
    fn limit_wait(&self, timeout: Option<Duration>) -> Option<Duration> {
        if !self.events.is_empty() || !self.later.is_empty() || !self.put_off.is_empty() {
            return Some(Duration::ZERO);
        }
        let first = [self.opening.front(), self.lingering.front()].into_iter().flatten();
        let Some(until) = first.map(|(until, ..)| *until).min() else { return timeout };
        let own = until.saturating_duration_since(Instant::now());
        Some(timeout.map_or(own, |timeout| timeout.min(own)))
    }

    /// Whether the shard is to hear of an event.
    fn pass(&mut self, event: IoEvent) -> bool {
        match event {
            IoEvent::Accepted { socket, peer } => self.accept(socket, peer),
            IoEvent::Readable { socket, ends } => match self.stage(socket) {
                None => true,
                Some(Stage::Open | Stage::Ended | Stage::Broken) => {
                    // Told once, and to be known still if the shard is told to go on later.
                    self.state(socket).into_iter().for_each(|state| state.ends |= ends);
                    true
                }
                Some(Stage::Header) => {
                    self.read_header(socket, ends);
                    false
                }
                Some(Stage::Handshake) => {
                    self.handshake(socket, ends);
                    false
                }
                Some(Stage::Lingering) => {
                    if ends {
                        self.forget(socket);
                    }
                    false
                }
            },
            IoEvent::Writable(socket) => match self.stage(socket) {
                None => true,
                Some(Stage::Header | Stage::Broken) => false,
                Some(Stage::Handshake) => {
                    self.flush(socket);
                    false
                }
                Some(Stage::Open | Stage::Ended) => self.flush(socket),
                Some(Stage::Lingering) => {
                    if self.flush(socket) || self.stage(socket) == Some(Stage::Broken) {
                        self.forget(socket);
                    }
                    false
                }
            },
        }
    }
}

impl<I: Io> Io for FilteredIo<I> {
    fn wait(&mut self, timeout: Option<Duration>) {
        let timeout = self.limit_wait(timeout);
        self.io.wait(timeout);
        (self.steps_left, self.steps_in_turn) = (self.options.handshakes_per_turn_max, 0);
        self.events.extend(self.later.drain(..));
        if !self.opening.is_empty() || !self.lingering.is_empty() {
            self.close_late();
        }
        self.go_on_with_handshakes();
    }

    fn poll_event(&mut self) -> Option<IoEvent> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            let event = self.io.poll_event()?;
            if self.pass(event) {
                return Some(event);
            }
        }
    }

    fn receive(&mut self, socket: Socket, buffer: &mut [u8]) -> Received {
        match self.stage(socket) {
            None => self.io.receive(socket, buffer),
            Some(_) => self.receive_inside(socket, buffer),
        }
    }

    fn send(&mut self, socket: Socket, bytes: &[u8]) -> Sent {
        match self.stage(socket) {
            None => self.io.send(socket, bytes),
            Some(stage) => self.send_inside(socket, stage, bytes),
        }
    }

    fn peer_address(&self, socket: Socket) -> Option<IpAddr> {
        let state = self.states.get(socket.0 as usize).and_then(Option::as_deref);
        let client = state.and_then(|state| state.client).map(|client| client.ip());
        client.or_else(|| self.io.peer_address(socket))
    }

    fn peer_name(&self, socket: Socket) -> Option<&str> {
        self.states.get(socket.0 as usize)?.as_deref()?.name.as_deref()
    }

    fn listener(&self, socket: Socket) -> usize {
        self.io.listener(socket)
    }

    fn poll_refused(&mut self) -> Option<Refused> {
        self.refused.pop_front()
    }

    fn close(&mut self, socket: Socket) {
        if self.say_end(socket) {
            return self.forget(socket);
        }
        if let Some(state) = self.state(socket) {
            state.stage = Stage::Lingering;
            let until = (Instant::now() + LINGER, socket, state.id);
            self.lingering.push_back(until);
        }
    }

    fn retire(&mut self, socket: Socket) {
        self.drop_state(socket);
        self.io.retire(socket);
    }

    fn counters(&self) -> IoCounters {
        let Handshakes { done, failed, put_off, .. } = self.handshakes;
        IoCounters {
            tls_handshakes: done,
            tls_handshakes_failed: failed,
            tls_handshakes_put_off: put_off,
            ..self.io.counters()
        }
    }
}
