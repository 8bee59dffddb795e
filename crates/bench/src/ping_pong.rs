//! `ping-pong`: a client publishes to a topic that it reads, and waits for it; beside it a bare echo.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde_json::{Value, json};

use crate::report::{ScenarioOptions, latency_json};
use crate::target::{Target, pin};
use crate::wire;

const WARM_UP: u32 = 2_000;

pub(crate) fn ping_pong(options: &ScenarioOptions) -> Result<Value, String> {
    let failed = |error: std::io::Error| format!("cannot play ping-pong: {error}");
    let mut results = serde_json::Map::new();
    pin(1);
    for bytes in [10, 125] {
        let target = Target::start(10, "")?;
        let server = server_round_trips(target.address, bytes, options.seconds).map_err(failed)?;
        drop(target);
        let floor = floor_round_trips(bytes, options.seconds).map_err(failed)?;
        let (ours, bare) = (server.value_at_quantile(0.5), floor.value_at_quantile(0.5));
        results.insert(
            format!("{bytes}_bytes"),
            json!({
                "round_trip_us": latency_json(&server, 1e3),
                "bare_epoll_echo_us": latency_json(&floor, 1e3),
                "added_p50_us": (ours as f64 - bare as f64) / 1e3,
                "round_trips": server.len(),
            }),
        );
    }
    results.insert("is_valid".into(), true.into());
    Ok(results.into())
}

fn server_round_trips(
    address: SocketAddr,
    bytes: usize,
    seconds: u64,
) -> std::io::Result<Histogram<u64>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let mut opening = wire::HANDSHAKE.to_vec();
    wire::append_control(r#"{"type":"subscribe","topic":"bench/echo","from":"now"}"#, &mut opening);
    stream.write_all(&opening)?;
    let mut heard = Vec::new();
    let mut buffer = [0; 4096];
    while !heard.windows(12).any(|window| window == b"\"subscribed\"") {
        let count = stream.read(&mut buffer)?;
        heard.extend_from_slice(&buffer[..count]);
    }
    let (mut record, mut frame) = (Vec::new(), Vec::new());
    wire::append_publish("bench/echo", &vec![7; bytes], &mut record);
    wire::append_frame(&record, &mut frame);
    // What comes back: frame header 2 or 4, tag, topic number, sequence 2, length, payload.
    round_trips(&mut stream, &frame, seconds, |heard| wire::take_frame(heard).is_some())
}

fn floor_round_trips(bytes: usize, seconds: u64) -> std::io::Result<Histogram<u64>> {
    use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let echo = std::thread::spawn(move || -> std::io::Result<()> {
        pin(0);
        let (mut socket, _) = listener.accept()?;
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &socket, EventData::new_u64(1), EventFlags::IN | EventFlags::ET)?;
        let mut buffer = [0; 4096];
        let mut ready: Vec<Event> = Vec::with_capacity(8);
        loop {
            ready.clear();
            epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut ready), None)?;
            match socket.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => socket.write_all(&buffer[..count])?,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    });
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let trips = round_trips(&mut stream, &vec![7; bytes], seconds, |heard| heard.len() >= bytes)?;
    drop(stream);
    echo.join().expect("the echo does not panic")?;
    Ok(trips)
}

fn round_trips(
    stream: &mut TcpStream,
    frame: &[u8],
    seconds: u64,
    is_back: impl Fn(&[u8]) -> bool,
) -> std::io::Result<Histogram<u64>> {
    let mut trips = Histogram::new_with_bounds(100, 60_000_000_000, 3).expect("valid bounds");
    let (mut heard, mut buffer) = (Vec::new(), [0; 4096]);
    let until = Instant::now() + Duration::from_secs(seconds);
    for number in 0u32.. {
        let began = Instant::now();
        if began >= until {
            break;
        }
        stream.write_all(frame)?;
        heard.clear();
        while !is_back(&heard) {
            let count = stream.read(&mut buffer)?;
            if count == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            heard.extend_from_slice(&buffer[..count]);
        }
        if number >= WARM_UP {
            trips.saturating_record(began.elapsed().as_nanos() as u64);
        }
    }
    Ok(trips)
}
