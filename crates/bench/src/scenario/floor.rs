//! `floor`: what sending alone costs: the same bytes to the same number of sockets, nothing else.

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use engine::private_descriptor_table;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, socket_with, sockopt};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

use crate::cores::{Cores, pin};
use crate::publisher::Pace;
use crate::run::Context;
use crate::swarm::PER_TABLE;

pub(crate) fn run(context: &Context<'_>) -> Result<Value, String> {
    context.progress.phase("sending", Some(context.seconds));
    let rounds = match context.pace {
        Pace::Even(rate) | Pace::Rounds(rate) | Pace::Random(rate) => rate,
    };
    let (clients, bytes) = (context.clients.min(PER_TABLE), context.payload_bytes + 9);
    let cost = cpu_us_per_send(clients, bytes, rounds, context.seconds, &context.cores)?;
    Ok(json!({ "clients": clients, "bytes": bytes, "cpu_us_per_send": cost, "is_valid": true }))
}

/// Sends `bytes` to each of `clients` sockets in turn, `rounds` times a second; answers the CPU time
/// of the sending thread, per send.
pub(crate) fn cpu_us_per_send(
    clients: usize,
    bytes: usize,
    rounds: f64,
    seconds: u64,
    cores: &Cores,
) -> Result<f64, String> {
    let failed = |error: std::io::Error| format!("cannot measure the floor: {error}");
    let clients = clients.min(PER_TABLE);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let is_over = Arc::new(AtomicBool::new(false));
    let (over, load) = (Arc::clone(&is_over), cores.load.clone());
    let reader = std::thread::spawn(move || {
        pin(&load);
        let _ = private_descriptor_table(3);
        read_all(clients, address, &over)
    });
    let server = cores.server.clone();
    let sender = std::thread::spawn(move || {
        pin(&server);
        send_rounds(&listener, clients, &vec![7; bytes], rounds, Duration::from_secs(seconds))
    });
    let sent = sender.join().map_err(|_| "the sender panicked".to_owned())?;
    is_over.store(true, Ordering::Relaxed);
    let read = reader.join().map_err(|_| "the reader panicked".to_owned())?;
    read.and(sent).map_err(failed)
}

fn send_rounds(
    listener: &TcpListener,
    clients: usize,
    bytes: &[u8],
    rounds: f64,
    length: Duration,
) -> std::io::Result<f64> {
    let sockets = accept_all(listener, clients)?;
    let (mut began, mut cpu, mut sends) = (Instant::now(), thread_cpu_us(), 0u64);
    let round = Duration::from_secs_f64(1.0 / rounds);
    for number in 0u32.. {
        // The first round warms the caches.
        if number == 1 {
            (began, cpu, sends) = (Instant::now(), thread_cpu_us(), 0);
        }
        let due = round * number.saturating_sub(1);
        if number > 1 && began.elapsed() >= length {
            break;
        }
        std::thread::sleep(due.saturating_sub(began.elapsed()));
        for socket in &sockets {
            let sent = rustix::net::send(socket, bytes, SendFlags::NOSIGNAL);
            sends += u64::from(sent.is_ok());
        }
    }
    Ok((thread_cpu_us() - cpu) / sends.max(1) as f64)
}

/// Accepts all, unless they stop coming.
fn accept_all(listener: &TcpListener, clients: usize) -> std::io::Result<Vec<TcpStream>> {
    const PATIENCE: Duration = Duration::from_secs(5);
    listener.set_nonblocking(true)?;
    let (mut sockets, mut heard_at) = (Vec::with_capacity(clients), Instant::now());
    while sockets.len() < clients {
        match listener.accept() {
            Ok((socket, _)) => {
                sockopt::set_tcp_nodelay(&socket, true)?;
                socket.set_nonblocking(false)?;
                sockets.push(socket);
                heard_at = Instant::now();
            }
            Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => return Err(error),
            Err(error) if heard_at.elapsed() > PATIENCE => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_micros(200)),
        }
    }
    Ok(sockets)
}

fn thread_cpu_us() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

/// Connects from one of many addresses, so that none runs out of ports.
fn connect(index: usize, address: SocketAddr) -> std::io::Result<TcpStream> {
    const PER_ADDRESS: usize = 4_000;
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    let source = Ipv4Addr::new(127, 2, (index / PER_ADDRESS) as u8, 1);
    rustix::net::bind(&socket, &SocketAddrV4::new(source, 0))?;
    rustix::net::connect(&socket, &address)?;
    Ok(socket.into())
}

fn read_all(clients: usize, address: SocketAddr, is_over: &AtomicBool) -> std::io::Result<()> {
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    let mut sockets = Vec::new();
    for index in 0..clients {
        let socket = connect(index, address)?;
        socket.set_nonblocking(true)?;
        let data = EventData::new_u64(index as u64);
        epoll::add(&epoll, &socket, data, EventFlags::IN | EventFlags::ET)?;
        sockets.push(socket);
    }
    let mut buffer = vec![0; 256 << 10];
    let mut ready: Vec<Event> = Vec::with_capacity(1024);
    let timeout = rustix::event::Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    while !is_over.load(Ordering::Relaxed) {
        ready.clear();
        epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut ready), Some(&timeout))?;
        for event in &ready {
            let _ = sockets[event.data.u64() as usize].read(&mut buffer);
        }
    }
    Ok(())
}
