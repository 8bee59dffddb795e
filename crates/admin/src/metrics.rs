//! `GET /metrics`, in the OpenMetrics text format: one line a counter and shard.
//!
//! The shards keep plain integers and are asked at scrape time, so nothing global stands on the
//! hot path.

use std::fmt;
use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures_util::future::join_all;
use http::header;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
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
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let text = text_of(counters).expect("a String takes all that is written to it");
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

/// The counters of all shards as one text.
fn text_of(shards: Vec<ShardCounters>) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("tidegate");
    registry.register_collector(Box::new(Shown { shards }));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

/// The counters as they stand at one scrape.
#[derive(Debug)]
struct Shown {
    shards: Vec<ShardCounters>,
}

impl Collector for Shown {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for (at, (name, kind, description, _)) in
            ShardCounters::default().entries().iter().enumerate()
        {
            let kind = if *kind == "counter" { MetricType::Counter } else { MetricType::Gauge };
            let help = description.trim_end_matches('.');
            let mut metric = encoder.encode_descriptor(name, help, None, kind)?;
            for (shard, counters) in self.shards.iter().enumerate() {
                let value = counters.entries()[at].3;
                let labels = [("shard", shard.to_string())];
                let family = metric.encode_family(&labels)?;
                match kind {
                    MetricType::Counter => ConstCounter::new(value).encode(family)?,
                    _ => ConstGauge::new(value as i64).encode(family)?,
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_has_help_type_and_a_line_a_shard() {
        let busy = ShardCounters { sends: 3, ..ShardCounters::default() };
        let text = text_of(vec![busy, ShardCounters::default()]).expect("a String takes all");
        assert!(text.contains("# TYPE tidegate_sends counter\n"), "{text}");
        assert!(text.contains("tidegate_sends_total{shard=\"0\"} 3\n"), "{text}");
        assert!(text.contains("tidegate_connections{shard=\"1\"} 0\n"), "{text}");
        let catalogue = ShardCounters::default().entries();
        assert_eq!(text.lines().count(), catalogue.len() * 4 + 1, "{text}");
    }
}
