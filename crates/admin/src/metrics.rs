//! `GET /metrics`, in the OpenMetrics text format: one line a counter and shard.
//!
//! The shards keep plain integers and are asked at scrape time, so nothing global stands on the
//! hot path.

use std::fmt;
use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures_util::future::join_all;
use http::{HeaderMap, header};
use model::Refusal;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use tokio::sync::oneshot;

use crate::counters::Entry;
use crate::error::{ApiError, no_answer};
use crate::question::{CountedApplication, Question, Shards};
use crate::router::{SHARD_ANSWER_MAX, check_observe};
use crate::{ShardCounters, WebhookCounters};

pub(crate) async fn metrics(
    State(shards): State<Arc<dyn Shards>>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    check_observe(&*shards, &headers, "$server/metrics")?;
    let of_shards = ask_all(&*shards, |answer| Question::Counters { answer }).await?;
    let applications = ask_all(&*shards, |answer| Question::Applications { answer }).await?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let steps = shards.work().steps();
    let text = text_of(of_shards, applications, shards.webhooks().to_vec(), steps);
    let text = text.expect("a String takes all that is written to it");
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

/// What every shard answers.
async fn ask_all<T>(
    shards: &dyn Shards,
    question: impl Fn(oneshot::Sender<T>) -> Question,
) -> Result<Vec<T>, ApiError> {
    let mut answers = Vec::new();
    for shard in 0..shards.count() {
        let (answer, hears) = oneshot::channel();
        shards.ask(shard, question(answer))?;
        answers.push(tokio::time::timeout(SHARD_ANSWER_MAX, hears));
    }
    let heard = join_all(answers).await.into_iter();
    let heard: Result<_, Refusal> =
        heard.map(|answer| answer.map_err(|_| no_answer())?.map_err(|_| no_answer())).collect();
    Ok(heard?)
}

/// The counters of all shards and webhooks as one text.
fn text_of(
    shards: Vec<ShardCounters>,
    applications: Vec<Vec<CountedApplication>>,
    webhooks: Vec<Arc<WebhookCounters>>,
    steps: u64,
) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("tidegate");
    registry.register_collector(Box::new(Shown { shards }));
    if applications.iter().any(|shard| !shard.is_empty()) {
        registry.register_collector(Box::new(ShownApplications { shards: applications }));
    }
    registry.register_collector(Box::new(ShownWebhooks { webhooks }));
    registry.register_collector(Box::new(ShownApi { steps }));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

/// Writes what was counted: a line for each counter and each set of labels.
fn encode_entries<L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    prefix: &str,
    lines: &[(L, Vec<Entry>)],
) -> Result<(), fmt::Error> {
    let Some((_, first)) = lines.first() else { return Ok(()) };
    for (at, (name, kind, description, _)) in first.iter().enumerate() {
        let kind = if *kind == "counter" { MetricType::Counter } else { MetricType::Gauge };
        let help = description.trim_end_matches('.');
        let name = format!("{prefix}{name}");
        let mut metric = encoder.encode_descriptor(&name, help, None, kind)?;
        for (labels, entries) in lines {
            let family = metric.encode_family(labels)?;
            match kind {
                MetricType::Counter => ConstCounter::new(entries[at].3).encode(family)?,
                _ => ConstGauge::new(entries[at].3 as i64).encode(family)?,
            }
        }
    }
    Ok(())
}

/// The shards' counters as they stand at one scrape.
#[derive(Debug)]
struct Shown {
    shards: Vec<ShardCounters>,
}

impl Collector for Shown {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let shards = self.shards.iter().enumerate();
        let lines: Vec<_> = shards
            .map(|(shard, counters)| ([("shard", shard.to_string())], counters.entries()))
            .collect();
        encode_entries(&mut encoder, "", &lines)
    }
}

/// What the shards counted of applications, as it stands at one scrape.
#[derive(Debug)]
struct ShownApplications {
    shards: Vec<Vec<CountedApplication>>,
}

impl Collector for ShownApplications {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let all = || {
            let shards = self.shards.iter().enumerate();
            shards.flat_map(|(shard, counted)| counted.iter().map(move |one| (shard, one)))
        };
        let labels = |shard: usize, one: &CountedApplication| {
            [("application", one.application.clone()), ("shard", shard.to_string())]
        };
        let lines: Vec<_> =
            all().map(|(shard, one)| (labels(shard, one), one.counters.entries())).collect();
        encode_entries(&mut encoder, "application_", &lines)?;
        let mut metric = encoder.encode_descriptor(
            "application_answer_seconds",
            "From handing a request to a device's connection until its answer is here",
            None,
            MetricType::Histogram,
        )?;
        for (shard, one) in all() {
            let (count, sum) = one.answer_times.count_and_sum();
            let labels = labels(shard, one);
            let mut family = metric.encode_family(&labels)?;
            family.encode_histogram::<NoLabelSet>(sum, count, &one.answer_times.buckets(), None)?;
        }
        Ok(())
    }
}

/// What the API counts of itself.
#[derive(Debug)]
struct ShownApi {
    steps: u64,
}

impl Collector for ShownApi {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let help = "Steps taken by the API in what its clients choose the number of: drafts, publications, topics told, bytes";
        let metric = encoder.encode_descriptor("api_work", help, None, MetricType::Counter)?;
        ConstCounter::new(self.steps).encode(metric)
    }
}

/// What the webhooks count.
#[derive(Debug)]
struct ShownWebhooks {
    webhooks: Vec<Arc<WebhookCounters>>,
}

impl Collector for ShownWebhooks {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let line = |it: &Arc<WebhookCounters>| ([("webhook", it.name.clone())], it.entries());
        let lines: Vec<_> = self.webhooks.iter().map(line).collect();
        encode_entries(&mut encoder, "webhook_", &lines)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use super::*;
    use crate::{AnswerTimes, ApplicationCounters};

    #[test]
    fn every_counter_has_help_type_and_a_line_a_shard() {
        let busy = ShardCounters { sends: 3, ..ShardCounters::default() };
        let shards = vec![busy, ShardCounters::default()];
        let text = text_of(shards, vec![Vec::new(); 2], Vec::new(), 7).expect("a String takes all");
        assert!(text.contains("tidegate_api_work_total 7\n"), "{text}");
        assert!(text.contains("# TYPE tidegate_sends counter\n"), "{text}");
        assert!(text.contains("tidegate_sends_total{shard=\"0\"} 3\n"), "{text}");
        assert!(text.contains("tidegate_connections{shard=\"1\"} 0\n"), "{text}");
        let catalogue = ShardCounters::default().entries();
        // Help, type and a line for each shard; for the API one; the end.
        assert_eq!(text.lines().count(), catalogue.len() * 4 + 3 + 1, "{text}");
    }

    #[test]
    fn applications_have_counters_and_times() {
        let mut answer_times = AnswerTimes::default();
        for ms in [1, 2, 60_000] {
            answer_times.note(Duration::from_millis(ms));
        }
        let counters = ApplicationCounters { answers: 3, ..ApplicationCounters::default() };
        let one = CountedApplication { application: "a".into(), counters, answer_times };
        let text = text_of(vec![ShardCounters::default()], vec![vec![one]], Vec::new(), 0);
        let text = text.expect("a String takes all");
        let labels = "application=\"a\",shard=\"0\"";
        for line in [
            format!("tidegate_application_answers_total{{{labels}}} 3\n"),
            format!("tidegate_application_answer_seconds_count{{{labels}}} 3\n"),
            format!("tidegate_application_answer_seconds_bucket{{le=\"0.001\",{labels}}} 1\n"),
            format!("tidegate_application_answer_seconds_bucket{{le=\"10.0\",{labels}}} 2\n"),
            format!("tidegate_application_answer_seconds_bucket{{le=\"+Inf\",{labels}}} 3\n"),
        ] {
            assert!(text.contains(&line), "{line}{text}");
        }
    }

    #[test]
    fn webhooks_are_told_by_name() {
        let webhook = WebhookCounters::new("erp");
        webhook.delivered.store(7, Ordering::Relaxed);
        let text = text_of(Vec::new(), Vec::new(), vec![Arc::new(webhook)], 0);
        let text = text.expect("a String takes all");
        assert!(text.contains("tidegate_webhook_delivered_total{webhook=\"erp\"} 7\n"), "{text}");
        assert!(text.contains("tidegate_webhook_pending{webhook=\"erp\"} 0\n"), "{text}");
    }
}
