//! `tidegate status`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::args::StatusArgs;
use crate::http::Api;
use crate::{Failure, Outcome, print_line};

/// The figures that are shown, by the names of the server's metrics.
const SHOWN: [(&str, &str); 11] = [
    ("connections", "tidegate_connections"),
    ("sessions", "tidegate_sessions"),
    ("devices", "tidegate_devices"),
    ("subscriptions", "tidegate_subscriptions"),
    ("topics", "tidegate_topics"),
    ("history bytes", "tidegate_history_bytes"),
    ("publications", "tidegate_publications_total"),
    ("delivered", "tidegate_delivered_total"),
    ("behind now", "tidegate_stalled_sessions"),
    ("gaps told", "tidegate_gaps_total"),
    ("refused", "tidegate_refusals_total"),
];

pub(crate) fn status(args: &StatusArgs) -> Outcome {
    let api = Api::new(&args.remote);
    let (status, text) = api.ask("/ready")?;
    let said: Value = serde_json::from_str(&text).unwrap_or_default();
    let is_ready = status == 200;
    let numbers = api.text("/metrics").map(|text| sums_of(&text));
    if args.output.json {
        let numbers = numbers.as_ref().map_or(Value::Null, |numbers| json!(numbers));
        print_line(&json!({ "ready": is_ready, "said": said, "numbers": numbers }).to_string());
    } else {
        let why = said["error"].as_str().map_or(String::new(), |why| format!(": {why}"));
        let ready = if is_ready { "serves" } else { "does not serve" };
        print_line(&format!("{:<14} {ready}{why}", args.remote.server));
        if let Some(fault) = said["store"].as_str() {
            print_line(&format!("{:<14} {fault}", "store"));
        }
        match &numbers {
            Ok(numbers) => SHOWN.iter().for_each(|(name, metric)| {
                let number = numbers.get(*metric).copied().unwrap_or(0);
                print_line(&format!("{name:<14} {number}"));
            }),
            Err((_, text)) => eprintln!("no numbers: {text}"),
        }
    }
    match is_ready {
        true => Ok(()),
        false => Err((Failure::Other, "the server does not serve".into())),
    }
}

/// The metrics, over all shards.
pub(crate) fn sums_of(text: &str) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        // A histogram's buckets are no sum of anything.
        if line.contains("le=\"") {
            continue;
        }
        let Some((name, value)) = line.rsplit_once(' ') else { continue };
        let name = name.split('{').next().unwrap_or(name);
        if let Ok(value) = value.parse::<f64>() {
            *sums.entry(name.to_owned()).or_insert(0) += value.round() as u64;
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_summed_over_shards() {
        let text =
            "# TYPE a gauge\na{shard=\"0\"} 3\na{shard=\"1\"} 4\nb_total{shard=\"0\"} 1\n# EOF\n";
        let sums = sums_of(text);
        assert_eq!((sums["a"], sums["b_total"], sums.len()), (7, 1, 2));
    }
}
