//! A run in a sentence, and how far from this machine's floor it was.

use serde_json::Value;

use super::{grouped, rounded, text};

/// The findings of a run in one sentence: "1,200 msg/s to 120 clients, p99 4.4 ms, nothing lost".
pub(crate) fn sentence(report: &Value) -> String {
    let result = &report["result"];
    let kinds = [stream, idle, round_trips, durable, devices, reductions, large, bare_sends];
    let found = kinds.iter().find_map(|kind| kind(report, result));
    found.unwrap_or_else(|| text(&report["what"]))
}

/// The cost of the server beside bare sends of the same bytes, where both were measured.
pub(crate) fn verdict(report: &Value) -> Option<String> {
    /// Up to here the kernel's send is most of the cost.
    const NEAR: f64 = 1.5;
    const FAR: f64 = 3.0;
    let result = &report["result"];
    let floor = result["floor"]["cpu_us_per_send"].as_f64()?;
    let ratio = result["floor"]["ratio"].as_f64()?;
    let each = result["cost"]["server_cpu_us_per_message"].as_f64().filter(|each| *each > 0.0)?;
    let judged = match ratio {
        ratio if ratio <= NEAR => "near the floor",
        ratio if ratio <= FAR => {
            "above the floor: other work shares the machine, or each message goes to few clients"
        }
        _ => "far above the floor: the machine is busy, or the load too small to share wake-ups",
    };
    Some(format!(
        "{} times this machine's floor ({} µs of CPU for a bare send of these bytes), {judged}; \
         at this cost a core carries {} of these messages a second",
        rounded(ratio),
        rounded(floor),
        rounded((1e6 / each / 1_000.0).round() * 1_000.0),
    ))
}

fn stream(report: &Value, result: &Value) -> Option<String> {
    let rate = result["cost"]["messages_per_second"].as_f64()?;
    let phases: Vec<&Value> =
        result["phases"].as_array()?.iter().filter(|phase| measured(phase)).collect();
    let several = phases.len() > 1;
    let latency = phases.iter().map(|phase| {
        let p99 = rounded(phase["latency_ms"]["p99"].as_f64().unwrap_or(0.0));
        if several {
            format!("p99 {p99} ms ({})", text(&phase["name"]))
        } else {
            format!("p99 {p99} ms")
        }
    });
    let head =
        format!("{} msg/s to {} clients", rounded(rate), count(&report["parameters"]["clients"]));
    let parts = std::iter::once(head).chain(latency).chain([faults(&result["checks"])]);
    Some(parts.collect::<Vec<_>>().join(", "))
}

fn measured(phase: &Value) -> bool {
    phase["latency_ms"]["count"].as_u64().unwrap_or(0) > 0
}

fn count(number: &Value) -> String {
    grouped(number.as_i64().unwrap_or(0))
}

/// The faults, counted, or a statement that there were none.
fn faults(checks: &Value) -> String {
    let names = [
        ("missing", "lost"),
        ("repeated", "repeated"),
        ("damaged", "damaged"),
        ("gaps", "gaps announced"),
        ("closed", "connections closed"),
        ("refused", "refused"),
    ];
    let counted = names.iter().filter_map(|(key, word)| {
        let count = checks[*key].as_i64().filter(|count| *count > 0)?;
        Some(format!("{} {word}", grouped(count)))
    });
    let counted: Vec<String> = counted.collect();
    if counted.is_empty() { "nothing lost".into() } else { counted.join(", ") }
}

fn idle(report: &Value, result: &Value) -> Option<String> {
    let user = result["memory"]["user_bytes_per_connection"].as_f64()?;
    let kernel = result["memory"]["kernel_slab_bytes_per_connection"].as_f64()?;
    Some(format!(
        "{} idle clients at {} bytes of user space and {} of the kernel each, {}",
        count(&report["parameters"]["clients"]),
        user.round(),
        kernel.round(),
        faults(&result["checks"]),
    ))
}

fn round_trips(_: &Value, result: &Value) -> Option<String> {
    let round = &result["10_bytes"];
    Some(format!(
        "a publication is back after {} µs (median), {} µs more than a bare echo",
        rounded(round["round_trip_us"]["p50"].as_f64()?),
        rounded(round["added_p50_us"].as_f64()?),
    ))
}

fn durable(_: &Value, result: &Value) -> Option<String> {
    let rate = result["cost"]["acknowledged_per_second"].as_f64()?;
    let kept = match result["checks"]["missing"].as_u64() {
        Some(0) => "all of them there after a kill".to_owned(),
        missing => format!("{} LOST by a kill", missing.unwrap_or(0)),
    };
    let restart = rounded(result["restart"]["seconds"].as_f64()?);
    Some(format!(
        "{} publications a second acknowledged on disk, {kept}, {restart} s to restart",
        rounded(rate)
    ))
}

fn devices(_: &Value, result: &Value) -> Option<String> {
    let load = &result["reference_load"];
    Some(format!(
        "{} devices answer {} requests a second, p99 {} ms, {} lost",
        count(&result["devices"]),
        rounded(load["requests_per_second"].as_f64()?),
        rounded(load["application_latency_ms"]["p99"].as_f64()?),
        result["lost"],
    ))
}

fn reductions(_: &Value, result: &Value) -> Option<String> {
    let rows = result["reductions"].as_array()?;
    let share = |row: &&Value| row["percent_of_raw"].as_f64().unwrap_or(f64::MAX);
    let least = rows.iter().min_by(|a, b| share(a).total_cmp(&share(b)))?;
    Some(format!(
        "least bytes: {} of the feed {}, {} % of the raw feed",
        text(&least["way"]),
        text(&least["feed"]),
        rounded(share(&least)),
    ))
}

fn large(_: &Value, result: &Value) -> Option<String> {
    let p99 = |way: &str| result[way]["feed_ms_meanwhile"]["p99"].as_f64().map(rounded);
    Some(format!(
        "beside {} bytes the feed's p99 is {} ms in pieces, {} ms whole",
        count(&result["large_bytes"]),
        p99("in_pieces")?,
        p99("whole")?,
    ))
}

fn bare_sends(_: &Value, result: &Value) -> Option<String> {
    let each = rounded(result["cpu_us_per_send"].as_f64()?);
    let bytes = count(&result["bytes"]);
    Some(format!("a bare send of {bytes} bytes costs {each} µs of CPU here"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn report(checks: &Value) -> Value {
        json!({
            "parameters": { "clients": 120 },
            "result": {
                "cost": { "messages_per_second": 1_200.4, "server_cpu_us_per_message": 6.2 },
                "phases": [{ "name": "steady", "latency_ms": { "count": 5, "p99": 4.4 } }],
                "floor": { "cpu_us_per_send": 5.9, "ratio": 1.05 },
                "checks": checks,
            },
        })
    }

    #[test]
    fn a_run_is_a_sentence() {
        assert_eq!(
            sentence(&report(&json!({}))),
            "1,200 msg/s to 120 clients, p99 4.400 ms, nothing lost"
        );
        let faulty = sentence(&report(&json!({ "missing": 3, "gaps": 1, "refused": 0 })));
        assert!(faulty.ends_with("p99 4.400 ms, 3 lost, 1 gaps announced"), "{faulty}");
    }

    #[test]
    fn the_verdict_says_the_floor_and_what_a_core_carries() {
        let said = verdict(&report(&json!({}))).expect("a floor was measured");
        assert!(said.starts_with("1.050 times this machine's floor (5.900 µs"), "{said}");
        assert!(said.contains("near the floor; at this cost a core carries 161,000"), "{said}");
        assert_eq!(verdict(&json!({ "result": {} })), None);
    }
}
