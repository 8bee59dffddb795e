//! Two runs side by side: ratios, and which differences are more than noise.

use serde_json::Value;

use crate::report::{rounded, text};

/// Figures that are compared: name, place in the report, and whether less is better.
const FIGURES: [(&str, &str, bool); 12] = [
    ("messages per second", "/result/cost/messages_per_second", false),
    ("server CPU µs per message", "/result/cost/server_cpu_us_per_message", true),
    ("server CPU µs per send", "/result/cost/server_cpu_us_per_send", true),
    ("server ÷ floor, per send", "/result/floor/ratio", true),
    ("latency ms, mean", "/result/phases/0/latency_ms/mean", true),
    ("latency ms, p50", "/result/phases/0/latency_ms/p50", true),
    ("latency ms, p99", "/result/phases/0/latency_ms/p99", true),
    ("latency ms, p99.9", "/result/phases/0/latency_ms/p99.9", true),
    ("user bytes per connection", "/result/memory/user_bytes_per_connection", true),
    ("kernel bytes per connection", "/result/memory/kernel_slab_bytes_per_connection", true),
    ("round trip µs, 10 B, p50", "/result/10_bytes/round_trip_us/p50", true),
    ("round trip µs, 125 B, p50", "/result/125_bytes/round_trip_us/p50", true),
];

/// These machines vary by this much from run to run, whatever one run says of itself.
const NOISE: f64 = 0.10;

/// A table of two reports: both values, the ratio, and whether it is more than noise.
///
/// # Errors
/// The reports are not of the same scenario and size.
pub fn compare(a: &Value, b: &Value) -> Result<String, String> {
    for key in ["scenario", "parameters"] {
        let (mine, theirs) = (&a[key], &b[key]);
        if mine != theirs {
            return Err(format!(
                "cannot compare: {key} is {mine} in one and {theirs} in the other"
            ));
        }
    }
    let mut lines = vec![
        format!("{}, A: {}, B: {}", text(&a["scenario"]), text(&a["target"]), text(&b["target"])),
        format!("{:<30} {:>14} {:>14} {:>8}", "", "A", "B", "B / A"),
    ];
    for (name, place, less_is_better) in FIGURES {
        let value = |report: &Value| report.pointer(place).and_then(Value::as_f64);
        let (Some(mine), Some(theirs)) = (value(a), value(b)) else { continue };
        if mine == 0.0 {
            continue;
        }
        let ratio = theirs / mine;
        let verdict = match (ratio - 1.0).abs() <= noise(a, b, place) {
            true => "within the noise",
            false if (ratio < 1.0) == less_is_better => "B is better",
            false => "A is better",
        };
        lines.push(format!(
            "{name:<30} {:>14} {:>14} {ratio:>8.3}  {verdict}",
            rounded(mine),
            rounded(theirs)
        ));
    }
    for (name, report) in [("A", a), ("B", b)] {
        if report["result"]["is_valid"] != true {
            lines.push(format!("{name} is not a valid run: its figures prove nothing"));
        }
    }
    Ok(lines.join("\n"))
}

/// By how much two values may differ by chance: at least what the machine varies, for CPU per
/// message also three standard errors of the seconds within the runs, for tails more.
fn noise(a: &Value, b: &Value, place: &str) -> f64 {
    if place.ends_with("p99") || place.ends_with("p99.9") {
        return 3.0 * NOISE;
    }
    if !place.contains("cpu") {
        return NOISE;
    }
    let error = |report: &Value| {
        let seconds = &report["result"]["cost"]["server_cpu_us_per_message_by_second"];
        let values: Vec<f64> =
            seconds.as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
        let count = values.len().max(1) as f64;
        let mean = values.iter().sum::<f64>() / count;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
        if mean > 0.0 { (variance / count).sqrt() / mean } else { 0.0 }
    };
    NOISE.max(3.0 * error(a).hypot(error(b)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn report(cpu: f64, by_second: &[f64]) -> Value {
        json!({
            "scenario": "s", "parameters": {"clients": 1}, "target": "t",
            "result": {"is_valid": true, "cost": {
                "server_cpu_us_per_message": cpu,
                "server_cpu_us_per_message_by_second": by_second,
            }},
        })
    }

    #[test]
    fn noise_is_told_from_difference() {
        let steady = report(5.0, &[5.0, 5.1, 4.9]);
        let better = compare(&steady, &report(4.0, &[4.0, 4.1])).expect("alike");
        assert!(better.contains("B is better"), "{better}");
        let close = compare(&steady, &report(5.3, &[5.3])).expect("alike");
        assert!(close.contains("within the noise"), "{close}");
        let wild = compare(&steady, &report(7.0, &[2.0, 12.0, 7.0])).expect("alike");
        assert!(wild.contains("within the noise"), "{wild}");
        let mut other = report(5.0, &[]);
        other["parameters"]["clients"] = json!(2);
        assert!(compare(&steady, &other).is_err());
    }
}
