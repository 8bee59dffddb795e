//! `durable-publish` and `durable-restart`: acknowledged publications to topics on disk: how many a second,
//! how long each waits, beside what the disk itself does; then what a killed server needs to come back.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde_json::{Value, json};

use crate::cores::pin;
use crate::dialect::tidegate::{Acknowledged, publish_to_be_acknowledged, take_acknowledgements};
use crate::dialect::websocket::take_handshake;
use crate::findings::histogram;
use crate::run::Context;
use crate::sample::Cpu;
use crate::scenario::Kind;
use crate::stage::{latency_json, phase_json};
use crate::target::{Needs, Target, TargetChoice, get};

/// Publications a second in the phases that measure how long an acknowledgement takes.
const RATES: [(f64, &str); 3] = [(1.0, "1/s"), (100.0, "100/s"), (10_000.0, "10,000/s")];
/// Publications that wait for their acknowledgement, where as many as possible are wanted.
const WINDOW: usize = 8_192;
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn run(context: &Context<'_>) -> Result<Value, String> {
    if *context.target != TargetChoice::Own {
        return Err(
            "durable topics are measured with a server of the bench's own, for it is killed".into(),
        );
    }
    pin(&context.cores.load);
    let folder = Folder::new();
    let mut server = Target::start(context.target, &needs(&folder.0), &context.cores)?;
    let mut result = serde_json::Map::new();
    let mut phases = Vec::new();
    let (mut acknowledged, mut refused) = (0, 0);
    let floor_before = floor(&folder.0, context)?;
    if context.scenario.kind == Kind::DurablePublish {
        for (rate, name) in RATES {
            context.progress.phase(name, Some(context.seconds));
            let paced = publish_paced(&server, context, rate)?;
            phases.push(phase_json(name, &paced.latency_ns));
            acknowledged += paced.acknowledged;
            refused += paced.refused;
        }
    }
    let wanted = match context.scenario.kind {
        Kind::DurableRestart => context.topics as u64 * 10,
        _ => u64::MAX,
    };
    context.progress.phase("as many as possible", Some(context.seconds));
    let (cpu, began) = (Cpu::of(&server.processes), Instant::now());
    let most = publish_flat_out(&server, context, wanted)?;
    let seconds = began.elapsed().as_secs_f64();
    let used = Cpu::of(&server.processes).since(cpu);
    phases.push(phase_json("as many as possible", &most.latency_ns));
    acknowledged += most.acknowledged;
    refused += most.refused;
    let floor_after = floor(&folder.0, context)?;
    result.insert(
        "cost".into(),
        json!({
            "acknowledged_per_second": most.acknowledged as f64 / seconds,
            "server_cpu_us_per_publication": used.total_us() / most.acknowledged.max(1) as f64,
            "window": WINDOW,
        }),
    );
    result.insert("disk_floor".into(), json!({
        "before": floor_before,
        "after": floor_after,
        "note": "records appended to one file, fdatasync after each batch, in the same directory",
    }));
    drop(server);
    context.progress.phase("restarting", None);
    server = Target::start(context.target, &needs(&folder.0), &context.cores)?;
    let (topics, kept) = heads(&server).map_err(|error| format!("cannot list topics: {error}"))?;
    result.insert(
        "restart".into(),
        json!({
            "seconds": server.started_in.as_secs_f64(),
            "topics": topics,
            "records": kept,
            "store_bytes": bytes_in(&folder.0),
            "resident_bytes": crate::sample::Memory::of(&server.processes).resident,
        }),
    );
    result.insert("phases".into(), phases.into());
    let missing = acknowledged.saturating_sub(kept);
    result.insert("checks".into(), json!({
        "acknowledged": acknowledged, "refused": refused, "kept_after_kill": kept, "missing": missing,
    }));
    result.insert("is_valid".into(), (missing == 0 && refused == 0).into());
    Ok(result.into())
}

fn needs(store: &Path) -> Needs {
    Needs {
        connections: 10,
        sections: format!(
            "[store]\npath = \"{}\"\n[[topics]]\nselector = \"#\"\nack = \"disk\"\nhistory_count = 1000000000\n\
             memory_count = 1\n",
            store.display()
        ),
        limits: "topics_per_shard_max = 4000000\n".into(),
        ..Needs::default()
    }
}

/// A directory that goes with the run.
pub(crate) struct Folder(pub PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(std::env::temp_dir().join(format!("tidegate-bench-store-{}", std::process::id())))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed stays in the directory for temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn bytes_in(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let bytes = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => bytes_in(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    });
    bytes.sum()
}

/// The speed of the disk without a server: records per second, and the duration of a sync.
fn floor(folder: &Path, context: &Context<'_>) -> Result<Value, String> {
    const LENGTH: Duration = Duration::from_secs(2);
    let failed = |error: std::io::Error| format!("cannot measure the disk: {error}");
    let path = folder.join("floor");
    let mut result = serde_json::Map::new();
    for batch in [1usize, 256] {
        let mut file = File::create(&path).map_err(failed)?;
        let records = vec![7; batch * (context.payload_bytes + 64)];
        let (mut syncs, began) = (histogram(3), Instant::now());
        while began.elapsed() < LENGTH {
            let at = Instant::now();
            file.write_all(&records).and_then(|()| file.sync_data()).map_err(failed)?;
            syncs.saturating_record(at.elapsed().as_nanos() as u64);
        }
        let per_second = (syncs.len() * batch as u64) as f64 / began.elapsed().as_secs_f64();
        let sync_ms = latency_json(&syncs, 1e6);
        result.insert(
            format!("batches_of_{batch}"),
            json!({ "records_per_second": per_second, "sync_ms": sync_ms }),
        );
    }
    std::fs::remove_file(&path).map_err(failed)?;
    Ok(result.into())
}

/// The outcomes of publications.
struct Outcome {
    acknowledged: u64,
    refused: u64,
    latency_ns: Histogram<u64>,
}

impl Outcome {
    fn new() -> Self {
        Self { acknowledged: 0, refused: 0, latency_ns: histogram(3) }
    }

    fn answered(&self) -> u64 {
        self.acknowledged + self.refused
    }

    fn note(&mut self, answer: Acknowledged, sent: impl Fn(u64) -> Instant) {
        match answer {
            Acknowledged::Yes(id) => {
                self.acknowledged += 1;
                self.latency_ns.saturating_record(sent(id).elapsed().as_nanos() as u64);
            }
            Acknowledged::No => self.refused += 1,
        }
    }
}

/// The side of a connection that hears acknowledgements.
struct Hearer {
    stream: TcpStream,
    heard: Vec<u8>,
}

/// The side of a connection that publishes.
struct Publisher {
    stream: TcpStream,
    /// The bytes that came with the handshake's answer.
    heard: Vec<u8>,
    frames: Vec<u8>,
    payload: Vec<u8>,
    topics: u64,
    sent: u64,
}

impl Publisher {
    fn open(server: &Target, context: &Context<'_>) -> std::io::Result<Self> {
        let mut stream = TcpStream::connect(server.address)?;
        stream.set_nodelay(true)?;
        let (mut out, mut heard, mut buffer) = (Vec::new(), Vec::new(), [0; 1024]);
        server.dialect.open_publisher(&mut out);
        stream.write_all(&out)?;
        let end = loop {
            match take_handshake(&heard) {
                Some(Ok(end)) => break end,
                Some(Err(_)) => return Err(std::io::ErrorKind::ConnectionRefused.into()),
                None => match stream.read(&mut buffer)? {
                    0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                    count => heard.extend_from_slice(&buffer[..count]),
                },
            }
        };
        heard.drain(..end);
        let payload = vec![7; context.payload_bytes];
        let topics = context.topics.max(1) as u64;
        Ok(Self { stream, heard, frames: Vec::new(), payload, topics, sent: 0 })
    }

    /// Publishes `count` more, one to each topic in turn.
    fn publish(&mut self, count: usize) -> std::io::Result<()> {
        self.frames.clear();
        let ids = self.sent..self.sent + count as u64;
        publish_to_be_acknowledged(
            ids.map(|id| (id, id % self.topics)),
            &self.payload,
            &mut self.frames,
        );
        self.sent += count as u64;
        self.stream.write_all(&self.frames)
    }

    fn hearer(&self) -> std::io::Result<Hearer> {
        Ok(Hearer { stream: self.stream.try_clone()?, heard: self.heard.clone() })
    }
}

impl Hearer {
    /// Waits at most `patience` for answers.
    fn hear(
        &mut self,
        patience: Duration,
        note: &mut dyn FnMut(Acknowledged),
    ) -> std::io::Result<()> {
        let mut buffer = [0; 64 << 10];
        self.stream.set_read_timeout(Some(patience.max(Duration::from_micros(100))))?;
        match self.stream.read(&mut buffer) {
            Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => self.heard.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
        let taken = take_acknowledgements(&self.heard, note)
            .map_err(|_| std::io::Error::from(std::io::ErrorKind::InvalidData))?;
        self.heard.drain(..taken);
        Ok(())
    }
}

/// Publishes at a rate, whatever the server does.
fn publish_paced(server: &Target, context: &Context<'_>, rate: f64) -> Result<Outcome, String> {
    let failed = |error: std::io::Error| format!("cannot publish: {error}");
    let mut publisher = Publisher::open(server, context).map_err(failed)?;
    let mut hearer = publisher.hearer().map_err(failed)?;
    let (began, count) = (Instant::now(), (rate * context.seconds as f64).max(5.0) as u64);
    let due = move |id: u64| began + Duration::from_secs_f64(id as f64 / rate);
    let (load, until) = (context.cores.load.clone(), due(count) + PATIENCE);
    let hearing = std::thread::spawn(move || {
        pin(&load);
        let mut outcome = Outcome::new();
        while outcome.answered() < count && Instant::now() < until {
            hearer.hear(PATIENCE, &mut |answer| outcome.note(answer, due))?;
        }
        Ok::<Outcome, std::io::Error>(outcome)
    });
    while publisher.sent < count {
        std::thread::sleep(due(publisher.sent).saturating_duration_since(Instant::now()));
        let owed = (began.elapsed().as_secs_f64() * rate) as u64 + 1;
        let more = owed.min(count).saturating_sub(publisher.sent);
        publisher.publish(more as usize).map_err(failed)?;
    }
    let outcome = hearing.join().map_err(|_| "the hearer panicked".to_owned())?.map_err(failed)?;
    match count - outcome.answered() {
        0 => Ok(outcome),
        unanswered => Err(format!("{unanswered} publications were never answered")),
    }
}

/// Keeps a window of publications under way for the run's seconds, or until `wanted` are answered.
fn publish_flat_out(
    server: &Target,
    context: &Context<'_>,
    wanted: u64,
) -> Result<Outcome, String> {
    let failed = |error: std::io::Error| format!("cannot publish: {error}");
    let mut publisher = Publisher::open(server, context).map_err(failed)?;
    let mut hearer = publisher.hearer().map_err(failed)?;
    let (mut outcome, began) = (Outcome::new(), Instant::now());
    let mut sent_at = vec![began; WINDOW];
    loop {
        let is_over = match wanted {
            u64::MAX => began.elapsed() >= Duration::from_secs(context.seconds),
            wanted => publisher.sent >= wanted,
        };
        let under_way = publisher.sent - outcome.answered();
        if is_over && under_way == 0 || context.progress.is_interrupted() {
            return Ok(outcome);
        }
        let room = (WINDOW as u64 - under_way).min(wanted - publisher.sent.min(wanted)) as usize;
        let is_rest = wanted - publisher.sent.min(wanted) == room as u64;
        if !is_over && (room >= WINDOW / 16 || is_rest) {
            let now = Instant::now();
            for id in publisher.sent..publisher.sent + room as u64 {
                sent_at[id as usize % WINDOW] = now;
            }
            publisher.publish(room).map_err(failed)?;
        }
        let mut is_heard = false;
        hearer
            .hear(PATIENCE, &mut |answer| {
                is_heard = true;
                outcome.note(answer, |id| sent_at[id as usize % WINDOW]);
            })
            .map_err(failed)?;
        if !is_heard {
            return Err(format!("{under_way} publications were not answered in 20 s"));
        }
    }
}

/// How many topics there are, and the sum of their newest sequences.
fn heads(server: &Target) -> std::io::Result<(u64, u64)> {
    let (mut topics, mut sum, mut after) = (0, 0, String::new());
    loop {
        let path = format!("/v1/topics?selector=bench/%23&limit=1000{after}");
        let answer = get(server.address, &path)?;
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        let page: Value = serde_json::from_str(body)?;
        let listed = page["topics"].as_array().cloned().unwrap_or_default();
        topics += listed.len() as u64;
        sum += listed.iter().filter_map(|topic| topic["sequence"].as_u64()).sum::<u64>();
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return Ok((topics, sum)),
        }
    }
}
