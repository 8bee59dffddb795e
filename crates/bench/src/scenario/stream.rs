//! Steady streams: `fastest-million`, `throughput-ramp`, `steady-sla`. Beside each the floor: bare sends of
//! the same bytes to as many sockets, just before and just after.

use std::time::Duration;

use serde_json::{Value, json};

use crate::run::Context;
use crate::scenario::floor::cpu_us_per_send;
use crate::stage::Stage;
use crate::swarm::Behaviour;
use crate::target::{Needs, TargetChoice};

/// Clients whose latency is kept one by one, as in the reference of `fastest-million`.
const SAMPLED: usize = 30;

pub(crate) fn run(context: &Context<'_>) -> Result<Value, String> {
    let has_floor = !matches!(context.target, TargetChoice::Running(_));
    let before = if has_floor { floor(context)? } else { 0.0 };
    let mut stage = Stage::set(context, &["steady"], Needs::default())?;
    stage.connect(0..context.clients, (context.clients / SAMPLED).max(1), Behaviour::Steady)?;
    stage.publish();
    stage.note_cost();
    stage.measure(1, Duration::from_secs(context.seconds));
    stage.note_cost();
    let mut result = stage.end(true)?;
    if has_floor {
        let after = floor(context)?;
        let floor = (before + after) / 2.0;
        let ours = result["cost"]["server_cpu_us_per_send"].as_f64();
        result["floor"] = json!({
            "cpu_us_per_send": floor,
            "before": before,
            "after": after,
            "ratio": ours.map(|ours| ours / floor),
            "note": "bare sends of as many bytes to as many sockets, before and after the run",
        });
    }
    if context.scenario.name == "steady-sla" {
        result["service_level"] = service_level(&result);
    }
    Ok(result)
}

fn floor(context: &Context<'_>) -> Result<f64, String> {
    const SECONDS_MAX: u64 = 3;
    let seconds = context.seconds.min(SECONDS_MAX);
    context.progress.phase("measuring the floor", Some(seconds));
    let per_send = match context.pace {
        crate::publisher::Pace::Rounds(_) => context.topics,
        _ => 1,
    };
    let bytes = (context.payload_bytes + 6) * per_send + 4;
    let rounds = match context.pace {
        crate::publisher::Pace::Even(rate) | crate::publisher::Pace::Rounds(rate) => rate,
        crate::publisher::Pace::Random(_) => 1.0,
    };
    cpu_us_per_send(context.clients, bytes, rounds, seconds, &context.cores)
}

/// 5 ms at 90 %, 10 ms at 99.9 %, 20 ms always: of the hiccups of the server's process.
fn service_level(result: &Value) -> Value {
    let hiccups = &result["hiccups_ms"]["server_process"];
    let within = |what: &str, ms: f64| hiccups[what].as_f64().map(|value| value <= ms);
    json!({
        "p90_within_5_ms": within("p90", 5.0),
        "p99.9_within_10_ms": within("p99.9", 10.0),
        "max_within_20_ms": within("max", 20.0),
    })
}
