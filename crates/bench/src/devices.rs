//! Simulated devices: they attach, send heartbeats, and answer what they are asked. Some threads, each with a
//! descriptor table of its own.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use engine::private_descriptor_table;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use crate::cores::pin;
use crate::swarm::{PER_ADDRESS, PER_TABLE};

/// The devices to simulate.
#[derive(Clone, Debug)]
pub struct DevicePlan {
    /// The server.
    pub address: SocketAddr,
    /// How many.
    pub devices: usize,
    /// Their application.
    pub application: String,
    /// A key of it with the role `device`.
    pub key: String,
    /// Bytes in an answer.
    pub answer_bytes: usize,
    /// Between two heartbeats of a device.
    pub heartbeat: Duration,
    /// How long a device thinks about an answer.
    pub think: Duration,
    /// Cores to run on; empty for any.
    pub cores: Vec<usize>,
}

/// How far simulated devices are.
#[derive(Debug, Default)]
pub struct DeviceCounts {
    /// Attached now.
    pub attached: AtomicUsize,
    /// Requests answered.
    pub answered: AtomicU64,
    /// Heartbeats sent.
    pub heartbeats: AtomicU64,
    /// Attachments that the server or the network ended.
    pub lost: AtomicU64,
    is_ending: AtomicBool,
}

/// Running threads of devices.
pub struct DeviceSwarm {
    /// How far they are.
    pub counts: Arc<DeviceCounts>,
    threads: Vec<JoinHandle<Result<(), String>>>,
}

/// Connections being opened by one thread.
const OPENING_MAX: usize = 64;

impl DeviceSwarm {
    /// Starts them.
    pub fn start(plan: &DevicePlan) -> Self {
        let counts = Arc::new(DeviceCounts::default());
        let count = plan.devices.div_ceil(PER_TABLE).max(1);
        let threads = (0..count).map(|index| {
            let share = |index: usize| plan.devices * index / count;
            let (range, plan) = (share(index)..share(index + 1), plan.clone());
            let counts = Arc::clone(&counts);
            std::thread::spawn(move || {
                pin(&plan.cores);
                private_descriptor_table(3).map_err(|error| format!("no table: {error}"))?;
                Devices::new(plan, range, counts)?.run()
            })
        });
        Self { threads: threads.collect(), counts }
    }

    /// Whether a thread of them gave up.
    pub fn has_failed(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished)
    }

    /// Ends them.
    ///
    /// # Errors
    /// The fault of a thread.
    pub fn end(self) -> Result<(), String> {
        self.counts.is_ending.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().map_err(|_| "a thread of devices panicked".to_owned())??;
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Closed,
    Connecting,
    Attaching,
    Attached,
}

struct Device {
    socket: Option<OwnedFd>,
    stage: Stage,
    /// The beginning of something that was torn.
    torn: Option<Box<[u8]>>,
}

struct Devices {
    plan: DevicePlan,
    first: usize,
    all: Vec<Device>,
    counts: Arc<DeviceCounts>,
    epoll: OwnedFd,
    to_open: Vec<usize>,
    opening: usize,
    /// Answers that devices think about: when, whose, what.
    thinking: std::collections::VecDeque<(Instant, usize, Vec<u8>)>,
    began: Instant,
    /// Heartbeats that were sent, of all.
    beaten: u64,
    /// How often in a row attaching failed, and when it is tried again.
    failures: u32,
    retry_at: Instant,
    /// Why it failed last.
    why: String,
}

/// The first pause after a failure; each next one is twice as long.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// Failures in a row, while no device is attached, after which it is given up.
const FAILURES_MAX: u32 = 8;

impl Devices {
    fn new(
        plan: DevicePlan,
        range: std::ops::Range<usize>,
        counts: Arc<DeviceCounts>,
    ) -> Result<Self, String> {
        let device = |_| Device { socket: None, stage: Stage::Closed, torn: None };
        Ok(Self {
            plan,
            first: range.start,
            to_open: range.clone().map(|number| number - range.start).rev().collect(),
            all: range.map(device).collect(),
            counts,
            epoll: epoll::create(CreateFlags::CLOEXEC).map_err(|error| error.to_string())?,
            opening: 0,
            thinking: std::collections::VecDeque::new(),
            began: Instant::now(),
            beaten: 0,
            failures: 0,
            retry_at: Instant::now(),
            why: String::new(),
        })
    }

    fn run(mut self) -> Result<(), String> {
        let mut buffer = vec![0; 64 << 10];
        let mut ready: Vec<Event> = Vec::with_capacity(1024);
        while !self.counts.is_ending.load(Ordering::Relaxed) {
            while self.opening < OPENING_MAX
                && Instant::now() >= self.retry_at
                && let Some(index) = self.to_open.pop()
            {
                self.open(index)?;
            }
            ready.clear();
            let pause = if self.thinking.is_empty() { 10_000_000 } else { 1_000_000 };
            let timeout = Timespec { tv_sec: 0, tv_nsec: pause };
            let spare = rustix::buffer::spare_capacity(&mut ready);
            if epoll::wait(&self.epoll, spare, Some(&timeout)).is_err() {
                continue;
            }
            for event in &ready {
                let index = event.data.u64() as usize;
                if self.all[index].stage == Stage::Connecting {
                    self.attach(index);
                }
                self.receive(index, &mut buffer);
            }
            self.answer_thought();
            self.send_heartbeats();
            let is_alone = self.counts.attached.load(Ordering::Relaxed) == 0;
            if is_alone && self.failures >= FAILURES_MAX {
                let (address, why) = (self.plan.address, &self.why);
                return Err(format!(
                    "cannot attach devices at {address}: {why}, {FAILURES_MAX} times in a row; check that the \
                     server runs, the application and its key"
                ));
            }
        }
        Ok(())
    }

    fn open(&mut self, index: usize) -> Result<(), String> {
        let failed = |error: Errno| format!("cannot connect a device: {error}");
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)
            .map_err(failed)?;
        if self.plan.address.ip().is_loopback() {
            let [high, low] = (((self.first + index) / PER_ADDRESS) as u16).to_be_bytes();
            let source = Ipv4Addr::new(127, 1 + high, low, 1);
            rustix::net::bind(&socket, &SocketAddrV4::new(source, 0)).map_err(failed)?;
        }
        match rustix::net::connect(&socket, &self.plan.address) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(failed(error)),
        }
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let data = EventData::new_u64(index as u64);
        epoll::add(&self.epoll, &socket, data, flags).map_err(failed)?;
        self.all[index] = Device { socket: Some(socket), stage: Stage::Connecting, torn: None };
        self.opening += 1;
        Ok(())
    }

    fn attach(&mut self, index: usize) {
        let DevicePlan { application, key, heartbeat, .. } = &self.plan;
        let head = format!(
            "POST /v1/devices/attach?application={application}&device=d{}&heartbeat_ms={} HTTP/1.1\r\n\
             Host: bench\r\nAuthorization: Bearer {key}\r\nTransfer-Encoding: chunked\r\n\r\n",
            self.first + index,
            heartbeat.as_millis(),
        );
        self.all[index].stage = Stage::Attaching;
        self.send(index, head.as_bytes());
    }

    fn send(&mut self, index: usize, bytes: &[u8]) {
        let Some(socket) = &self.all[index].socket else { return };
        // What a device says is small: a socket that takes only a part of it is as good as lost.
        let sent = rustix::net::send(socket, bytes, SendFlags::NOSIGNAL);
        if sent.is_ok_and(|count| count != bytes.len()) {
            self.lose(index);
        }
    }

    fn receive(&mut self, index: usize, buffer: &mut [u8]) {
        loop {
            let Some(socket) = &self.all[index].socket else { return };
            match rustix::net::recv(socket, &mut *buffer, RecvFlags::empty()) {
                Ok((0, _)) => return self.lose(index),
                Ok((count, _)) => {
                    self.hear(index, &buffer[..count]);
                    if count < buffer.len() {
                        return;
                    }
                }
                Err(Errno::AGAIN) => return,
                Err(_) => return self.lose(index),
            }
        }
    }

    fn hear(&mut self, index: usize, bytes: &[u8]) {
        let torn = self.all[index].torn.take();
        let joined: Vec<u8>;
        let mut rest = match torn {
            Some(torn) => {
                joined = [&torn, bytes].concat();
                &joined[..]
            }
            None => bytes,
        };
        if self.all[index].stage == Stage::Attaching {
            let Some(end) = rest.windows(4).position(|window| window == b"\r\n\r\n") else {
                self.all[index].torn = Some(rest.into());
                return;
            };
            if !rest.starts_with(b"HTTP/1.1 200") {
                let line = rest.split(|byte| *byte == b'\r').next().unwrap_or_default();
                self.why = format!("it answered `{}`", String::from_utf8_lossy(line));
                return self.lose(index);
            }
            self.failures = 0;
            rest = &rest[end + 4..];
            self.all[index].stage = Stage::Attached;
            self.opening -= 1;
            self.counts.attached.fetch_add(1, Ordering::Relaxed);
        }
        while let Some((message, after)) = take_chunk(rest) {
            rest = after;
            if let [b'Q', a, b, c, d, ..] = message {
                self.answer(index, [*a, *b, *c, *d]);
            }
        }
        if !rest.is_empty() {
            self.all[index].torn = Some(rest.into());
        }
    }

    fn answer(&mut self, index: usize, number: [u8; 4]) {
        let mut answer = format!("{:x}\r\nA", 5 + self.plan.answer_bytes).into_bytes();
        answer.extend_from_slice(&number);
        answer.resize(answer.len() + self.plan.answer_bytes, b'x');
        answer.extend_from_slice(b"\r\n");
        if self.plan.think.is_zero() {
            self.counts.answered.fetch_add(1, Ordering::Relaxed);
            self.send(index, &answer);
        } else {
            self.thinking.push_back((Instant::now() + self.plan.think, index, answer));
        }
    }

    fn answer_thought(&mut self) {
        while self.thinking.front().is_some_and(|(at, ..)| *at <= Instant::now()) {
            let Some((_, index, answer)) = self.thinking.pop_front() else { return };
            self.counts.answered.fetch_add(1, Ordering::Relaxed);
            self.send(index, &answer);
        }
    }

    /// Heartbeats are spread evenly: each device has its turn once in the time between two.
    fn send_heartbeats(&mut self) {
        let share = self.began.elapsed().as_secs_f64() / self.plan.heartbeat.as_secs_f64();
        let wanted = (share * self.all.len() as f64) as u64;
        let from = self.beaten.max(wanted.saturating_sub(self.all.len() as u64));
        for turn in from..wanted {
            let index = (turn % self.all.len() as u64) as usize;
            if self.all[index].stage == Stage::Attached {
                self.send(index, b"1\r\nH\r\n");
                self.counts.heartbeats.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.beaten = wanted;
    }

    /// Waits before the next attempt, longer after each that failed. Those under way together count as one.
    fn back_off(&mut self) {
        if Instant::now() < self.retry_at {
            return;
        }
        if self.why.is_empty() {
            self.why = "nobody answers there".to_owned();
        }
        let pause = PAUSE.saturating_mul(1 << self.failures.min(10)).min(PAUSE_MAX);
        self.failures += 1;
        self.retry_at = Instant::now() + pause;
    }

    fn lose(&mut self, index: usize) {
        let device = &mut self.all[index];
        match device.stage {
            Stage::Attached => drop(self.counts.attached.fetch_sub(1, Ordering::Relaxed)),
            Stage::Connecting | Stage::Attaching => self.opening -= 1,
            Stage::Closed => return,
        }
        let was_attached = device.stage == Stage::Attached;
        *device = Device { socket: None, stage: Stage::Closed, torn: None };
        if !was_attached {
            self.back_off();
        }
        self.counts.lost.fetch_add(1, Ordering::Relaxed);
        self.to_open.insert(0, index);
    }
}

/// The first whole chunk and what follows it.
fn take_chunk(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.windows(2).position(|window| window == b"\r\n")?;
    let size = usize::from_str_radix(std::str::from_utf8(&bytes[..end]).ok()?, 16).ok()?;
    let data = bytes.get(end + 2..end + 2 + size)?;
    Some((data, bytes.get(end + 2 + size + 2..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_taken_whole() {
        let bytes = b"00000007\r\nQ000ahi\r\n0000";
        assert_eq!(take_chunk(bytes), Some((&b"Q000ahi"[..], &b"0000"[..])));
        for end in 0..19 {
            assert_eq!(take_chunk(&bytes[..end]), None, "{end}");
        }
    }
}
