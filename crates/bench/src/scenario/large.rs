//! `large-among-small`: a publication of 10 MB in the middle of a feed of 1,000 messages a second, to the same
//! clients. What does the feed feel, with the large one in pieces and whole?

use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde_json::{Value, json};

use crate::dialect::tidegate::append_json_publish;
use crate::dialect::websocket::{append_frame, append_handshake};
use crate::drain::{Drain, Greeting, Look};
use crate::feeds::Feed;
use crate::findings::histogram;
use crate::run::Context;
use crate::scenario::reductions::Publisher;
use crate::stage::{latency_json, phase_json};
use crate::target::{Needs, Target, TargetChoice};

const LARGE_BYTES: usize = 10_000_000;

pub(crate) fn run(context: &Context<'_>) -> Result<Value, String> {
    if *context.target != TargetChoice::Own {
        return Err("this is measured with a server of the bench's own".into());
    }
    let mut phases = Vec::new();
    let mut result = serde_json::Map::new();
    for (name, before, during, fragments) in [
        ("in pieces", "before, in pieces", "during, in pieces", true),
        ("whole", "before, whole", "during, whole", false),
    ] {
        let measured = measure(context, name, fragments)?;
        phases.push(phase_json(before, &measured.before));
        phases.push(phase_json(during, &measured.during));
        result.insert(
            name.replace(' ', "_"),
            json!({
                "seconds_until_all_had_it": measured.seconds,
                "feed_ms_meanwhile": latency_json(&measured.during, 1e6),
            }),
        );
    }
    result.insert("large_bytes".into(), LARGE_BYTES.into());
    result.insert("clients".into(), context.clients.into());
    result.insert("phases".into(), phases.into());
    result.insert("is_valid".into(), true.into());
    Ok(result.into())
}

struct Measured {
    before: Histogram<u64>,
    during: Histogram<u64>,
    seconds: f64,
}

/// Ten topics, 1,000 messages a second, each says when it should have been sent.
struct Stamped {
    began: Instant,
    count: u64,
}

impl Feed for Stamped {
    fn per_second(&self) -> usize {
        1_000
    }

    fn next(&mut self) -> (String, String) {
        let topic = self.count % 10;
        self.count += 1;
        let ns = self.began.elapsed().as_nanos();
        (format!("feed/{topic}"), format!(r#"{{"ns":{ns},"fill":"{}"}}"#, "x".repeat(80)))
    }
}

fn measure(context: &Context<'_>, name: &'static str, fragments: bool) -> Result<Measured, String> {
    let needs = Needs {
        connections: context.clients + 10,
        limits: "payload_bytes_max = 20000000\nmessage_bytes_max = 21000000\n".into(),
        ..Needs::default()
    };
    let target = Target::start(context.target, &needs, &context.cores)?;
    let hello = json!({ "type": "hello", "batch": true, "fragments": fragments }).to_string();
    let subscribe =
        |topic| json!({ "type": "subscribe", "topic": topic, "from": "now" }).to_string();
    let greeting = Greeting::new(&[hello, subscribe("feed/#"), subscribe("large/a")], None);
    let began = Instant::now();
    let histograms = Arc::new(Mutex::new([histogram(3), histogram(3)]));
    let (phase, looked) = (Arc::new(AtomicUsize::new(0)), Arc::clone(&histograms));
    let in_phase = Arc::clone(&phase);
    let look: Look = Box::new(move |payload| {
        let phase = in_phase.load(Ordering::Relaxed);
        let now = began.elapsed().as_nanos() as u64;
        let mut histograms = looked.lock().expect("nobody panics with it");
        for sent in stamps(payload) {
            histograms[phase].saturating_record(now.saturating_sub(sent));
        }
    });
    let cores = &context.cores.load;
    let drain = Drain::start(target.address, context.clients, &greeting, cores, Some(look))?;
    let publisher = Publisher::start(target.address, Box::new(Stamped { began, count: 0 }), cores)?;
    context.progress.phase(name, Some(context.seconds));
    std::thread::sleep(Duration::from_secs(1));
    histograms.lock().expect("nobody panics with it")[0].reset();
    std::thread::sleep(Duration::from_secs(context.seconds));
    phase.store(1, Ordering::Relaxed);
    let (sent_at, bytes_before) = (Instant::now(), drain.counted.bytes.load(Ordering::Relaxed));
    publish_large(&target)?;
    let all = (LARGE_BYTES * context.clients) as u64;
    let patience = Duration::from_secs(60);
    while drain.counted.bytes.load(Ordering::Relaxed) - bytes_before < all {
        if sent_at.elapsed() > patience {
            return Err("the large publication did not arrive within a minute".into());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let seconds = sent_at.elapsed().as_secs_f64();
    // What waited behind it is still on its way.
    std::thread::sleep(Duration::from_millis(200));
    publisher.end()?;
    drain.end()?;
    let [before, during] = &*histograms.lock().expect("nobody panics with it");
    Ok(Measured { before: before.clone(), during: during.clone(), seconds })
}

/// When the messages in a batch should have been sent.
fn stamps(payload: &[u8]) -> impl Iterator<Item = u64> {
    const MARK: &[u8] = br#"{"ns":"#;
    let starts = payload.windows(MARK.len()).enumerate().filter(|(_, window)| *window == MARK);
    starts.filter_map(|(at, _)| {
        let digits = payload[at + MARK.len()..].iter().take_while(|byte| byte.is_ascii_digit());
        let text: String = digits.map(|byte| char::from(*byte)).collect();
        text.parse().ok()
    })
}

fn publish_large(target: &Target) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot publish: {error}");
    let mut stream = TcpStream::connect(target.address).map_err(failed)?;
    let mut bytes = Vec::new();
    append_handshake("/v1/ws", Some("tidegate.v1"), &mut bytes);
    let json = format!("\"{}\"", "L".repeat(LARGE_BYTES - 2));
    let mut record = Vec::new();
    append_json_publish("large/a", json.as_bytes(), &mut record);
    append_frame(2, &record, &mut bytes);
    stream.write_all(&bytes).map_err(failed)?;
    // Open until the server has taken all of it.
    std::thread::sleep(Duration::from_millis(100));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_found_in_a_batch() {
        let batch = br#"xx{"ns":17,"fill":""}yy{"ns":4,"fill":""}"#;
        assert_eq!(stamps(batch).collect::<Vec<_>>(), [17, 4]);
    }
}
