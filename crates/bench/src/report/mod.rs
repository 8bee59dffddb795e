//! A run's result for people: a table for the terminal, a page with plots for the browser.

mod page;
mod plot;
mod summary;

pub use page::html;

use serde_json::Value;

/// The result as a table of lines, beside the reference's figures.
pub fn table(report: &Value) -> String {
    let mut lines = Vec::new();
    let mut row = |name: &str, value: String| lines.push(format!("{name:<34} {value}"));
    row("result", summary::sentence(report));
    if let Some(verdict) = summary::verdict(report) {
        row("verdict", verdict);
    }
    row("scenario", format!("{}: {}", text(&report["scenario"]), text(&report["what"])));
    row("target", text(&report["target"]));
    row("scaling", text(&report["scaling"]));
    for (name, value) in figures(report) {
        row(&name, value);
    }
    if report["reference"].is_object() {
        row(
            "reference",
            format!(
                "{}, {} clients",
                text(&report["reference"]["by"]),
                report["reference"]["clients"]
            ),
        );
        row("", text(&report["reference"]["result"]));
    }
    let is_valid = report["result"]["is_valid"] == true;
    row("valid", if is_valid { "yes".into() } else { why_invalid(report) });
    lines.join("\n")
}

fn why_invalid(report: &Value) -> String {
    let result = &report["result"];
    if result["generator_late_ms"]["is_late"] == true {
        return "NOT VALID: the load generator fell behind; use fewer clients or more cores".into();
    }
    "NOT VALID: messages were lost, repeated or damaged, or connections ended; see the checks"
        .into()
}

/// Name and value of each figure worth a line.
fn figures(report: &Value) -> Vec<(String, String)> {
    let result = &report["result"];
    let mut rows: Vec<(String, String)> = Vec::new();
    let mut add = |name: &str, value: &Value, unit: &str| {
        if let Some(number) = value.as_f64() {
            rows.push((name.into(), format!("{}{unit}", rounded(number))));
        }
    };
    let cost = &result["cost"];
    add("delivered per second", &cost["messages_per_second"], "");
    add("server CPU per message", &cost["server_cpu_us_per_message"], " µs");
    add("  of it user space", &cost["server_user_us_per_message"], " µs");
    add("server cores in use", &cost["server_cores"], "");
    add("sends per message", &cost["sends_per_message"], "");
    add("server CPU per send", &cost["server_cpu_us_per_send"], " µs");
    add("floor: CPU per bare send", &result["floor"]["cpu_us_per_send"], " µs");
    add("server ÷ floor, per send", &result["floor"]["ratio"], "");
    add("CPU per bare send", &result["cpu_us_per_send"], " µs");
    add("connects per second", &result["connects_per_second"], "");
    add("back after the storm", &result["seconds_until_all_were_back"], " s");
    let memory = &result["memory"];
    add("user bytes per connection", &memory["user_bytes_per_connection"], "");
    add("kernel bytes per connection", &memory["kernel_slab_bytes_per_connection"], "");
    add("  user, before publishing", &result["idle_user_bytes_per_connection"], "");
    add("  kernel, before publishing", &result["idle_kernel_slab_bytes_per_connection"], "");
    add("generator late, p99", &result["generator_late_ms"]["p99"], " ms");
    for phase in result["phases"].as_array().into_iter().flatten() {
        if phase["latency_ms"]["count"].as_u64().unwrap_or(0) > 0 {
            rows.push((
                format!("latency, {}", text(&phase["name"])),
                percentiles(&phase["latency_ms"], "ms"),
            ));
        }
    }
    if let Some(mean) = result["sampled_clients"]["mean_ms"]["mean"].as_f64() {
        let interval = result["sampled_clients"]["mean_ms"]["interval_95"].as_f64().unwrap_or(0.0);
        let count = &result["sampled_clients"]["clients"];
        rows.push((
            format!("  mean of {count} sampled clients"),
            format!("{} ± {} ms", rounded(mean), rounded(interval)),
        ));
    }
    for (name, key) in [
        ("server process", "server_process"),
        ("server cores", "server_cores"),
        ("load cores", "load_cores"),
    ] {
        let hiccups = &result["hiccups_ms"][key];
        if hiccups["count"].as_u64().unwrap_or(0) > 0 {
            rows.push((format!("hiccups, {name}"), percentiles(hiccups, "ms")));
        }
    }
    for bytes in ["10_bytes", "125_bytes"] {
        let round = &result[bytes];
        if round.is_object() {
            let name = bytes.replace('_', " ");
            rows.push((format!("round trip, {name}"), percentiles(&round["round_trip_us"], "µs")));
            if !round["request_us"].is_null() {
                rows.push((format!("request, {name}"), percentiles(&round["request_us"], "µs")));
            }
            rows.push((
                "  bare epoll echo".into(),
                percentiles(&round["bare_epoll_echo_us"], "µs"),
            ));
            rows.push((
                "  added at p50".into(),
                format!("{} µs", rounded(round["added_p50_us"].as_f64().unwrap_or(0.0))),
            ));
        }
    }
    for row in result["reductions"].as_array().into_iter().flatten() {
        let number = |name: &str| rounded(row[name].as_f64().unwrap_or(0.0));
        rows.push((
            format!("{}: {}", text(&row["feed"]), text(&row["way"])),
            format!(
                "{} B/s a client ({} %), {} messages/s, {} µs CPU a client and second",
                number("bytes_per_client_and_second"),
                number("percent_of_raw"),
                number("messages_per_client_and_second"),
                number("server_cpu_us_per_client_and_second"),
            ),
        ));
    }
    for way in ["in_pieces", "whole"] {
        if let Some(seconds) = result[way]["seconds_until_all_had_it"].as_f64() {
            let name = format!("all had it, {}", way.replace('_', " "));
            rows.push((name, format!("after {} s", rounded(seconds))));
        }
    }
    if result["checks"].is_object() {
        rows.push(("checks".into(), checks(&result["checks"])));
    }
    rows
}

fn checks(checks: &Value) -> String {
    let names = ["delivered", "missing", "repeated", "damaged", "gaps", "closed", "refused"];
    let words = names.iter().map(|name| format!("{} {name}", checks[*name]));
    words.collect::<Vec<_>>().join(", ")
}

/// The figures of a distribution: the mean, then percentiles (p50 is the median).
pub(crate) const PERCENTILES: [&str; 7] = ["mean", "p50", "p90", "p99", "p99.9", "p99.99", "max"];

fn percentiles(latency: &Value, unit: &str) -> String {
    let words = PERCENTILES
        .iter()
        .map(|name| format!("{name} {}", rounded(latency[*name].as_f64().unwrap_or(0.0))));
    format!("{} {unit}", words.collect::<Vec<_>>().join("  "))
}

/// Three or more significant digits.
pub(crate) fn rounded(value: f64) -> String {
    match value.abs() {
        large if large >= 1_000.0 => grouped(value.round() as i64),
        medium if medium >= 100.0 => format!("{value:.0}"),
        small if small >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

fn grouped(value: i64) -> String {
    let digits = value.abs().to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0 { format!("-{text}") } else { text }
}

/// A JSON text without its quotes, anything else as JSON.
pub(crate) fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        assert_eq!(rounded(1234567.8), "1,234,568");
        assert_eq!((rounded(0.12345), rounded(12.34)), ("0.123".into(), "12.3".into()));
    }
}
