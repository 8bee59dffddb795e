//! `GET /metrics`, in the Prometheus text format: one line a counter and shard.
//!
//! The shards keep plain integers and are asked at scrape time, so nothing global stands on the
//! hot path.

use std::fmt::Write;
use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures_util::future::join_all;
use http::header;
use tokio::sync::oneshot;

use crate::ShardCounters;
use crate::error::{ApiError, no_answer};
use crate::question::{Question, Shards};
use crate::router::SHARD_ANSWER_MAX;

pub(crate) async fn metrics(State(shards): State<Arc<dyn Shards>>) -> Result<Response, ApiError> {
    let mut answers = Vec::new();
    for shard in 0..shards.count() {
        let (answer, hears) = oneshot::channel();
        shards.ask(shard, Question::Counters { answer })?;
        answers.push(tokio::time::timeout(SHARD_ANSWER_MAX, hears));
    }
    let mut counters = Vec::new();
    for answer in join_all(answers).await {
        counters.push(answer.map_err(|_| no_answer())?.map_err(|_| no_answer())?);
    }
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    Ok((kind, text_of(&counters)).into_response())
}

fn text_of(shards: &[ShardCounters]) -> String {
    let mut text = String::new();
    let catalogue = ShardCounters::default().entries();
    for (at, (name, kind, description, _)) in catalogue.iter().enumerate() {
        let suffix = if *kind == "counter" { "_total" } else { "" };
        let name = format!("tidegate_{name}{suffix}");
        writeln!(text, "# HELP {name} {description}").expect("a String takes everything");
        writeln!(text, "# TYPE {name} {kind}").expect("a String takes everything");
        for (shard, counters) in shards.iter().enumerate() {
            let value = counters.entries()[at].3;
            writeln!(text, "{name}{{shard=\"{shard}\"}} {value}")
                .expect("a String takes everything");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_has_help_type_and_a_line_a_shard() {
        let text = text_of(&[
            ShardCounters { sends: 3, ..ShardCounters::default() },
            ShardCounters::default(),
        ]);
        assert!(text.contains("# TYPE tidegate_sends_total counter\n"));
        assert!(text.contains("tidegate_sends_total{shard=\"0\"} 3\n"));
        assert!(text.contains("tidegate_connections{shard=\"1\"} 0\n"));
        let catalogue = ShardCounters::default().entries();
        assert_eq!(text.lines().count(), catalogue.len() * 4);
    }
}
