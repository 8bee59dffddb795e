//! The list of scenarios, with the parameters and results of their references.

use crate::publisher::Pace;

/// A named scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The name of the scenario.
    pub name: &'static str,
    /// The measured quantity, in a line.
    pub what: &'static str,
    /// How it goes.
    pub kind: Kind,
    /// The published benchmark that it repeats.
    pub reference: Option<Reference>,
    pub(crate) size: Size,
}

/// How a scenario goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A steady stream to many clients.
    Stream,
    /// One client publishes to itself.
    PingPong,
    /// Many clients, no publications.
    IdleMemory,
    /// A part of the clients comes back all at once.
    ReconnectStorm,
    /// Connections close and open all the time.
    Churn,
    /// A part of the clients stops reading for a while.
    SlowConsumers,
    /// A topic for each of very many clients.
    Millions,
    /// Clients that were away come back and get what they missed.
    ResumeStorm,
    /// The same, where memory does not have it any more.
    ResumeFromDisk,
    /// Acknowledged publications to topics on disk.
    DurablePublish,
    /// A killed server comes back to very many topics on disk.
    DurableRestart,
    /// Each way to send less, on two feeds.
    Reductions,
    /// A large publication in the middle of a feed.
    LargeAmongSmall,
    /// Applications ask attached devices.
    DeviceRpc,
    /// Bare sends, no server.
    Floor,
}

/// A published benchmark.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reference {
    /// Whose, and when.
    pub by: &'static str,
    /// Clients there.
    pub clients: usize,
    /// Its figures in words.
    pub result: &'static str,
    /// Latencies in ms to be drawn into the plot: what, value.
    pub latency_ms: &'static [(&'static str, f64)],
}

/// The size of a run, before it is scaled or changed by options.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Size {
    /// Clients for each core that the server has, where scale is automatic.
    pub clients_per_core: usize,
    pub topics: usize,
    /// Whether each client has a topic of its own, whether all read all, or one of `topics`.
    pub reading: Reading,
    pub pace: Pace,
    pub payload_bytes: usize,
    pub seconds: u64,
}

/// The topics that each client reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    OneOfAll,
    All,
    Own,
}

const STREAM: Size = Size {
    clients_per_core: 5_000,
    topics: 100,
    reading: Reading::OneOfAll,
    pace: Pace::Even(10.0),
    payload_bytes: 512,
    seconds: 10,
};

const ROUNDS: Size = Size {
    clients_per_core: 10_000,
    topics: 50,
    reading: Reading::All,
    pace: Pace::Rounds(4.0),
    payload_bytes: 125,
    seconds: 10,
};

/// The scenario that runs where none is named.
pub const QUICK: &str = "quick";

/// All scenarios.
pub fn list() -> Vec<Scenario> {
    let scenario =
        |name, what, kind, size, reference| Scenario { name, what, kind, reference, size };
    vec![
        scenario(
            QUICK,
            "15 seconds: does it run well here, and how far is it from this machine's floor",
            Kind::Stream,
            Size { clients_per_core: 1_000, seconds: 5, ..STREAM },
            None,
        ),
        scenario(
            "fastest-million",
            "1 of 100 topics for each client, 10 messages of 512 B a second",
            Kind::Stream,
            STREAM,
            Some(Reference {
                by: "Kaazing WebSocket Gateway + TIBCO EMS, 2012 (8 cores)",
                clients: 24_000,
                result: "240,000 msg/s; mean 3.5 ms, p95 6.0 ms, p99 16.9 ms; 80 % of 8 cores, < 3 GB",
                latency_ms: &[("mean", 3.5), ("p95", 6.0), ("p99", 16.9)],
            }),
        ),
        scenario(
            "throughput-ramp",
            "50 topics for every client, written back to back 4 times a second, 125 B",
            Kind::Stream,
            ROUNDS,
            Some(Reference {
                by: "Diffusion 5.0, 2014 (6 cores, 12 threads)",
                clients: 87_000,
                result: "15 M msg/s of 125 B at 87,000 clients, network saturated",
                latency_ms: &[],
            }),
        ),
        scenario(
            "steady-sla",
            "50 topics for every client at 200 msg/s of 125 B, and how the process hiccups",
            Kind::Stream,
            Size { clients_per_core: 1_000, seconds: 30, ..ROUNDS },
            Some(Reference {
                by: "Diffusion on Azul Zing, 2013",
                clients: 15_000,
                result: "level: 5 ms at 90 %, 10 ms at 99.9 %, 20 ms always; Zing's worst hiccup 1.26 ms",
                latency_ms: &[("p90 allowed", 5.0), ("p99.9 allowed", 10.0), ("max allowed", 20.0)],
            }),
        ),
        scenario(
            "ping-pong",
            "publish to oneself and wait, beside a bare epoll echo",
            Kind::PingPong,
            Size { clients_per_core: 1, ..STREAM },
            Some(Reference {
                by: "Diffusion 5.0, 2014 (10 GbE, direct cable)",
                clients: 1,
                result: "min 31.44 µs, mean 43.28 µs, p99 41.92 µs, p99.99 53.12 µs",
                latency_ms: &[("mean", 0.04328), ("p99.99", 0.05312)],
            }),
        ),
        scenario(
            "c12m",
            "a topic of its own for each client, one 512 B message a minute to each",
            Kind::Millions,
            Size {
                clients_per_core: 1_000_000,
                topics: 0,
                reading: Reading::Own,
                pace: Pace::Random(1.0 / 60.0),
                payload_bytes: 512,
                seconds: 60,
            },
            Some(Reference {
                by: "MigratoryData, 2013 (12 cores, 96 GB)",
                clients: 12_000_000,
                result: "3/6/9/12 M clients: mean 5/35/92/268 ms, max 640/951/1,292/2,024 ms; 54 GB heap",
                latency_ms: &[("mean at 3 M", 5.0), ("max at 3 M", 640.0)],
            }),
        ),
        scenario(
            "reconnect-storm",
            "half of the clients lose their connection at once and resume; the others stay",
            Kind::ReconnectStorm,
            STREAM,
            None,
        ),
        scenario(
            "churn",
            "100 connections close and 100 open each second at full load",
            Kind::Churn,
            STREAM,
            None,
        ),
        scenario(
            "slow-consumers",
            "1 client in 10 stops reading for a while; the others must not notice",
            Kind::SlowConsumers,
            Size { seconds: 30, ..STREAM },
            None,
        ),
        scenario(
            "idle-memory",
            "bytes per idle session on a shared topic",
            Kind::IdleMemory,
            Size { clients_per_core: 100_000, seconds: 0, ..STREAM },
            None,
        ),
        scenario(
            "resume-storm",
            "5 clients in 6 come back at once, each with 100 messages missed and more",
            Kind::ResumeStorm,
            Size { clients_per_core: 12_000, seconds: 5, pace: Pace::Even(4.0), ..STREAM },
            None,
        ),
        scenario(
            "resume-from-disk",
            "the same, where memory holds only the newest message of each topic",
            Kind::ResumeFromDisk,
            Size { clients_per_core: 12_000, seconds: 5, pace: Pace::Even(4.0), ..STREAM },
            None,
        ),
        scenario(
            "reductions",
            "bytes for each client and server CPU of each way to send less, on two feeds",
            Kind::Reductions,
            Size { clients_per_core: 100, seconds: 5, ..STREAM },
            None,
        ),
        scenario(
            "large-among-small",
            "10 MB in the middle of a feed of 1,000 messages a second, in pieces and whole",
            Kind::LargeAmongSmall,
            Size { clients_per_core: 10, seconds: 5, ..STREAM },
            None,
        ),
        scenario(
            "durable-publish",
            "publications to topics on disk, each acknowledged; then the server is killed and restarted",
            Kind::DurablePublish,
            Size { clients_per_core: 1, seconds: 5, ..STREAM },
            None,
        ),
        scenario(
            "durable-restart",
            "10 records in each of very many topics on disk; then the server is killed and restarted",
            Kind::DurableRestart,
            Size { clients_per_core: 1, topics: 100_000, ..STREAM },
            None,
        ),
        scenario(
            "device-rpc",
            "4,000 applications ask their device over HTTP, each again 1 to 3 s after the answer; heartbeats included",
            Kind::DeviceRpc,
            Size {
                clients_per_core: 15_000,
                topics: 1,
                reading: Reading::Own,
                pace: Pace::Even(0.0),
                payload_bytes: 32,
                seconds: 20,
            },
            Some(Reference {
                by: "Cometa 2.1, 2015 (16 vCPU)",
                clients: 100_000,
                result: "100 k devices, 2,000 applications: about 1,000 msg/s, mean 6-7 ms, max 34-44 ms, sd 5-6 ms; \
                         500 k, 4,000: 1,582 msg/s, 12 ms, 136 ms; 1 M, 4,000: 1,462 msg/s, 32 ms, 1,373 ms",
                latency_ms: &[("mean", 6.5)],
            }),
        ),
        scenario("floor", "CPU per bare send, without any server", Kind::Floor, STREAM, None),
    ]
}

/// The scenario called `name`.
///
/// # Errors
/// There is none; says which there are.
pub fn find(name: &str) -> Result<Scenario, String> {
    let all = list();
    let names: Vec<&str> = all.iter().map(|scenario| scenario.name).collect();
    let unknown = || format!("there is no scenario `{name}`; there are {}", names.join(", "));
    all.iter().find(|scenario| scenario.name == name).cloned().ok_or_else(unknown)
}
