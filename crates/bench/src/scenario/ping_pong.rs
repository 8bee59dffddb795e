//! `ping-pong`: a client publishes to a topic that it reads, and waits for it; in turns with a bare echo, and with a
//! request that the server answers itself.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use serde_json::{Value, json};

use crate::cores::pin;
use crate::dialect::{Consumed, Dialect, Input, ReaderSpec, websocket::take_handshake};
use crate::publisher;
use crate::run::Context;
use crate::stage::{INTERRUPTED, latency_json};
use crate::target::{Needs, Target};

/// Turns of one second each, of the server and of the bare echo.
const TURN: Duration = Duration::from_millis(500);

pub(crate) fn run(context: &Context<'_>) -> Result<Value, String> {
    let failed = |error: std::io::Error| format!("cannot play ping-pong: {error}");
    let mut result = serde_json::Map::new();
    pin(&context.cores.load);
    let needs = Needs { connections: 10, ..Needs::default() };
    let target = Target::start(context.target, &needs, &context.cores)?;
    for bytes in [10, 125] {
        context.progress.phase(&format!("{bytes} bytes"), Some(context.seconds));
        let mut server = open(&target).map_err(failed)?;
        // Some servers take publications only on a connection of their own.
        let mut publisher = match target.dialect.publishes_beside() {
            true => publisher::open(&*target.dialect, target.address).map_err(failed)?,
            false => server.try_clone().map_err(failed)?,
        };
        let (mut bare, echo) = open_echo(&context.cores.server).map_err(failed)?;
        let mut frame = Vec::new();
        target.dialect.publish(&[(0, vec![7; bytes])], &mut frame);
        let hears = |heard: &[u8]| hears_payload(&*target.dialect, heard);
        let request = target.dialect.request(bytes);
        let (mut ours, mut floor, mut asked) = (trips(), trips(), trips());
        let is_over = || context.progress.is_interrupted();
        // The first turn of each warms up.
        for turn in 0..=context.seconds {
            if is_over() {
                return Err(INTERRUPTED.into());
            }
            let (mut discard, mut discard_too) = (trips(), trips());
            let (mine, theirs) = match turn {
                0 => (&mut discard, &mut discard_too),
                _ => (&mut ours, &mut floor),
            };
            round_trips(&mut publisher, &mut server, &frame, mine, &hears, &is_over)
                .map_err(failed)?;
            let mut same = bare.try_clone().map_err(failed)?;
            let is_whole = |heard: &[u8]| heard.len() >= frame.len();
            round_trips(&mut same, &mut bare, &frame, theirs, &is_whole, &is_over)
                .map_err(failed)?;
            if let Some((frame, mark)) = &request {
                let is_back =
                    |heard: &[u8]| heard.windows(mark.len()).any(|window| window == *mark);
                let mut same = server.try_clone().map_err(failed)?;
                let mut discard = trips();
                let trips = if turn == 0 { &mut discard } else { &mut asked };
                round_trips(&mut same, &mut server, frame, trips, &is_back, &is_over)
                    .map_err(failed)?;
            }
        }
        // The echo ends when both of its peers' handles are gone.
        drop(bare);
        echo.join().map_err(|_| "the echo panicked".to_owned())?.map_err(failed)?;
        let added = ours.value_at_quantile(0.5) as f64 - floor.value_at_quantile(0.5) as f64;
        result.insert(
            format!("{bytes}_bytes"),
            json!({
                "round_trip_us": latency_json(&ours, 1e3),
                "request_us": request.is_some().then(|| latency_json(&asked, 1e3)),
                "bare_epoll_echo_us": latency_json(&floor, 1e3),
                "added_p50_us": added / 1e3,
            }),
        );
    }
    result.insert("is_valid".into(), true.into());
    Ok(result.into())
}

fn trips() -> Histogram<u64> {
    Histogram::new_with_bounds(100, 60_000_000_000, 3).expect("valid bounds")
}

fn hears_payload(dialect: &dyn Dialect, heard: &[u8]) -> bool {
    let mut is_there = false;
    let taken = dialect.take(heard, 0, &mut |heard| is_there |= matches!(heard, Input::Payload(_)));
    taken.is_ok() && is_there
}

/// A connection that reads topic 0 and may publish to it.
fn open(target: &Target) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(target.address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let wanted = ReaderSpec { topics: &[0], resume: None };
    let (mut out, mut heard, mut buffer) = (Vec::new(), Vec::new(), [0; 4096]);
    target.dialect.open_reader(wanted, &mut out);
    stream.write_all(&out)?;
    if target.dialect.is_websocket() {
        let end = loop {
            match take_handshake(&heard) {
                Some(Ok(end)) => break end,
                Some(Err(_)) => return Err(std::io::ErrorKind::ConnectionRefused.into()),
                None => read_some(&mut stream, &mut buffer, &mut heard)?,
            }
        };
        heard.drain(..end);
    }
    out.clear();
    let is_confirmed = target.dialect.subscribe(wanted, &mut out);
    stream.write_all(&out)?;
    let mut is_ready = !is_confirmed;
    while !is_ready {
        read_some(&mut stream, &mut buffer, &mut heard)?;
        let taken = target.dialect.take(&heard, 0, &mut |heard| is_ready |= heard == Input::Ready);
        heard.drain(..taken.unwrap_or(Consumed::default()).bytes);
    }
    Ok(stream)
}

fn read_some(stream: &mut TcpStream, buffer: &mut [u8], out: &mut Vec<u8>) -> std::io::Result<()> {
    match stream.read(buffer)? {
        0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
        count => {
            out.extend_from_slice(&buffer[..count]);
            Ok(())
        }
    }
}

type Echo = std::thread::JoinHandle<std::io::Result<()>>;

/// A connection to a thread that sends back what it receives, edge-triggered like the server.
fn open_echo(cores: &[usize]) -> std::io::Result<(TcpStream, Echo)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address: SocketAddr = listener.local_addr()?;
    let cores = cores.to_vec();
    let echo = std::thread::spawn(move || {
        pin(&cores);
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
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    Ok((stream, echo))
}

fn round_trips(
    publisher: &mut TcpStream,
    reader: &mut TcpStream,
    frame: &[u8],
    trips: &mut Histogram<u64>,
    is_back: &dyn Fn(&[u8]) -> bool,
    is_over: &dyn Fn() -> bool,
) -> std::io::Result<()> {
    let (mut heard, mut buffer) = (Vec::new(), [0; 4096]);
    let until = Instant::now() + TURN;
    loop {
        let began = Instant::now();
        if began >= until || is_over() {
            return Ok(());
        }
        publisher.write_all(frame)?;
        heard.clear();
        while !is_back(&heard) {
            read_some(reader, &mut buffer, &mut heard)?;
        }
        trips.saturating_record(began.elapsed().as_nanos() as u64);
    }
}
