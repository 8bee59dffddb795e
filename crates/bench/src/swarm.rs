//! A swarm of clients: some threads, each with a descriptor table and a source address of its own.
//!
//! A connection costs the driver its descriptor, a few bytes of check state per topic and, only
//! while a frame is torn, the bytes of it.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use engine::private_descriptor_table;
use hdrhistogram::Histogram;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use crate::stamp;
use crate::target::{PER_SHARD, pin};
use crate::wire::{self, Record};

/// What the swarm and whoever watches it share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub clock: Instant,
    pub connected: AtomicUsize,
    pub subscribed: AtomicUsize,
    pub delivered: AtomicU64,
    pub is_measuring: AtomicBool,
    pub is_over: AtomicBool,
}

impl Shared {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            clock: Instant::now(),
            connected: AtomicUsize::new(0),
            subscribed: AtomicUsize::new(0),
            delivered: AtomicU64::new(0),
            is_measuring: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        })
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.clock.elapsed().as_nanos() as u64
    }
}

/// What a swarm found.
#[derive(Debug)]
pub(crate) struct Findings {
    pub latency_ns: Histogram<u64>,
    pub delivered: u64,
    pub frames: u64,
    pub missing: u64,
    pub repeated: u64,
    pub damaged: u64,
    pub closed: u64,
}

impl Findings {
    fn new() -> Self {
        let latency_ns = Histogram::new_with_bounds(1_000, 600_000_000_000, 3);
        Self {
            latency_ns: latency_ns.expect("valid bounds"),
            delivered: 0,
            frames: 0,
            missing: 0,
            repeated: 0,
            damaged: 0,
            closed: 0,
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.latency_ns.add(&other.latency_ns).expect("equal bounds");
        self.delivered += other.delivered;
        self.frames += other.frames;
        self.missing += other.missing;
        self.repeated += other.repeated;
        self.damaged += other.damaged;
        self.closed += other.closed;
    }
}

/// Which topics client `n` subscribes to, as the JSON list in `subscribe`.
pub(crate) type TopicsOf = Arc<dyn Fn(usize) -> String + Send + Sync>;

/// Running threads of clients.
pub(crate) struct Swarm {
    threads: Vec<JoinHandle<Result<Findings, String>>>,
}

impl Swarm {
    /// Starts so many clients; `shared` tells how far they are.
    pub(crate) fn start(
        clients: usize,
        first: usize,
        address: SocketAddr,
        topics_of: &TopicsOf,
        shared: &Arc<Shared>,
    ) -> Self {
        let threads = (0..clients.div_ceil(PER_SHARD)).map(|thread| {
            let range = first + thread * PER_SHARD..first + clients.min((thread + 1) * PER_SHARD);
            let (topics_of, shared) = (Arc::clone(topics_of), Arc::clone(shared));
            std::thread::spawn(move || {
                pin(1);
                Clients::open(range, address, &topics_of, &shared)?.run(&shared)
            })
        });
        Self { threads: threads.collect() }
    }

    /// Waits for the clients to end after `is_over`.
    pub(crate) fn join(self) -> Result<Findings, String> {
        let mut all = Findings::new();
        for thread in self.threads {
            all.add(&thread.join().map_err(|_| "a driver thread panicked".to_owned())??);
        }
        Ok(all)
    }
}

/// One connection as its thread knows it.
struct Client {
    socket: OwnedFd,
    is_upgraded: bool,
    /// The beginning of a frame that was torn.
    torn: Option<Box<[u8]>>,
    /// Low bits of the next sequence, per topic in order of appearance.
    next: Vec<(u32, u16)>,
}

/// The connections of one thread.
struct Clients {
    epoll: OwnedFd,
    clients: Vec<Client>,
    findings: Findings,
}

impl Clients {
    fn open(
        range: std::ops::Range<usize>,
        address: SocketAddr,
        topics_of: &TopicsOf,
        shared: &Shared,
    ) -> Result<Self, String> {
        private_descriptor_table(3).map_err(|error| format!("no table of its own: {error}"))?;
        let failed = |error: rustix::io::Errno| format!("cannot connect the clients: {error}");
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(failed)?;
        let findings = Findings::new();
        let mut all = Self { epoll, clients: Vec::new(), findings };
        for number in range {
            // Few to an address: past half of its ports the kernel searches for a free one.
            const PER_ADDRESS: usize = 4_000;
            let [high, low] = ((number / PER_ADDRESS) as u16).to_be_bytes();
            let source = Ipv4Addr::new(127, 1 + high, low, 1);
            let flags = SocketFlags::CLOEXEC;
            let socket =
                rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)
                    .map_err(failed)?;
            rustix::net::bind(&socket, &SocketAddrV4::new(source, 0)).map_err(failed)?;
            rustix::net::connect(&socket, &address).map_err(failed)?;
            let mut bytes = wire::HANDSHAKE.to_vec();
            wire::append_control(r#"{"type":"hello","batch":true}"#, &mut bytes);
            let topics = topics_of(number);
            let subscribe = format!(r#"{{"type":"subscribe","topics":{topics},"from":"now"}}"#);
            wire::append_control(&subscribe, &mut bytes);
            rustix::net::send(&socket, &bytes, SendFlags::NOSIGNAL).map_err(failed)?;
            rustix::io::ioctl_fionbio(&socket, true).map_err(failed)?;
            let data = EventData::new_u64(all.clients.len() as u64);
            let flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
            epoll::add(&all.epoll, &socket, data, flags).map_err(failed)?;
            all.clients.push(Client { socket, is_upgraded: false, torn: None, next: Vec::new() });
            shared.connected.fetch_add(1, Ordering::Relaxed);
            const READ_EVERY: usize = 64;
            if number % READ_EVERY == 0 {
                all.receive_ready(Duration::ZERO, shared);
            }
        }
        Ok(all)
    }

    fn run(mut self, shared: &Shared) -> Result<Findings, String> {
        while !shared.is_over.load(Ordering::Relaxed) {
            self.receive_ready(Duration::from_millis(100), shared);
        }
        Ok(self.findings)
    }

    fn receive_ready(&mut self, timeout: Duration, shared: &Shared) {
        let mut ready: Vec<Event> = Vec::with_capacity(1024);
        let timeout = Timespec { tv_sec: 0, tv_nsec: timeout.subsec_nanos().into() };
        let spare = rustix::buffer::spare_capacity(&mut ready);
        if epoll::wait(&self.epoll, spare, Some(&timeout)).is_err() {
            return;
        }
        let mut buffer = vec![0; 256 << 10];
        let before = self.findings.delivered;
        for event in &ready {
            self.receive(event.data.u64() as usize, &mut buffer, shared);
        }
        shared.delivered.fetch_add(self.findings.delivered - before, Ordering::Relaxed);
    }

    fn receive(&mut self, index: usize, buffer: &mut [u8], shared: &Shared) {
        let client = &mut self.clients[index];
        loop {
            let kept = client.torn.take().unwrap_or_default();
            buffer[..kept.len()].copy_from_slice(&kept);
            let room = &mut buffer[kept.len()..];
            let count = match rustix::net::recv(&client.socket, &mut *room, RecvFlags::empty()) {
                Ok((0, _)) => {
                    self.findings.closed += 1;
                    return;
                }
                Ok((count, _)) => count,
                Err(_) => {
                    client.torn = (!kept.is_empty()).then_some(kept);
                    return;
                }
            };
            let is_full = count == room.len();
            let bytes = &buffer[..kept.len() + count];
            let taken = take_frames(client, bytes, &mut self.findings, shared);
            if taken < bytes.len() {
                client.torn = Some(bytes[taken..].into());
            }
            if !is_full {
                return;
            }
        }
    }
}

/// Takes all whole frames; answers how many bytes they are.
fn take_frames(
    client: &mut Client,
    bytes: &[u8],
    findings: &mut Findings,
    shared: &Shared,
) -> usize {
    let mut taken = 0;
    if !client.is_upgraded {
        let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { return 0 };
        if !bytes.starts_with(b"HTTP/1.1 101") {
            findings.damaged += 1;
        }
        client.is_upgraded = true;
        taken = end + 4;
    }
    let now_ns = shared.now_ns();
    let is_measuring = shared.is_measuring.load(Ordering::Relaxed);
    while let Some((opcode, payload, len)) = wire::take_frame(&bytes[taken..]) {
        taken += len;
        findings.frames += 1;
        if opcode != 2 {
            continue;
        }
        let result = wire::each_record(payload, |record| match record {
            Record::Control(text) => {
                if text.starts_with(br#"{"type":"subscribed""#) {
                    shared.subscribed.fetch_add(1, Ordering::Relaxed);
                } else if text.starts_with(br#"{"type":"gap""#) {
                    findings.missing += 1;
                }
            }
            Record::Publication { number, low, payload } => {
                findings.delivered += 1;
                check_sequence(client.next.as_mut(), number, low, findings);
                match stamp::read(payload, now_ns) {
                    None => findings.damaged += 1,
                    Some(stamp) if is_measuring => {
                        findings
                            .latency_ns
                            .saturating_record(now_ns.saturating_sub(stamp.intended_ns));
                    }
                    Some(_) => {}
                }
            }
        });
        if result.is_err() {
            findings.damaged += 1;
        }
    }
    taken
}

fn check_sequence(next: &mut Vec<(u32, u16)>, number: u32, low: u16, findings: &mut Findings) {
    let at = match next.binary_search_by_key(&number, |(known, _)| *known) {
        Ok(at) => at,
        Err(at) => {
            next.insert(at, (number, low));
            at
        }
    };
    let expected = &mut next[at].1;
    match low.wrapping_sub(*expected) {
        0 => {}
        ahead @ 1..0x8000 => findings.missing += u64::from(ahead),
        _ => {
            findings.repeated += 1;
            return;
        }
    }
    *expected = low.wrapping_add(1);
}
