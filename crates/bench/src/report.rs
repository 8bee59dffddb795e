//! Which scenarios there are, and what a run says.

use std::str::FromStr;

use hdrhistogram::Histogram;
use serde_json::{Value, json};

use crate::{floor, idle, ping_pong, sample, stream};

/// A named scenario. docs/perf says what each is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// 1 of 100 topics for each client, 10 messages of 512 B a second.
    FastestMillion,
    /// All 50 topics for every client, written back to back every 250 ms, 125 B.
    ThroughputRamp,
    /// Publish to oneself and wait.
    PingPong,
    /// What an idle session costs.
    IdleMemory,
    /// What sending alone costs.
    Floor,
}

impl Scenario {
    /// All of them, with what they measure.
    pub const ALL: [(&'static str, Self, &'static str); 5] = [
        ("fastest-million", Self::FastestMillion, "1 topic a client, 10 msg/s of 512 B each"),
        ("throughput-ramp", Self::ThroughputRamp, "50 topics for every client, 4 rounds a second"),
        ("ping-pong", Self::PingPong, "publish to oneself and wait, beside a bare echo"),
        ("idle-memory", Self::IdleMemory, "bytes per idle session"),
        ("floor", Self::Floor, "CPU per bare send"),
    ];
}

impl FromStr for Scenario {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names: Vec<&str> = Self::ALL.iter().map(|(name, ..)| *name).collect();
        let found = Self::ALL.iter().find(|(name, ..)| *name == text);
        found
            .map(|(_, scenario, _)| *scenario)
            .ok_or_else(|| format!("there is no scenario `{text}`; there are {}", names.join(", ")))
    }
}

/// The size of a run. `None` takes the scenario's own.
#[derive(Clone, Debug, PartialEq)]
pub struct ScenarioOptions {
    /// Clients.
    pub clients: usize,
    /// Topics.
    pub topics: usize,
    /// Messages per topic and second.
    pub rate: f64,
    /// Bytes in a payload.
    pub payload_bytes: usize,
    /// Seconds of measuring, after warming up.
    pub seconds: u64,
    /// A topic of its own for each client.
    pub own_topic: bool,
    /// Whether sessions share audiences.
    pub audiences: bool,
}

impl ScenarioOptions {
    /// What a scenario is run with unless said otherwise.
    pub fn of(scenario: Scenario) -> Self {
        let base = Self {
            clients: 5_000,
            topics: 100,
            rate: 10.0,
            payload_bytes: 512,
            seconds: 10,
            own_topic: false,
            audiences: true,
        };
        match scenario {
            Scenario::FastestMillion | Scenario::Floor | Scenario::PingPong => base,
            Scenario::ThroughputRamp => Self { topics: 50, rate: 4.0, payload_bytes: 125, ..base },
            Scenario::IdleMemory => Self { clients: 100_000, ..base },
        }
    }
}

/// What a run said.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Everything, as JSON.
    pub json: Value,
    /// Whether nothing was lost and the generator kept up.
    pub is_valid: bool,
}

/// Runs a scenario against a server of its own.
///
/// # Errors
/// What kept it from running.
pub fn run(name: &str, scenario: Scenario, options: &ScenarioOptions) -> Result<Report, String> {
    if options.payload_bytes < crate::stamp::BYTES_MIN {
        let min = crate::stamp::BYTES_MIN;
        return Err(format!(
            "payloads need {min} bytes for their stamp; use --bytes {min} or more"
        ));
    }
    engine::raise_descriptor_limit();
    let result = match scenario {
        Scenario::FastestMillion => stream::fastest_million(options),
        Scenario::ThroughputRamp => stream::throughput_ramp(options),
        Scenario::PingPong => ping_pong::ping_pong(options),
        Scenario::IdleMemory => idle::idle_memory(options),
        Scenario::Floor => floor::floor(options),
    }?;
    let is_valid = result["is_valid"] == true;
    let json = json!({
        "scenario": name,
        "options": {
            "clients": options.clients,
            "topics": options.topics,
            "rate": options.rate,
            "payload_bytes": options.payload_bytes,
            "seconds": options.seconds,
            "own_topic": options.own_topic,
            "audiences": options.audiences,
        },
        "congestion_control": sample::congestion_control(),
        "result": result,
    });
    Ok(Report { json, is_valid })
}

/// The percentiles of a histogram of nanoseconds, in `unit` nanoseconds.
pub(crate) fn latency_json(histogram: &Histogram<u64>, unit: f64) -> Value {
    let at = |quantile: f64| histogram.value_at_quantile(quantile) as f64 / unit;
    json!({
        "mean": histogram.mean() / unit,
        "sd": histogram.stdev() / unit,
        "p50": at(0.5),
        "p90": at(0.9),
        "p95": at(0.95),
        "p99": at(0.99),
        "p999": at(0.999),
        "p9999": at(0.9999),
        "max": histogram.max() as f64 / unit,
        "count": histogram.len(),
    })
}
