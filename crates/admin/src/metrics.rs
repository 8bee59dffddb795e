//! `GET /metrics`, in Prometheus' text formats: one line a counter and shard. Nothing is walked that grows with sessions.
//!
//! The shards keep plain integers and are asked at scrape time, so nothing global stands on the
//! hot path.

use std::fmt;
use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures_util::future::join_all;
use http::{HeaderMap, HeaderValue, header};
use model::Refusal;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use tokio::sync::oneshot;

use crate::asked::{SHARD_ANSWER_MAX, check_observe};
use crate::counters::Entry;
use crate::error::{ApiError, no_answer};
use crate::exposition::{CLASSIC, OPEN_METRICS, classic, wants_open_metrics};
use crate::process::Process;
use crate::question::{CountedApplication, Question, Shards};
use crate::{ShardCounters, Times, WebhookCounters};

pub(crate) async fn metrics(
    State(shards): State<Arc<dyn Shards>>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    check_observe(&*shards, &headers, "$server/metrics")?;
    let of_shards = ask_all(&*shards, |answer| Question::Counters { answer }).await?;
    let applications = ask_all(&*shards, |answer| Question::Applications { answer }).await?;
    let (webhooks, steps) = (shards.webhooks().to_vec(), shards.work().steps());
    let sockets = of_shards.iter().map(|(counters, _)| counters.connections).sum();
    let process = Process::read(if shards.has_private_descriptors() { sockets } else { 0 });
    let text = text_of(Told { of_shards, applications, webhooks, steps, process });
    let text = text.expect("a String takes all that is written to it");
    let (kind, text) = match wants_open_metrics(&headers) {
        true => (OPEN_METRICS, text),
        false => (CLASSIC, classic(&text)),
    };
    let vary = (header::VARY, HeaderValue::from_static("accept"));
    let kind = (header::CONTENT_TYPE, HeaderValue::from_static(kind));
    Ok(([kind, vary], text).into_response())
}

/// The answers of all shards.
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

/// The figures of one scrape.
#[derive(Default)]
struct Told {
    of_shards: Vec<(ShardCounters, Times)>,
    applications: Vec<Vec<CountedApplication>>,
    webhooks: Vec<Arc<WebhookCounters>>,
    steps: u64,
    process: Process,
}

/// All of it as one text.
fn text_of(told: Told) -> Result<String, fmt::Error> {
    let Told { of_shards, applications, webhooks, steps, process } = told;
    let (shards, times) = of_shards.into_iter().unzip();
    let mut registry = Registry::with_prefix("tidegate");
    registry.register_collector(Box::new(Shown { shards }));
    registry.register_collector(Box::new(ShownDeliveries { times }));
    if applications.iter().any(|shard| !shard.is_empty()) {
        registry.register_collector(Box::new(ShownApplications { shards: applications }));
    }
    registry.register_collector(Box::new(ShownWebhooks { webhooks }));
    registry.register_collector(Box::new(ShownApi { steps }));
    let mut of_process = Registry::default();
    of_process.register_collector(Box::new(process));
    let mut text = String::new();
    encode_registry(&mut text, &registry)?;
    encode_registry(&mut text, &of_process)?;
    encode_eof(&mut text)?;
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

/// How long deliveries took, as it stands at one scrape.
#[derive(Debug)]
struct ShownDeliveries {
    times: Vec<Times>,
}

impl Collector for ShownDeliveries {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        if self.times.is_empty() {
            return Ok(());
        }
        let help = "From keeping a publication until it is handed to the sockets of all readers in step, to the \
                    millisecond, of samples: the oldest of a batch, 64 batches in a turn at most";
        let name = "delivery_latency_seconds";
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (shard, times) in self.times.iter().enumerate() {
            let (count, sum) = times.count_and_sum();
            let labels = [("shard", shard.to_string())];
            let mut family = metric.encode_family(&labels)?;
            family.encode_histogram::<NoLabelSet>(sum, count, &times.buckets(), None)?;
        }
        Ok(())
    }
}

/// The shards' counters of applications at one scrape.
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

/// The API's counters of itself.
#[derive(Debug)]
struct ShownApi {
    steps: u64,
}

impl Collector for ShownApi {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let help = "Steps taken by the API in what its clients choose the number of: drafts, publications, topics told, bytes";
        let metric =
            encoder.encode_descriptor("api_work_steps", help, None, MetricType::Counter)?;
        ConstCounter::new(self.steps).encode(metric)?;
        let help = "Always 1; its label says which version runs";
        let mut metric = encoder.encode_descriptor("build_info", help, None, MetricType::Gauge)?;
        let labels = [("version", env!("CARGO_PKG_VERSION"))];
        ConstGauge::new(1_i64).encode(metric.encode_family(&labels)?)
    }
}

/// The counters of the webhooks.
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
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use super::*;
    use crate::ApplicationCounters;

    /// The faults of a text, by the rules of `promtool check metrics` and of the naming conventions
    /// (prometheus.io/docs/practices/naming).
    fn lint(text: &str) -> Vec<String> {
        let (mut wrong, mut kinds, mut helped) = (Vec::new(), BTreeMap::new(), BTreeSet::new());
        for line in text.lines() {
            if let Some((name, help)) =
                line.strip_prefix("# HELP ").and_then(|it| it.split_once(' '))
            {
                if help.is_empty() || !helped.insert(name) {
                    wrong.push(format!("{name}: no help, or twice"));
                }
            } else if let Some((name, kind)) =
                line.strip_prefix("# TYPE ").and_then(|it| it.split_once(' '))
            {
                if !helped.contains(name) || kinds.insert(name, kind).is_some() {
                    wrong.push(format!("{name}: a type without help, or twice"));
                }
            } else {
                let name = line.split(['{', ' ']).next().unwrap_or("");
                let of_histogram = ["_bucket", "_sum", "_count"].iter();
                let base = of_histogram
                    .filter_map(|end| name.strip_suffix(end))
                    .find(|base| kinds.get(base) == Some(&"histogram"));
                if !kinds.contains_key(base.unwrap_or(name)) {
                    wrong.push(format!("{name}: a line without type"));
                }
            }
        }
        for (name, kind) in kinds {
            let words: Vec<&str> = name.split('_').collect();
            let last_but_total =
                words.iter().rfind(|word| **word != "total").copied().unwrap_or("");
            let units = ["seconds", "bytes", "steps", "timestamp"];
            let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            let bad_words = [
                "counter",
                "gauge",
                "histogram",
                "summary",
                "ms",
                "millis",
                "milliseconds",
                "micros",
                "minutes",
                "hours",
                "kb",
                "mb",
                "kib",
                "mib",
                "kilobytes",
                "percent",
                "s",
                "us",
                "ns",
            ];
            let rules = [
                (!name.starts_with("tidegate_") && !name.starts_with("process_"), "no prefix"),
                ((kind == "counter") != name.ends_with("_total"), "_total is for counters"),
                (!name.chars().all(is_plain), "other than lower case and _"),
                (
                    ["_count", "_sum", "_bucket"].iter().any(|end| name.ends_with(end)),
                    "a reserved end",
                ),
                (
                    words.iter().any(|word| bad_words.contains(word)),
                    "a type, or no base unit, in it",
                ),
                (
                    words.iter().any(|word| units.contains(word))
                        && !units.contains(&last_but_total),
                    "its unit is not last",
                ),
                (kind == "histogram" && !name.ends_with("_seconds"), "a histogram without unit"),
            ];
            let broken = rules.iter().filter(|(is_broken, _)| *is_broken);
            wrong.extend(broken.map(|(_, rule)| format!("{name}: {rule}")));
        }
        wrong
    }

    fn everything() -> Told {
        let one = CountedApplication {
            application: "a".into(),
            counters: ApplicationCounters::default(),
            answer_times: Times::default(),
        };
        Told {
            of_shards: vec![Default::default(); 2],
            applications: vec![vec![one]; 2],
            webhooks: vec![Arc::new(WebhookCounters::new("erp"))],
            steps: 7,
            process: Process::read(0),
        }
    }

    #[test]
    fn names_follow_the_conventions() {
        let text = classic(&text_of(everything()).expect("a String takes all"));
        assert_eq!(lint(&text), Vec::<String>::new(), "{text}");
        for (name, kind) in [
            ("tidegate_delivery_latency_seconds", "histogram"),
            ("tidegate_build_info", "gauge"),
            ("tidegate_received_bytes_total", "counter"),
            ("process_cpu_seconds_total", "counter"),
            ("process_resident_memory_bytes", "gauge"),
            ("process_virtual_memory_bytes", "gauge"),
            ("process_open_fds", "gauge"),
            ("process_max_fds", "gauge"),
            ("process_start_time_seconds", "gauge"),
        ] {
            assert!(text.contains(&format!("# TYPE {name} {kind}\n")), "{name}: {text}");
        }
    }

    #[test]
    fn what_breaks_a_convention_is_found() {
        for broken in [
            "# TYPE tidegate_x gauge\n",
            "# HELP tidegate_x X.\n# TYPE tidegate_x counter\n",
            "# HELP tidegate_x_total X.\n# TYPE tidegate_x_total gauge\n",
            "# HELP tidegate_x_ms X.\n# TYPE tidegate_x_ms gauge\n",
            "# HELP tidegate_bytes_x X.\n# TYPE tidegate_bytes_x gauge\n",
            "# HELP tidegate_x_count X.\n# TYPE tidegate_x_count gauge\n",
            "# HELP tidegate_xY X.\n# TYPE tidegate_xY gauge\n",
            "# HELP x X.\n# TYPE x gauge\n",
            "tidegate_x 1\n",
        ] {
            assert_eq!(lint(broken).len(), 1, "{broken}: {:?}", lint(broken));
        }
    }

    #[test]
    fn every_counter_has_help_type_and_a_line_a_shard() {
        let busy = ShardCounters { sends: 3, ..ShardCounters::default() };
        let of_shards = vec![(busy, Times::default()), Default::default()];
        let told =
            Told { of_shards, applications: vec![Vec::new(); 2], steps: 7, ..Told::default() };
        let text = text_of(told).expect("a String takes all");
        assert!(text.contains("tidegate_api_work_steps_total 7\n"), "{text}");
        assert!(text.contains("# TYPE tidegate_sends counter\n"), "{text}");
        assert!(text.contains("tidegate_sends_total{shard=\"0\"} 3\n"), "{text}");
        assert!(text.contains("tidegate_connections{shard=\"1\"} 0\n"), "{text}");
        for entry in ShardCounters::default().entries() {
            let lines = text.lines().filter(|line| {
                let name = line.split('{').next().unwrap_or("");
                name.strip_prefix("tidegate_").map(|it| it.trim_end_matches("_total"))
                    == Some(entry.0)
            });
            assert_eq!(lines.count(), 2, "{}: {text}", entry.0);
        }
    }

    #[test]
    fn applications_have_counters_and_times() {
        let mut answer_times = Times::default();
        for ms in [1, 2, 60_000] {
            answer_times.note(Duration::from_millis(ms));
        }
        let counters = ApplicationCounters { answers: 3, ..ApplicationCounters::default() };
        let one = CountedApplication { application: "a".into(), counters, answer_times };
        let told = Told { applications: vec![vec![one]], ..Told::default() };
        let text = text_of(told);
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
        let text = text_of(Told { webhooks: vec![Arc::new(webhook)], ..Told::default() });
        let text = text.expect("a String takes all");
        assert!(text.contains("tidegate_webhook_delivered_total{webhook=\"erp\"} 7\n"), "{text}");
        assert!(text.contains("tidegate_webhook_pending{webhook=\"erp\"} 0\n"), "{text}");
    }
}
