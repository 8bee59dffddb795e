//! A swarm of clients on kernel sockets: some threads, each with a descriptor table of its own.
//!
//! A connection costs the driver its descriptor, a few bytes of check state per topic and, only
//! while a message is torn, the bytes of it.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use engine::private_descriptor_table;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use crate::cores::{Cores, pin};
use crate::dialect::websocket::take_handshake;
use crate::dialect::{Consumed, Dialect, Input, ReaderSpec};
use crate::findings::{Findings, check_number, histogram};
use crate::shared::Shared;
use crate::stamp;

/// Connections that fit one descriptor table of 20,000, with some to spare.
pub(crate) const PER_TABLE: usize = 18_500;

/// Which topics client `n` reads.
pub(crate) type TopicsOf = Arc<dyn Fn(usize) -> Vec<u32> + Send + Sync>;

/// An order to a swarm while it runs.
#[derive(Debug)]
pub(crate) struct Orders {
    /// Each increment makes all clients drop their connection and open it again.
    pub storms: AtomicU32,
    /// Connections to drop and open again each second.
    pub churn_per_second: AtomicU32,
    /// Whether clients drop their connections and stay away.
    pub is_away: AtomicBool,
    /// Whether clients read what arrives.
    pub is_reading: AtomicBool,
}

/// The parts of a swarm.
#[derive(Clone)]
pub(crate) struct SwarmPlan {
    pub clients: usize,
    /// Number of the first client; numbers choose topics and source addresses.
    pub first: usize,
    pub address: SocketAddr,
    pub dialect: Arc<dyn Dialect>,
    pub topics_of: TopicsOf,
    /// Of so many clients one gets a histogram of its own; 0 for none.
    pub sample_every: usize,
    pub behaviour: Behaviour,
}

/// How clients behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behaviour {
    /// They stay and read.
    Steady,
    /// They come and go by plan: what fails is opened again and is no fault, and what they are told
    /// late is no latency.
    ComesAndGoes,
    /// They stop reading by plan, with so small a receive buffer that the server notices soon.
    Stalls,
}

/// Running threads of clients.
pub(crate) struct Swarm {
    pub orders: Arc<Orders>,
    threads: Vec<JoinHandle<Result<Findings, String>>>,
}

impl Swarm {
    /// Starts the clients; `shared` tells how far they are.
    pub(crate) fn start(plan: &SwarmPlan, cores: &Cores, shared: &Arc<Shared>) -> Self {
        let orders = Arc::new(Orders {
            storms: AtomicU32::new(0),
            churn_per_second: AtomicU32::new(0),
            is_away: AtomicBool::new(false),
            is_reading: AtomicBool::new(true),
        });
        let count = plan.clients.div_ceil(PER_TABLE).max(cores.load.len().min(plan.clients));
        let threads = (0..count).map(|index| {
            let share = |index: usize| plan.first + plan.clients * index / count;
            let range = share(index)..share(index + 1);
            let (plan, shared) = (plan.clone(), Arc::clone(shared));
            let (orders, cores) = (Arc::clone(&orders), cores.load.clone());
            std::thread::spawn(move || {
                pin(&cores);
                private_descriptor_table(3).map_err(|error| format!("no table: {error}"))?;
                if plan.behaviour != Behaviour::Steady {
                    // What these take in must not be felt by the clients whose latency is measured.
                    let _ = rustix::process::setpriority_process(None, 10);
                }
                Clients::new(plan, range, shared, orders, count)?.run()
            })
        });
        Self { threads: threads.collect(), orders }
    }

    /// Waits for the clients to end after `Shared::end`.
    pub(crate) fn join(self, shared: &Shared) -> Result<Findings, String> {
        let mut all = Findings::new(shared.phases.len());
        for thread in self.threads {
            all.add(thread.join().map_err(|_| "a driver thread panicked".to_owned())??);
        }
        Ok(all)
    }
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Closed,
    Connecting,
    Upgrading,
    Subscribing,
    Live,
}

/// One connection as its thread knows it.
struct Client {
    number: usize,
    socket: Option<OwnedFd>,
    stage: Stage,
    /// The beginning of something that was torn, and how much of it was taken already.
    torn: Option<Box<[u8]>>,
    skip: u32,
    /// The next number expected in each topic.
    next: Vec<(u32, u32)>,
    /// Its place among the sampled clients.
    sampled: Option<u32>,
    /// It was away, and has not heard anything new yet.
    is_catching_up: bool,
}

/// The connections of one thread.
struct Clients {
    plan: SwarmPlan,
    shared: Arc<Shared>,
    orders: Arc<Orders>,
    epoll: OwnedFd,
    clients: Vec<Client>,
    to_open: VecDeque<u32>,
    /// Connections on their way from `Closed` to `Live`.
    in_flight: usize,
    findings: Findings,
    storms_seen: u32,
    churned_at: Instant,
    churn_next: usize,
    /// How many threads share what `churn_per_second` asks.
    threads: usize,
    was_reading: bool,
    was_away: bool,
    buffer: Vec<u8>,
}

/// Connections under way at a time, per thread: below what a listener's queue loses.
const IN_FLIGHT_MAX: usize = 256;
/// A message that is not older than this was not missed.
const NEW_NS: u64 = 100_000_000;
/// Few to an address: the more ports of one are taken, the longer the kernel searches for a free one.
pub(crate) const PER_ADDRESS: usize = 250;

impl Clients {
    fn new(
        plan: SwarmPlan,
        range: std::ops::Range<usize>,
        shared: Arc<Shared>,
        orders: Arc<Orders>,
        threads: usize,
    ) -> Result<Self, String> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)
            .map_err(|error| format!("cannot watch sockets: {error}"))?;
        let mut findings = Findings::new(shared.phases.len());
        let clients: Vec<Client> = range
            .map(|number| {
                let is_sampled = plan.sample_every > 0 && number % plan.sample_every == 0;
                let sampled = is_sampled.then(|| {
                    findings.sampled.push((number, histogram(2)));
                    findings.sampled.len() as u32 - 1
                });
                Client {
                    number,
                    socket: None,
                    stage: Stage::Closed,
                    torn: None,
                    skip: 0,
                    next: Vec::new(),
                    sampled,
                    is_catching_up: false,
                }
            })
            .collect();
        Ok(Self {
            plan,
            shared,
            orders,
            epoll,
            to_open: (0..clients.len() as u32).collect(),
            clients,
            in_flight: 0,
            findings,
            storms_seen: 0,
            churned_at: Instant::now(),
            churn_next: 0,
            threads,
            was_reading: true,
            was_away: false,
            buffer: vec![0; 256 << 10],
        })
    }

    fn run(mut self) -> Result<Findings, String> {
        while !self.shared.is_over() {
            self.obey();
            while !self.was_away
                && self.in_flight < IN_FLIGHT_MAX
                && let Some(index) = self.to_open.pop_front()
            {
                self.open(index as usize)?;
            }
            self.wait();
        }
        Ok(self.findings)
    }

    fn obey(&mut self) {
        let storms = self.orders.storms.load(Ordering::Relaxed);
        if storms != self.storms_seen {
            self.storms_seen = storms;
            (0..self.clients.len()).for_each(|index| self.reopen(index));
        }
        let is_away = self.orders.is_away.load(Ordering::Relaxed);
        if is_away && !self.was_away {
            for index in 0..self.clients.len() {
                self.clients[index].is_catching_up = true;
                self.reopen(index);
            }
        }
        self.was_away = is_away;
        let churn = self.orders.churn_per_second.load(Ordering::Relaxed) as usize;
        if churn > 0 {
            let interval = Duration::from_secs(1) * self.threads as u32 / churn as u32;
            while self.churned_at.elapsed() >= interval {
                self.churned_at += interval;
                self.reopen(self.churn_next);
                self.churn_next = (self.churn_next + 1) % self.clients.len();
            }
        } else {
            self.churned_at = Instant::now();
        }
        let is_reading = self.orders.is_reading.load(Ordering::Relaxed);
        if is_reading && !self.was_reading {
            (0..self.clients.len()).for_each(|index| self.receive(index));
        }
        self.was_reading = is_reading;
    }

    /// Drops a connection and lines it up to be opened again.
    fn reopen(&mut self, index: usize) {
        if self.clients[index].stage != Stage::Closed {
            self.close(index);
            self.to_open.push_back(index as u32);
        }
    }

    fn close(&mut self, index: usize) {
        let client = &mut self.clients[index];
        match client.stage {
            Stage::Closed => return,
            Stage::Live => {
                self.shared.live.fetch_sub(1, Ordering::Relaxed);
            }
            _ => self.in_flight -= 1,
        }
        (client.socket, client.torn, client.skip) = (None, None, 0);
        client.stage = Stage::Closed;
    }

    fn open(&mut self, index: usize) -> Result<(), String> {
        let failed = |error: Errno| format!("cannot connect a client: {error}");
        let client = &mut self.clients[index];
        let [high, low] = ((client.number / PER_ADDRESS) as u16).to_be_bytes();
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)
            .map_err(failed)?;
        if self.plan.address.ip().is_loopback() {
            let source = Ipv4Addr::new(127, 1 + high, low, 1);
            rustix::net::bind(&socket, &SocketAddrV4::new(source, 0)).map_err(failed)?;
        }
        if self.plan.behaviour == Behaviour::Stalls {
            const BYTES: usize = 4096;
            rustix::net::sockopt::set_socket_recv_buffer_size(&socket, BYTES).map_err(failed)?;
        }
        match rustix::net::connect(&socket, &self.plan.address) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(failed(error)),
        }
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let data = EventData::new_u64(index as u64);
        epoll::add(&self.epoll, &socket, data, flags).map_err(failed)?;
        (client.socket, client.stage) = (Some(socket), Stage::Connecting);
        self.in_flight += 1;
        Ok(())
    }

    fn wait(&mut self) {
        let mut ready: Vec<Event> = Vec::with_capacity(1024);
        let timeout = if self.to_open.is_empty() { 20_000_000 } else { 1_000_000 };
        let timeout = Timespec { tv_sec: 0, tv_nsec: timeout };
        let spare = rustix::buffer::spare_capacity(&mut ready);
        if epoll::wait(&self.epoll, spare, Some(&timeout)).is_err() {
            return;
        }
        let before = self.findings.delivered;
        for event in &ready {
            let index = event.data.u64() as usize;
            if self.clients[index].stage == Stage::Connecting {
                self.handle_connected(index);
            }
            if self.was_reading || self.clients[index].stage != Stage::Live {
                self.receive(index);
            }
        }
        self.shared.delivered.fetch_add(self.findings.delivered - before, Ordering::Relaxed);
    }

    fn handle_connected(&mut self, index: usize) {
        let client = &mut self.clients[index];
        let Some(socket) = &client.socket else { return };
        if !matches!(rustix::net::sockopt::socket_error(socket), Ok(Ok(()))) {
            self.findings.checks.refused +=
                u64::from(self.plan.behaviour != Behaviour::ComesAndGoes);
            return self.fail(index);
        }
        client.stage = match self.plan.dialect.is_websocket() {
            true => Stage::Upgrading,
            false => Stage::Subscribing,
        };
        self.say(index, |dialect, wanted, out| {
            dialect.open_reader(wanted, out);
        });
    }

    fn fail(&mut self, index: usize) {
        self.close(index);
        if self.plan.behaviour == Behaviour::ComesAndGoes {
            self.to_open.push_back(index as u32);
        }
    }

    fn say(
        &mut self,
        index: usize,
        write: impl FnOnce(&dyn Dialect, ReaderSpec<'_>, &mut Vec<u8>),
    ) {
        let client = &self.clients[index];
        let topics = (self.plan.topics_of)(client.number);
        let taken: Vec<(u32, u32)> =
            client.next.iter().map(|(topic, next)| (*topic, next.wrapping_sub(1))).collect();
        let epoch = self.shared.epoch.get();
        let resume = epoch.filter(|_| !taken.is_empty()).map(|epoch| (epoch.as_str(), &taken[..]));
        let mut out = Vec::new();
        write(&*self.plan.dialect, ReaderSpec { topics: &topics, resume }, &mut out);
        self.send(index, &out);
    }

    fn send(&mut self, index: usize, bytes: &[u8]) {
        let Some(socket) = &self.clients[index].socket else { return };
        // A connection that cannot take these few bytes is closed, and read as such.
        let _ = rustix::net::send(socket, bytes, SendFlags::NOSIGNAL);
    }

    fn receive(&mut self, index: usize) {
        let mut buffer = std::mem::take(&mut self.buffer);
        loop {
            let client = &mut self.clients[index];
            let Some(socket) = &client.socket else { break };
            let kept = client.torn.take().unwrap_or_default();
            if buffer.len() < kept.len() * 2 {
                buffer.resize(kept.len() * 2, 0);
            }
            buffer[..kept.len()].copy_from_slice(&kept);
            let room = &mut buffer[kept.len()..];
            let count = match rustix::net::recv(socket, &mut *room, RecvFlags::empty()) {
                Ok((0, _)) => {
                    self.handle_closed(index);
                    break;
                }
                Ok((count, _)) => count,
                Err(Errno::AGAIN | Errno::INTR) => {
                    client.torn = (!kept.is_empty()).then_some(kept);
                    break;
                }
                Err(_) => {
                    self.handle_closed(index);
                    break;
                }
            };
            let is_full = count == room.len();
            let bytes = &buffer[..kept.len() + count];
            let taken = self.take(index, bytes);
            if taken < bytes.len() {
                self.clients[index].torn = Some(bytes[taken..].into());
            }
            if !is_full {
                break;
            }
        }
        self.buffer = buffer;
    }

    fn handle_closed(&mut self, index: usize) {
        self.findings.checks.closed += u64::from(self.plan.behaviour != Behaviour::ComesAndGoes);
        self.fail(index);
    }

    /// Takes what is whole; answers how many bytes it was.
    fn take(&mut self, index: usize, bytes: &[u8]) -> usize {
        let mut start = 0;
        if self.clients[index].stage == Stage::Upgrading {
            start = match take_handshake(bytes) {
                None => return 0,
                Some(Ok(end)) => end,
                Some(Err(_)) => {
                    self.findings.checks.refused +=
                        u64::from(self.plan.behaviour != Behaviour::ComesAndGoes);
                    self.fail(index);
                    return bytes.len();
                }
            };
            self.clients[index].stage = Stage::Subscribing;
            let mut is_confirmed = false;
            self.say(index, |dialect, wanted, out| is_confirmed = dialect.subscribe(wanted, out));
            if !is_confirmed {
                self.handle_ready(index);
            }
        }
        let (now_ns, phase) = (self.shared.now_ns(), self.shared.phase());
        let is_timed = self.plan.behaviour != Behaviour::ComesAndGoes;
        let client = &mut self.clients[index];
        let (findings, shared) = (&mut self.findings, &self.shared);
        let (mut is_ready, mut replies) = (false, Vec::new());
        let taken =
            self.plan.dialect.take(&bytes[start..], client.skip, &mut |heard| match heard {
                Input::Payload(payload) => {
                    findings.delivered += 1;
                    let Some(stamp) = stamp::read(payload, now_ns) else {
                        findings.checks.damaged += 1;
                        return;
                    };
                    check_number(&mut client.next, stamp, &mut findings.checks);
                    let latency = now_ns.saturating_sub(stamp.intended_ns);
                    if client.is_catching_up && latency < NEW_NS {
                        client.is_catching_up = false;
                        shared.caught_up.fetch_add(1, Ordering::Relaxed);
                    }
                    if phase > 0 && is_timed {
                        findings.latency_ns[phase - 1].saturating_record(latency);
                        if let Some(sampled) = client.sampled {
                            findings.sampled[sampled as usize].1.saturating_record(latency);
                        }
                    }
                }
                Input::Ready => is_ready = true,
                Input::Gap => findings.checks.gaps += 1,
                Input::Epoch(epoch) => {
                    shared.epoch.get_or_init(|| epoch.to_owned());
                }
                Input::Reply(bytes) => replies.extend(bytes),
            });
        let taken = taken.unwrap_or_else(|_| {
            findings.checks.damaged += 1;
            Consumed { bytes: bytes.len() - start, skip: 0 }
        });
        client.skip = taken.skip;
        if !replies.is_empty() {
            self.send(index, &replies);
        }
        if is_ready {
            self.handle_ready(index);
        }
        start + taken.bytes
    }

    fn handle_ready(&mut self, index: usize) {
        let client = &mut self.clients[index];
        if client.stage == Stage::Subscribing {
            client.stage = Stage::Live;
            self.in_flight -= 1;
            self.shared.live.fetch_add(1, Ordering::Relaxed);
        }
    }
}
