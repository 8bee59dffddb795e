//! Streams to many clients: `fastest-million` and `throughput-ramp`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::publisher::{self, Plan, await_true};
use crate::report::{ScenarioOptions, latency_json};
use crate::sample::{Cpu, Memory};
use crate::swarm::{Shared, Swarm, TopicsOf};
use crate::target::Target;

const WARM_UP: Duration = Duration::from_secs(3);
/// A generator that is later than this at its 99th percentile invalidates the run.
const LATE_MAX: Duration = Duration::from_millis(20);

/// 1 topic for each client; `own_topic` gives everybody one of its own.
pub(crate) fn fastest_million(options: &ScenarioOptions) -> Result<Value, String> {
    let count = if options.own_topic { options.clients } else { options.topics };
    let topics: Vec<String> = (0..count).map(|number| format!("bench/{number}")).collect();
    let topics_of: TopicsOf = Arc::new(move |client| format!("[\"bench/{}\"]", client % count));
    let plan =
        Plan { topics, payload_bytes: options.payload_bytes, rate: options.rate, is_burst: false };
    stream(options, plan, &topics_of, options.clients as f64 * options.rate)
}

/// Every client on all topics; publishers write all of them back to back.
pub(crate) fn throughput_ramp(options: &ScenarioOptions) -> Result<Value, String> {
    let topics: Vec<String> = (0..options.topics).map(|number| format!("bench/{number}")).collect();
    let list = serde_json::to_string(&topics).map_err(|error| error.to_string())?;
    let topics_of: TopicsOf = Arc::new(move |_| list.clone());
    let per_second = options.clients as f64 * options.rate * topics.len() as f64;
    let plan =
        Plan { topics, payload_bytes: options.payload_bytes, rate: options.rate, is_burst: true };
    stream(options, plan, &topics_of, per_second)
}

fn stream(
    options: &ScenarioOptions,
    plan: Plan,
    topics_of: &TopicsOf,
    expected_per_second: f64,
) -> Result<Value, String> {
    let config = if options.audiences { "" } else { "audiences = false" };
    let target = Target::start(options.clients + 10, config)?;
    let shared = Shared::new();
    let began = Instant::now();
    let swarm = Swarm::start(options.clients, 0, target.address, topics_of, &shared);
    let patience = Duration::from_secs(60 + options.clients as u64 / 1_000);
    await_true("subscribing", patience, || {
        shared.subscribed.load(Ordering::Relaxed) == options.clients
    })?;
    let connect_seconds = began.elapsed().as_secs_f64();
    let publisher = publisher::start(plan, target.address, &shared);
    std::thread::sleep(WARM_UP);
    let memory = Memory::of(target.pid());
    let (cpu, delivered) = (Cpu::of(target.pid()), shared.delivered.load(Ordering::Relaxed));
    let sends = target.counter("tidegate_sends_total");
    shared.is_measuring.store(true, Ordering::Relaxed);
    let began = Instant::now();
    std::thread::sleep(Duration::from_secs(options.seconds));
    let seconds = began.elapsed().as_secs_f64();
    shared.is_measuring.store(false, Ordering::Relaxed);
    let cpu = Cpu::of(target.pid()).since(cpu);
    let delivered = shared.delivered.load(Ordering::Relaxed) - delivered;
    let sends = target.counter("tidegate_sends_total") - sends;
    // Lets what is under way arrive before the clients go.
    std::thread::sleep(Duration::from_millis(500));
    shared.is_over.store(true, Ordering::Relaxed);
    let published = publisher.join().map_err(|_| "the publisher panicked".to_owned())??;
    let findings = swarm.join()?;
    let late_p99 = Duration::from_nanos(published.late_ns.value_at_quantile(0.99));
    let lost = findings.missing + findings.repeated + findings.damaged + findings.closed;
    let per_message = |us: f64| us / delivered.max(1) as f64;
    Ok(json!({
        "clients": options.clients,
        "shards": target.shards,
        "connect_seconds": connect_seconds,
        "delivered_per_second": delivered as f64 / seconds,
        "expected_per_second": expected_per_second,
        "published": published.count,
        "sends_per_message": sends as f64 / delivered.max(1) as f64,
        "cpu_us_per_message": per_message(cpu.total_us()),
        "cpu_user_us_per_message": per_message(cpu.user_us),
        "cpu_system_us_per_message": per_message(cpu.system_us),
        "cpu_us_per_send": cpu.total_us() / sends.max(1) as f64,
        "cpu_cores": cpu.total_us() / seconds / 1e6,
        "resident_bytes": memory.resident,
        "latency_ms": latency_json(&findings.latency_ns, 1e6),
        "generator_late_p99_ms": late_p99.as_secs_f64() * 1e3,
        "missing": findings.missing,
        "repeated": findings.repeated,
        "damaged": findings.damaged,
        "closed": findings.closed,
        "is_valid": lost == 0 && late_p99 <= LATE_MAX,
    }))
}
