//! `floor`: what sending alone costs: the same bytes to the same number of sockets, nothing else.

use std::io::Read;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::net::{SendFlags, sockopt};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

use crate::report::ScenarioOptions;
use crate::target::pin;

/// Sends `payload_bytes` to each of `clients` sockets in turn, at the rate of the scenario, and
/// measures the CPU time of the sending thread only.
pub(crate) fn floor(options: &ScenarioOptions) -> Result<Value, String> {
    let failed = |error: std::io::Error| format!("cannot measure the floor: {error}");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let clients = options.clients.min(9_000);
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let (tell, hear) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        pin(1);
        read_all(clients, address, &over, &tell)
    });
    let sockets: Vec<TcpStream> = (0..clients)
        .map(|_| listener.accept().map(|(socket, _)| socket))
        .collect::<Result<_, _>>()
        .map_err(failed)?;
    for socket in &sockets {
        sockopt::set_tcp_nodelay(socket, true).map_err(|error| failed(error.into()))?;
    }
    hear.recv().map_err(|_| "the readers ended early".to_owned())?;
    pin(0);
    let bytes = vec![7; options.payload_bytes + 9];
    let (began, cpu) = (Instant::now(), thread_cpu_us());
    let (mut sends, length) = (0u64, Duration::from_secs(options.seconds));
    let round = Duration::from_secs_f64(1.0 / options.rate);
    for number in 0u32.. {
        let due = round * number;
        if began.elapsed() >= length {
            break;
        }
        std::thread::sleep(due.saturating_sub(began.elapsed()));
        for socket in &sockets {
            let sent = rustix::net::send(socket, &bytes, SendFlags::NOSIGNAL);
            sends += u64::from(sent.is_ok());
        }
    }
    let cpu = thread_cpu_us() - cpu;
    is_over.store(true, Ordering::Relaxed);
    drop(sockets);
    let _ = reader.join();
    Ok(json!({
        "clients": clients,
        "bytes": bytes.len(),
        "sends": sends,
        "cpu_us_per_send": cpu / sends.max(1) as f64,
        "sends_per_second": sends as f64 / began.elapsed().as_secs_f64(),
        "is_valid": true,
    }))
}

fn thread_cpu_us() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

fn read_all(
    clients: usize,
    address: std::net::SocketAddr,
    is_over: &AtomicBool,
    tell: &std::sync::mpsc::Sender<()>,
) -> std::io::Result<()> {
    use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    let mut sockets = Vec::new();
    for index in 0..clients {
        let socket = TcpStream::connect(address)?;
        socket.set_nonblocking(true)?;
        epoll::add(
            &epoll,
            &socket,
            EventData::new_u64(index as u64),
            EventFlags::IN | EventFlags::ET,
        )?;
        sockets.push(socket);
    }
    let _ = tell.send(());
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
