//! `GET /diagnostics/hiccups`: how the process was kept from running, since the last such request.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::HeaderMap;
use model::{Code, Refusal};
use serde_json::{Value, json};

use crate::asked::check_observe;
use crate::error::{ApiError, json_header};
use crate::question::Shards;

pub(crate) async fn hiccups(
    State(shards): State<Arc<dyn Shards>>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    check_observe(&*shards, &headers, "$server/hiccups")?;
    let counts = shards.hiccups().ok_or_else(|| {
        let text = "cannot tell hiccups: they are not metered; set diagnostics.hiccups = true";
        Refusal::new(Code::NotFound, text)
    })?;
    Ok((json_header(), summary(&counts).to_string()).into_response())
}

/// Milliseconds by percentile.
fn summary(counts: &[(u64, u64)]) -> Value {
    let whole: u64 = counts.iter().map(|(_, count)| count).sum();
    let at = |share: f64| {
        let wanted = (whole as f64 * share).ceil().max(1.0) as u64;
        let mut so_far = 0;
        let found = counts.iter().find(|(_, count)| {
            so_far += count;
            so_far >= wanted
        });
        found.map_or(0.0, |(nanoseconds, _)| *nanoseconds as f64 / 1e6)
    };
    let sum: f64 = counts.iter().map(|(nanoseconds, count)| (nanoseconds * count) as f64).sum();
    json!({
        "count": whole,
        "mean": sum / whole.max(1) as f64 / 1e6,
        "p50": at(0.5),
        "p90": at(0.9),
        "p99": at(0.99),
        "p99.9": at(0.999),
        "p99.99": at(0.9999),
        "max": counts.last().map_or(0.0, |(nanoseconds, _)| *nanoseconds as f64 / 1e6),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_all_naps() {
        let summary = summary(&[(1_000_000, 98), (2_000_000, 1), (50_000_000, 1)]);
        assert_eq!((&summary["p50"], &summary["p99"]), (&json!(1.0), &json!(2.0)));
        assert_eq!((&summary["max"], &summary["count"]), (&json!(50.0), &json!(100)));
    }
}
