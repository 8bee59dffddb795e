//! `reductions`: what each way to send less is worth on two feeds: bytes for each client and server CPU,
//! beside the raw feed. A client of the SDK reads along and must end with what the server has.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use client::{Client, ClientOptions, Update};
use model::{Conflation, DeltaKind, Limits, Rates, Selector, Start, Subscribe, SubscribeOptions};
use serde_json::{Value, json};

use crate::cores::pin;
use crate::dialect::tidegate::append_json_publish;
use crate::dialect::websocket::{append_frame, append_handshake};
use crate::drain::{Drain, Greeting};
use crate::feeds::{Feed, Prices, Scores};
use crate::run::Context;
use crate::sample::Cpu;
use crate::target::{Needs, Target, TargetChoice, get};

/// One way to read a feed.
struct Way {
    name: &'static str,
    options: SubscribeOptions,
    rates: Rates,
    is_compressed: bool,
}

const INTERVAL: Duration = Duration::from_millis(500);

fn ways(filter: &str) -> Vec<Way> {
    let plain = SubscribeOptions::default();
    let way = |name, options| Way { name, options, rates: Rates::default(), is_compressed: false };
    let conflated =
        SubscribeOptions { conflation: Conflation::Always, interval: INTERVAL, ..plain.clone() };
    let delta = |delta| SubscribeOptions { delta, ..plain.clone() };
    let filtered = SubscribeOptions { filter: Some(filter.into()), ..plain.clone() };
    let all = SubscribeOptions {
        delta: DeltaKind::Vcdiff,
        filter: filtered.filter.clone(),
        ..conflated.clone()
    };
    let gathered = SubscribeOptions { interval: Duration::from_millis(100), ..plain.clone() };
    vec![
        way("raw", plain.clone()),
        way("gathered for 100 ms", gathered),
        way("newest every 500 ms", conflated),
        Way {
            rates: Rates { bytes: NonZeroU32::new(10_000), messages: None },
            ..way("at most 10 kB/s", plain.clone())
        },
        way("filtered", filtered),
        way("deltas, VCDIFF", delta(DeltaKind::Vcdiff)),
        way("deltas, JSON patch", delta(DeltaKind::JsonPatch)),
        Way { is_compressed: true, ..way("compressed", plain) },
        Way { is_compressed: true, ..way("newest + filter + VCDIFF + compressed", all) },
    ]
}

pub(crate) fn run(context: &Context<'_>) -> Result<Value, String> {
    if *context.target != TargetChoice::Own {
        return Err("reductions are measured with a server of the bench's own".into());
    }
    let mut rows = Vec::new();
    let mut is_valid = true;
    for (feed, selector, filter) in [
        ("prices", "prices/#", "data.change_percent > 0.1"),
        ("scores", "scores/#", "data.home.goals > data.away.goals || data.clock < '00:05'"),
    ] {
        let mut raw_bytes = None;
        for way in ways(filter) {
            context.progress.phase(way.name, Some(context.seconds));
            let row = measure(context, feed, selector, &way)?;
            is_valid &= row["differences_at_the_end"] == 0;
            let bytes = row["bytes_per_client_and_second"].as_f64().unwrap_or(0.0);
            let raw = *raw_bytes.get_or_insert(bytes);
            let mut row = row;
            row["percent_of_raw"] = json!(bytes / raw * 100.0);
            rows.push(row);
        }
    }
    Ok(json!({ "is_valid": is_valid, "clients": context.clients, "reductions": rows }))
}

fn feed_of(name: &str) -> Box<dyn Feed + Send> {
    match name {
        "prices" => Box::new(Prices::new()),
        _ => Box::new(Scores::new()),
    }
}

fn measure(context: &Context<'_>, feed: &str, selector: &str, way: &Way) -> Result<Value, String> {
    let needs = Needs {
        connections: context.clients + 10,
        sections: "[compression]\non = true\n[[topics]]\nselector = \"#\"\nhistory_count = 1\n"
            .into(),
        ..Needs::default()
    };
    let target = Target::start(context.target, &needs, &context.cores)?;
    pin(&context.cores.load);
    let offers = way
        .is_compressed
        .then_some("permessage-deflate; server_no_context_takeover; client_no_context_takeover");
    let greeting = Greeting::new(&commands(selector, way), offers);
    let (cores, address) = (&context.cores.load, target.address);
    let drain = Drain::start(address, context.clients, &greeting, cores, None)?;
    let reader = Reader::start(address, selector, way)?;
    let publisher = Publisher::start(address, feed_of(feed), cores)?;
    const WARM_UP: Duration = Duration::from_secs(1);
    std::thread::sleep(WARM_UP);
    let look = || {
        let counted = &drain.counted;
        (counted.bytes.load(Ordering::Relaxed), counted.messages.load(Ordering::Relaxed))
    };
    let (before, cpu, began) = (look(), Cpu::of(&target.processes), Instant::now());
    let length = Duration::from_secs(context.seconds);
    while began.elapsed() < length {
        if context.progress.is_interrupted() {
            return Err("interrupted: everything was put back as it was".into());
        }
        std::thread::sleep(Duration::from_millis(50).min(length - began.elapsed().min(length)));
    }
    let (after, used) = (look(), Cpu::of(&target.processes).since(cpu));
    let each = began.elapsed().as_secs_f64() * context.clients as f64;
    let late = publisher.end()?;
    let differences =
        await_equality(&reader, || differences(address, feed, way, &reader.values()))?;
    reader.end()?;
    drain.end()?;
    Ok(json!({
        "feed": feed,
        "way": way.name,
        "bytes_per_client_and_second": (after.0 - before.0) as f64 / each,
        "messages_per_client_and_second": (after.1 - before.1) as f64 / each,
        "server_cpu_us_per_client_and_second": used.total_us() / each,
        "differences_at_the_end": differences,
        "publisher_late_ms_max": late.as_secs_f64() * 1e3,
    }))
}

/// Waits until nothing differs any more, for what is held back and throttled still comes: what differs at the end.
fn await_equality(
    reader: &Reader,
    count: impl Fn() -> Result<usize, String>,
) -> Result<usize, String> {
    const PATIENCE: Duration = Duration::from_secs(20);
    // What was published last is under way to the server still.
    std::thread::sleep(Duration::from_millis(300));
    let began = Instant::now();
    loop {
        let differences = count()?;
        if differences == 0 || reader.thread.is_finished() || began.elapsed() > PATIENCE {
            return Ok(differences);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The command that a client sends.
fn commands(selector: &str, way: &Way) -> Vec<String> {
    let SubscribeOptions { conflation, interval, delta, filter, .. } = &way.options;
    let mut hello = json!({ "type": "hello", "batch": true });
    if let Some(bytes) = way.rates.bytes {
        hello["bytes_per_second"] = bytes.get().into();
    }
    let mut subscribe = json!({
        "type": "subscribe",
        "topic": selector,
        "conflation": conflation.name(),
        "interval_ms": interval.as_millis() as u64,
        "delta": delta.name(),
    });
    if let Some(filter) = filter {
        subscribe["filter"] = json!(&**filter);
    }
    vec![hello.to_string(), subscribe.to_string()]
}

/// Values by topic, as JSON.
type Values = BTreeMap<String, Value>;

/// A client of the SDK that reads along.
struct Reader {
    is_ending: Arc<AtomicBool>,
    values: Arc<Mutex<Values>>,
    thread: JoinHandle<Result<(), String>>,
}

impl Reader {
    fn start(address: SocketAddr, selector: &str, way: &Way) -> Result<Self, String> {
        let options = ClientOptions { rates: way.rates, seed: Some(3), ..ClientOptions::default() };
        let mut client = Client::connect(&format!("ws://{address}"), options)
            .map_err(|error| error.to_string())?;
        let selector = Selector::parse(selector, &Limits::default()).map_err(|e| e.to_string())?;
        client.subscribe(Subscribe {
            subscription: None,
            selectors: vec![selector],
            start: Start::Snapshot,
            positions: Vec::new(),
            name: None,
            options: way.options.clone(),
        });
        let is_ending = Arc::new(AtomicBool::new(false));
        let values = Arc::new(Mutex::new(Values::new()));
        let (ends, kept) = (Arc::clone(&is_ending), Arc::clone(&values));
        let thread = std::thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                match client.next(Instant::now() + Duration::from_millis(50)) {
                    Some(Update::Message { message, .. }) => {
                        let value = serde_json::from_slice(&message.payload)
                            .map_err(|error| format!("the message is not JSON: {error}"))?;
                        let topic = message.topic.as_str().to_owned();
                        kept.lock().expect("no holder panics").insert(topic, value);
                    }
                    Some(Update::Ended { refusal, .. }) => return Err(refusal.to_string()),
                    Some(Update::Disconnected { why, .. }) => return Err(why),
                    _ => {}
                }
            }
            Ok(())
        });
        Ok(Self { is_ending, values, thread })
    }

    /// The values that it has so far.
    fn values(&self) -> Values {
        self.values.lock().expect("no holder panics").clone()
    }

    fn end(self) -> Result<(), String> {
        self.is_ending.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| "the reader panicked".to_owned())?
    }
}

/// How many topics the reader has otherwise than the server. Where there is a filter, the server's newest
/// may be one that the reader does not want.
fn differences(
    address: SocketAddr,
    feed: &str,
    way: &Way,
    values: &Values,
) -> Result<usize, String> {
    let failed = |error: std::io::Error| format!("cannot read the server's values: {error}");
    let mut count = 0;
    for topic in topics(feed) {
        let answer = get(address, &format!("/v1/topics/{topic}")).map_err(failed)?;
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        let value: Value =
            serde_json::from_str(body).map_err(|error| format!("{error}: {answer}"))?;
        let is_wanted = match (feed, &way.options.filter) {
            (_, None) => true,
            ("prices", Some(_)) => value["data"]["change_percent"].as_f64() > Some(0.1),
            (_, Some(_)) => {
                value["data"]["home"]["goals"].as_u64() > value["data"]["away"]["goals"].as_u64()
            }
        };
        count += usize::from(is_wanted && values.get(&topic) != Some(&value["data"]));
    }
    Ok(count)
}

fn topics(feed: &str) -> Vec<String> {
    match feed {
        "prices" => (0..100).map(|at| format!("prices/SYM{at:02}")).collect(),
        _ => (0..20).map(|at| format!("scores/match-{at}")).collect(),
    }
}

/// Publishes a feed at its pace.
pub(crate) struct Publisher {
    is_ending: Arc<AtomicBool>,
    thread: JoinHandle<Result<Duration, String>>,
}

impl Publisher {
    pub(crate) fn start(
        address: SocketAddr,
        mut feed: Box<dyn Feed + Send>,
        cores: &[usize],
    ) -> Result<Self, String> {
        const TICK: Duration = Duration::from_millis(25);
        let failed = |error: std::io::Error| format!("cannot publish: {error}");
        let mut stream = TcpStream::connect(address).map_err(failed)?;
        let mut hello = Vec::new();
        append_handshake("/v1/ws", Some("tidegate.v1"), &mut hello);
        stream.write_all(&hello).map_err(failed)?;
        let is_ending = Arc::new(AtomicBool::new(false));
        let (ends, cores) = (Arc::clone(&is_ending), cores.to_vec());
        let thread = std::thread::spawn(move || {
            pin(&cores);
            let (began, mut ticks, mut late) = (Instant::now(), 0u32, Duration::ZERO);
            let per_tick = feed.per_second() * TICK.as_millis() as usize / 1_000;
            while !ends.load(Ordering::Relaxed) {
                let due = began + TICK * ticks;
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                late = late.max(due.elapsed());
                ticks += 1;
                let (mut records, mut frame) = (Vec::new(), Vec::new());
                for _ in 0..per_tick.max(1) {
                    let (topic, json) = feed.next();
                    append_json_publish(&topic, json.as_bytes(), &mut records);
                }
                append_frame(2, &records, &mut frame);
                stream.write_all(&frame).map_err(failed)?;
            }
            Ok(late)
        });
        Ok(Self { is_ending, thread })
    }

    /// Ends it; answers how late a tick was at most.
    pub(crate) fn end(self) -> Result<Duration, String> {
        self.is_ending.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| "the publisher panicked".to_owned())?
    }
}
