//! One run: options to sizes, the machine's setting, the result with all that belongs beside it.

use std::time::SystemTime;

use serde_json::{Value, json};

use crate::cores::Cores;
use crate::publisher::Pace;
use crate::sample::{machine, memory_available};
use crate::scenario::{self, Reading, Scenario};
use crate::target::TargetChoice;
use crate::{progress::Progress, stamp};

/// The values of a scenario that a user may change. `None` keeps the scenario's own.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// Share of the reference's clients; automatic if `None`.
    pub scale: Option<f64>,
    /// Clients, whatever the scale.
    pub clients: Option<usize>,
    /// Topics.
    pub topics: Option<usize>,
    /// Messages per topic and second.
    pub rate: Option<f64>,
    /// Bytes in a payload.
    pub payload_bytes: Option<usize>,
    /// Seconds of measuring, after warming up.
    pub seconds: Option<u64>,
    /// A topic of its own for each client.
    pub own_topic: bool,
    /// Sessions do not share audiences.
    pub no_audiences: bool,
    /// The command that asked for the run, as a user can type it again.
    pub command: String,
    /// The commit that the program was built from.
    pub commit: &'static str,
}

/// The surroundings of a run.
pub(crate) struct Context<'a> {
    pub scenario: &'a Scenario,
    pub target: &'a TargetChoice,
    pub cores: Cores,
    pub clients: usize,
    pub topics: usize,
    pub reading: Reading,
    pub pace: Pace,
    pub payload_bytes: usize,
    pub seconds: u64,
    pub audiences: bool,
    pub progress: &'a dyn Progress,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Everything, as JSON.
    pub json: Value,
    /// Whether nothing was lost and the generator kept up.
    pub is_valid: bool,
}

/// Runs a scenario.
///
/// # Errors
/// The reason why it could not run.
pub fn run(
    scenario: &Scenario,
    target: &TargetChoice,
    options: &Options,
    progress: &dyn Progress,
) -> Result<Report, String> {
    engine::raise_descriptor_limit();
    let (context, scaling) = context_of(scenario, target, options, progress)?;
    progress.note(&scaling);
    let result = scenario::run(&context)?;
    let is_valid = result["is_valid"] == true;
    let reference = scenario.reference.map(|reference| {
        let latency: serde_json::Map<String, Value> =
            reference.latency_ms.iter().map(|(what, ms)| ((*what).into(), (*ms).into())).collect();
        json!({
            "by": reference.by,
            "clients": reference.clients,
            "result": reference.result,
            "latency_ms": latency,
        })
    });
    let json = json!({
        "format": "tidegate-bench 1",
        "scenario": scenario.name,
        "what": scenario.what,
        "target": match target {
            TargetChoice::Own => "tidegate".to_owned(),
            TargetChoice::Running(url) => url.clone(),
            TargetChoice::Peer(program) => program.parent().and_then(|p| p.file_name())
                .map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
        },
        "version": env!("CARGO_PKG_VERSION"),
        "commit": options.commit,
        "command": options.command,
        "date": humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        "machine": machine(),
        "server_cores": context.cores.server,
        "load_cores": context.cores.load,
        "scaling": scaling,
        "parameters": {
            "clients": context.clients,
            "topics": context.topics,
            "messages_per_second": context.pace.per_second(context.topics.max(1)),
            "payload_bytes": context.payload_bytes,
            "seconds": context.seconds,
            "audiences": context.audiences,
        },
        "reference": reference,
        "result": result,
    });
    Ok(Report { json, is_valid })
}

fn context_of<'a>(
    scenario: &'a Scenario,
    target: &'a TargetChoice,
    options: &Options,
    progress: &'a dyn Progress,
) -> Result<(Context<'a>, String), String> {
    let size = scenario.size;
    let payload_bytes = options.payload_bytes.unwrap_or(size.payload_bytes);
    if payload_bytes < stamp::BYTES_MIN {
        let min = stamp::BYTES_MIN;
        return Err(format!(
            "payloads need {min} bytes for their stamp; use --bytes {min} or more"
        ));
    }
    let cores = Cores::split();
    let (clients, scaling) = clients_of(scenario, options, &cores);
    let reading = if options.own_topic { Reading::Own } else { size.reading };
    let is_own = reading == Reading::Own;
    let topics = if is_own { clients } else { options.topics.unwrap_or(size.topics) };
    let pace = match (options.rate, size.pace) {
        (Some(rate), Pace::Even(_)) => Pace::Even(rate),
        (Some(rate), Pace::Rounds(_)) => Pace::Rounds(rate),
        (rate, Pace::Random(own)) => Pace::Random(rate.unwrap_or(own) * clients as f64),
        (None, pace) => pace,
    };
    let context = Context {
        scenario,
        target,
        cores,
        clients,
        topics,
        reading,
        pace,
        payload_bytes,
        seconds: options.seconds.unwrap_or(size.seconds),
        audiences: !options.no_audiences,
        progress,
    };
    Ok((context, scaling))
}

/// How many clients, and why so many, in words.
fn clients_of(scenario: &Scenario, options: &Options, cores: &Cores) -> (usize, String) {
    let reference = scenario.reference.map(|reference| reference.clients);
    let of_reference = |clients: usize| {
        reference.map_or(String::new(), |whole| {
            let percent = 100.0 * clients as f64 / whole as f64;
            format!(" ({percent:.3} % of the reference's {whole})")
        })
    };
    if let Some(clients) = options.clients {
        return (clients.max(1), format!("{clients} clients as asked{}", of_reference(clients)));
    }
    if let (Some(scale), Some(whole)) = (options.scale, reference) {
        let clients = ((whole as f64 * scale) as usize).max(1);
        return (clients, format!("{clients} clients: scale {scale} of the reference's {whole}"));
    }
    let server = cores.server.len();
    let wanted = scenario.size.clients_per_core * server;
    // Both ends in this kernel: about 8.2 kB, and what the user side needs.
    const BYTES_EACH: u64 = 10 << 10;
    let fits = (memory_available() / 2 / BYTES_EACH) as usize;
    let clients = wanted.min(fits).max(1);
    let why = format!(
        "{clients} clients{}: {} for each of the server's {server} cores, of which the load needs \
         as many; topics, rates and payloads are the reference's own",
        of_reference(clients),
        scenario.size.clients_per_core
    );
    (clients, why)
}
