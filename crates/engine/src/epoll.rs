//! The real [`Io`]: edge-triggered epoll, plain `recv` and `send`.
//!
//! A socket is registered once, for both directions, when it is accepted; after that a connection
//! costs one `recv` or `send` per event and no other system call. (See docs/decisions.)

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, SocketFlags};

use crate::io::{Io, IoCounters, IoEvent, Received, Sent, Socket};
use crate::mailbox::Waker;

/// How an [`EpollIo`] accepts.
#[derive(Clone, Copy, Debug)]
pub struct EpollOptions {
    /// Connections accepted in one turn at most.
    pub accepts_per_turn_max: usize,
    /// Percent of the last turn's time that accepting may take in this one.
    pub accept_share_percent: u32,
    /// Open connections; more wait in the backlog.
    pub connections_max: usize,
}

impl Default for EpollOptions {
    fn default() -> Self {
        Self { accepts_per_turn_max: 64, accept_share_percent: 25, connections_max: usize::MAX }
    }
}

/// One shard's sockets.
pub struct EpollIo {
    epoll: OwnedFd,
    listeners: Vec<Listening>,
    /// The listener that accepts next, so that each has its turn.
    next_listener: usize,
    /// The listener of each socket; empty where there is one listener only.
    listener_of: Vec<u8>,
    accepting_again_at: Option<Instant>,
    sockets: Vec<Option<OwnedFd>>,
    /// Descriptors that stay open so that their numbers are not given again.
    retired: Vec<OwnedFd>,
    open_count: usize,
    ready: Vec<Event>,
    events: VecDeque<IoEvent>,
    options: EpollOptions,
    turn_began_at: Instant,
    counters: IoCounters,
}

/// A listening socket.
struct Listening {
    descriptor: OwnedFd,
    /// Connections may wait here.
    is_ready: bool,
}

/// Listeners have the numbers from here on; sockets have those below.
const FIRST_LISTENER: u64 = 1 << 32;
const WAKER: u64 = u64::MAX;
/// Events of one turn: few, so that a burst of requests cannot hold up what is to be sent.
const EVENTS_MAX: usize = 128;
/// Connections accepted in a turn while more sockets are ready than it looks at: those that are
/// connected wait behind every new one.
const ACCEPTS_WHEN_LATE: usize = 2;
/// How long accepting rests when descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Accepting may always take this long, also after very short turns.
const ACCEPT_TIME_MIN: Duration = Duration::from_micros(200);

impl EpollIo {
    /// An `Io` that accepts from `listeners`, at most 255, and that `waker` wakes.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new(
        listeners: impl IntoIterator<Item = OwnedFd>,
        waker: &Waker,
        options: EpollOptions,
    ) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let incoming = EventFlags::IN | EventFlags::ET;
        let listeners = listeners.into_iter();
        let listeners: Vec<Listening> =
            listeners.map(|descriptor| Listening { descriptor, is_ready: false }).collect();
        for (number, listener) in (FIRST_LISTENER..).zip(&listeners) {
            epoll::add(&epoll, &listener.descriptor, EventData::new_u64(number), incoming)?;
        }
        if let Some(waker) = waker.as_fd() {
            epoll::add(&epoll, waker, EventData::new_u64(WAKER), incoming)?;
        }
        Ok(Self {
            epoll,
            listeners,
            next_listener: 0,
            listener_of: Vec::new(),
            accepting_again_at: None,
            sockets: Vec::new(),
            retired: Vec::new(),
            open_count: 0,
            ready: Vec::with_capacity(EVENTS_MAX),
            events: VecDeque::new(),
            options,
            turn_began_at: Instant::now(),
            counters: IoCounters::default(),
        })
    }

    /// Open connections.
    pub fn connections(&self) -> usize {
        self.open_count
    }

    /// Stops accepting for good; open connections go on.
    pub fn stop_accepting(&mut self) {
        self.listeners.clear();
    }

    fn note(&mut self, event: &Event) {
        match event.data.u64() {
            WAKER => {}
            listener @ FIRST_LISTENER.. => {
                let listener = self.listeners.get_mut((listener - FIRST_LISTENER) as usize);
                listener.into_iter().for_each(|it| it.is_ready = true);
            }
            socket => {
                let socket = Socket(socket as u32);
                let flags = event.flags;
                let ends = EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
                if flags.intersects(EventFlags::IN | ends) {
                    let ends = flags.intersects(ends);
                    self.events.push_back(IoEvent::Readable { socket, ends });
                }
                if flags.contains(EventFlags::OUT) {
                    self.events.push_back(IoEvent::Writable(socket));
                }
            }
        }
    }

    fn accept_some(&mut self, last_turn: Duration, accepts_max: usize) {
        if !self.may_accept() || self.is_accept_paused() {
            return;
        }
        let share = last_turn * self.options.accept_share_percent / 100;
        let until = Instant::now() + share.max(ACCEPT_TIME_MIN);
        for count in 0..accepts_max {
            if count > 0 && Instant::now() >= until {
                return;
            }
            if self.open_count >= self.options.connections_max {
                self.pause_accepting();
                return;
            }
            let Some(listener) = self.next_ready_listener() else { return };
            match self.accept(listener) {
                Ok(Some(event)) => self.events.push_back(event),
                Ok(None) => self.listeners[listener].is_ready = false,
                Err(()) => {
                    self.pause_accepting();
                    return;
                }
            }
        }
    }

    /// Whether connections may wait to be accepted.
    fn may_accept(&self) -> bool {
        self.listeners.iter().any(|listener| listener.is_ready)
    }

    /// The listener to accept from now: each that has connections in turn.
    fn next_ready_listener(&mut self) -> Option<usize> {
        let count = self.listeners.len();
        let all = (0..count).map(|step| (self.next_listener + step) % count);
        let found = all.into_iter().find(|at| self.listeners[*at].is_ready)?;
        self.next_listener = found + 1;
        Some(found)
    }

    fn accept(&mut self, from: usize) -> Result<Option<IoEvent>, ()> {
        let listener = &self.listeners[from].descriptor;
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        loop {
            match rustix::net::acceptfrom_with(listener, flags) {
                Ok((socket, peer)) => {
                    let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
                    let peer = peer.unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)));
                    return self
                        .watch(socket, from)
                        .map(|socket| Some(IoEvent::Accepted { socket, peer }));
                }
                Err(Errno::AGAIN) => return Ok(None),
                // The peer was gone before we looked: the next one may not be.
                Err(Errno::INTR | Errno::CONNABORTED | Errno::PROTO | Errno::NETDOWN) => {}
                Err(_) => return Err(()),
            }
        }
    }

    fn watch(&mut self, socket: OwnedFd, listener: usize) -> Result<Socket, ()> {
        let number = u32::try_from(socket.as_raw_fd()).expect("descriptors are not negative");
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let data = EventData::new_u64(u64::from(number));
        epoll::add(&self.epoll, &socket, data, flags).map_err(|_| ())?;
        let index = number as usize;
        if index >= self.sockets.len() {
            self.sockets.resize_with(index + 1, || None);
        }
        self.sockets[index] = Some(socket);
        if self.listeners.len() > 1 {
            self.listener_of.resize(self.listener_of.len().max(index + 1), 0);
            self.listener_of[index] = listener as u8;
        }
        self.open_count += 1;
        self.counters.accepts += 1;
        Ok(Socket(number))
    }

    fn pause_accepting(&mut self) {
        self.counters.accept_pauses += 1;
        self.accepting_again_at = Some(Instant::now() + ACCEPT_PAUSE);
    }

    fn is_accept_paused(&mut self) -> bool {
        if self.accepting_again_at.is_some_and(|at| Instant::now() < at) {
            return true;
        }
        self.accepting_again_at = None;
        false
    }

    /// How long to wait at most, so that connections that wait to be accepted are not forgotten.
    fn limit_wait(&mut self, timeout: Option<Duration>) -> Option<Duration> {
        let own = match (self.may_accept(), self.accepting_again_at) {
            (false, _) => None,
            (true, None) => Some(Duration::ZERO),
            (true, Some(at)) => Some(at.saturating_duration_since(Instant::now())),
        };
        match (timeout, own) {
            (Some(timeout), Some(own)) => Some(timeout.min(own)),
            (timeout, own) => timeout.or(own),
        }
    }

    fn take_out(&mut self, socket: Socket) -> Option<OwnedFd> {
        let descriptor = self.sockets.get_mut(socket.0 as usize)?.take()?;
        self.open_count -= 1;
        self.counters.closes += 1;
        self.accepting_again_at = None;
        Some(descriptor)
    }

    fn socket(&self, socket: Socket) -> Option<&OwnedFd> {
        self.sockets.get(socket.0 as usize)?.as_ref()
    }
}

impl Io for EpollIo {
    fn wait(&mut self, timeout: Option<Duration>) {
        let last_turn = self.turn_began_at.elapsed();
        let timeout = match self.events.is_empty() {
            true => self.limit_wait(timeout),
            false => Some(Duration::ZERO),
        };
        let timespec = timeout.map(|timeout| Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let mut ready = std::mem::take(&mut self.ready);
        ready.clear();
        // An interrupted wait is one in which nothing happened.
        let _ = epoll::wait(&self.epoll, spare_capacity(&mut ready), timespec.as_ref());
        let are_all_known = ready.len() < EVENTS_MAX;
        self.turn_began_at = Instant::now();
        ready.iter().for_each(|event| self.note(event));
        self.ready = ready;
        let accepts_max = match are_all_known {
            true => self.options.accepts_per_turn_max,
            false => ACCEPTS_WHEN_LATE.min(self.options.accepts_per_turn_max),
        };
        self.accept_some(last_turn, accepts_max);
    }

    fn poll_event(&mut self) -> Option<IoEvent> {
        self.events.pop_front()
    }

    fn receive(&mut self, socket: Socket, buffer: &mut [u8]) -> Received {
        let Some(descriptor) = self.socket(socket) else { return Received::Closed };
        let result = loop {
            match rustix::net::recv(descriptor, &mut *buffer, RecvFlags::empty()) {
                Err(Errno::INTR) => {}
                other => break other,
            }
        };
        self.counters.receives += 1;
        match result {
            Ok((0, _)) => Received::Ended,
            Ok((bytes, _)) => {
                self.counters.bytes_in += bytes as u64;
                Received::Bytes(bytes)
            }
            Err(Errno::AGAIN) => Received::Nothing,
            Err(_) => Received::Closed,
        }
    }

    fn send(&mut self, socket: Socket, bytes: &[u8]) -> Sent {
        let Some(descriptor) = self.socket(socket) else { return Sent::Closed };
        let result = loop {
            match rustix::net::send(descriptor, bytes, SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                other => break other,
            }
        };
        self.counters.sends += 1;
        let taken = match result {
            Ok(taken) => taken,
            Err(Errno::AGAIN | Errno::NOBUFS) => 0,
            Err(_) => return Sent::Closed,
        };
        self.counters.bytes_out += taken as u64;
        self.counters.sends_cut_short += u64::from(taken < bytes.len());
        Sent::Bytes(taken)
    }

    fn peer_address(&self, socket: Socket) -> Option<IpAddr> {
        let peer = rustix::net::getpeername(self.socket(socket)?).ok()??;
        SocketAddr::try_from(peer).ok().map(|peer| peer.ip())
    }

    fn listener(&self, socket: Socket) -> usize {
        self.listener_of.get(socket.0 as usize).copied().map_or(0, usize::from)
    }

    fn close(&mut self, socket: Socket) {
        drop(self.take_out(socket));
    }

    fn retire(&mut self, socket: Socket) {
        let Some(descriptor) = self.take_out(socket) else { return };
        // What fails here leaves a socket that nobody looks at.
        let _ = epoll::delete(&self.epoll, &descriptor);
        let _ = rustix::net::shutdown(&descriptor, Shutdown::Both);
        self.retired.push(descriptor);
    }

    fn counters(&self) -> IoCounters {
        self.counters
    }
}
