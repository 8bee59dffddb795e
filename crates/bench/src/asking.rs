//! Simulated applications: each asks its device over HTTP, waits for the answer, pauses, and asks again.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use engine::private_descriptor_table;
use hdrhistogram::Histogram;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use crate::cores::pin;
use crate::findings::histogram;

/// The load that applications make.
#[derive(Clone, Debug)]
pub(crate) struct AskingPlan {
    pub address: SocketAddr,
    pub applications: usize,
    pub devices: usize,
    pub key: String,
    /// Between an answer and the next request: the shortest and the longest.
    pub pause: (Duration, Duration),
    pub cores: Vec<usize>,
}

/// The findings of the applications.
pub(crate) struct Asked {
    /// From sending a request until its answer is here, in nanoseconds.
    pub latency: Histogram<u64>,
    pub answered: u64,
    /// Answers of another status than 200.
    pub refused: u64,
    /// The first of those.
    pub first_refusal: Option<String>,
}

/// A running thread of applications.
pub(crate) struct Asking {
    is_measuring: Arc<AtomicBool>,
    is_ending: Arc<AtomicBool>,
    thread: JoinHandle<Result<Asked, String>>,
}

impl Asking {
    pub(crate) fn start(plan: AskingPlan) -> Self {
        let (is_measuring, is_ending) =
            (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let flags = (Arc::clone(&is_measuring), Arc::clone(&is_ending));
        let thread = std::thread::spawn(move || {
            pin(&plan.cores);
            private_descriptor_table(3).map_err(|error| format!("no table: {error}"))?;
            Applications::new(plan, flags)?.run()
        });
        Self { is_measuring, is_ending, thread }
    }

    /// Counts from now on.
    pub(crate) fn measure(&self) {
        self.is_measuring.store(true, Ordering::Relaxed);
    }

    pub(crate) fn end(self) -> Result<Asked, String> {
        self.is_ending.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| "the thread of applications panicked".to_owned())?
    }
}

struct Application {
    socket: OwnedFd,
    request: Vec<u8>,
    asked_at: Option<Instant>,
    heard: Vec<u8>,
}

struct Applications {
    plan: AskingPlan,
    all: Vec<Application>,
    epoll: OwnedFd,
    /// The next application to ask, and when.
    due: BinaryHeap<Reverse<(Instant, usize)>>,
    is_measuring: Arc<AtomicBool>,
    is_ending: Arc<AtomicBool>,
    random: u64,
    found: Asked,
}

impl Applications {
    fn new(
        plan: AskingPlan,
        (is_measuring, is_ending): (Arc<AtomicBool>, Arc<AtomicBool>),
    ) -> Result<Self, String> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(|error| error.to_string())?;
        let found = Asked { latency: histogram(3), answered: 0, refused: 0, first_refusal: None };
        let random = engine::random_seed() | 1;
        let (all, due) = (Vec::new(), BinaryHeap::new());
        let mut it = Self { plan, all, epoll, due, is_measuring, is_ending, random, found };
        for number in 0..it.plan.applications {
            let application = it.open(number)?;
            it.all.push(application);
            let first = it.pause();
            it.due.push(Reverse((Instant::now() + first, number)));
        }
        Ok(it)
    }

    fn open(&self, number: usize) -> Result<Application, String> {
        let failed = |error: Errno| format!("cannot connect an application: {error}");
        let flags = SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)
            .map_err(failed)?;
        rustix::net::connect(&socket, &self.plan.address).map_err(failed)?;
        rustix::io::ioctl_fionbio(&socket, true).map_err(failed)?;
        rustix::net::sockopt::set_tcp_nodelay(&socket, true).map_err(failed)?;
        let data = EventData::new_u64(number as u64);
        epoll::add(&self.epoll, &socket, data, EventFlags::IN).map_err(failed)?;
        let device = number * self.plan.devices / self.plan.applications;
        let request = format!(
            "POST /v1/devices/d{device}/send?application=bench HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/octet-stream\r\nContent-Length: 10\r\n\r\n0123456789",
            self.plan.key
        );
        Ok(Application { socket, request: request.into(), asked_at: None, heard: Vec::new() })
    }

    fn pause(&mut self) -> Duration {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let (shortest, longest) = self.plan.pause;
        let share = (self.random >> 11) as f64 / (1u64 << 53) as f64;
        shortest + (longest - shortest).mul_f64(share)
    }

    fn run(mut self) -> Result<Asked, String> {
        let mut ready: Vec<Event> = Vec::with_capacity(1024);
        while !self.is_ending.load(Ordering::Relaxed) {
            while let Some(Reverse((at, number))) = self.due.peek().copied()
                && at <= Instant::now()
            {
                self.due.pop();
                self.ask(number)?;
            }
            ready.clear();
            let timeout = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
            let spare = rustix::buffer::spare_capacity(&mut ready);
            if epoll::wait(&self.epoll, spare, Some(&timeout)).is_err() {
                continue;
            }
            for event in &ready {
                self.receive(event.data.u64() as usize)?;
            }
        }
        Ok(self.found)
    }

    fn ask(&mut self, number: usize) -> Result<(), String> {
        let application = &mut self.all[number];
        application.asked_at = Some(Instant::now());
        let sent =
            rustix::net::send(&application.socket, &application.request, SendFlags::NOSIGNAL);
        match sent {
            Ok(count) if count == application.request.len() => Ok(()),
            other => Err(format!("cannot send an application's request: {other:?}")),
        }
    }

    fn receive(&mut self, number: usize) -> Result<(), String> {
        let mut buffer = [0; 4096];
        loop {
            let application = &mut self.all[number];
            match rustix::net::recv(&application.socket, &mut buffer, RecvFlags::empty()) {
                Ok((0, _)) => return Err("the server closed an application's connection".into()),
                Ok((count, _)) => application.heard.extend_from_slice(&buffer[..count]),
                Err(Errno::AGAIN) => return Ok(()),
                Err(error) => return Err(format!("cannot hear an application's answer: {error}")),
            }
            if let Some(is_answer) = take_answer(&mut application.heard) {
                self.take(number, is_answer);
            }
        }
    }

    fn take(&mut self, number: usize, answer: Result<(), String>) {
        let asked_at = self.all[number].asked_at.take();
        if self.is_measuring.load(Ordering::Relaxed) {
            match answer {
                Ok(()) => self.found.answered += 1,
                Err(text) => {
                    self.found.refused += 1;
                    self.found.first_refusal.get_or_insert(text);
                }
            }
            if let Some(asked_at) = asked_at {
                self.found.latency.saturating_record(asked_at.elapsed().as_nanos() as u64);
            }
        }
        let pause = self.pause();
        self.due.push(Reverse((Instant::now() + pause, number)));
    }
}

/// Takes a whole answer off the front: whether its status is 200.
fn take_answer(heard: &mut Vec<u8>) -> Option<Result<(), String>> {
    let end = heard.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let head = String::from_utf8_lossy(&heard[..end]).into_owned();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?;
    let whole = end + length.trim().parse::<usize>().ok()?;
    if heard.len() < whole {
        return None;
    }
    let body = String::from_utf8_lossy(&heard[end..whole]).into_owned();
    heard.drain(..whole);
    Some(if head.starts_with("HTTP/1.1 200") { Ok(()) } else { Err(body) })
}
