//! What a shard counts of each application: devices, messages, errors, bytes, and how long answers take.

use std::collections::VecDeque;
use std::time::Duration;

use access::ApplicationIndex;
use admin::{ApplicationCounters, CountedApplication, Times};
use hdrhistogram::Histogram;
use serde_json::{Value, json};

/// Minutes that the latencies are of.
const WINDOW_MINUTES: u64 = 5;

/// What is counted of one application.
#[derive(Clone, Debug, Default)]
pub(crate) struct Statistics {
    pub counters: ApplicationCounters,
    /// How long answers took, since the start.
    answer_times: Times,
    /// How long answers took, in microseconds: from handing the request to the device's connection until its answer
    /// is here. A histogram for each of the last minutes.
    minutes: VecDeque<(u64, Histogram<u64>)>,
}

/// The statistics of every application.
#[derive(Debug, Default)]
pub(crate) struct AllStatistics(Vec<Statistics>);

impl AllStatistics {
    pub(crate) fn of(&mut self, application: ApplicationIndex) -> &mut Statistics {
        let at = usize::from(application.0);
        if self.0.len() <= at {
            self.0.resize_with(at + 1, Statistics::default);
        }
        &mut self.0[at]
    }

    /// Devices of all applications.
    pub(crate) fn devices(&self) -> u64 {
        self.0.iter().map(|one| one.counters.devices).sum()
    }

    /// All of them, for metrics; `id_of` names them.
    pub(crate) fn counted(
        &self,
        id_of: impl Fn(ApplicationIndex) -> String,
    ) -> Vec<CountedApplication> {
        let counted = |(at, one): (usize, &Statistics)| CountedApplication {
            application: id_of(ApplicationIndex(at as u16)),
            counters: one.counters,
            answer_times: one.answer_times,
        };
        self.0.iter().enumerate().map(counted).collect()
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new(3).expect("three digits are allowed")
}

impl Statistics {
    pub(crate) fn attached(&mut self) {
        self.counters.devices += 1;
        self.counters.attaches += 1;
    }

    pub(crate) fn detached(&mut self) {
        self.counters.devices -= 1;
    }

    pub(crate) fn asked(&mut self, bytes: usize) {
        self.counters.requests += 1;
        self.counters.bytes_down += bytes as u64;
    }

    pub(crate) fn answered(&mut self, took: Duration, is_answer: bool, unix_ms: u64) {
        if is_answer {
            self.counters.answers += 1;
        } else {
            self.counters.errors += 1;
        }
        self.answer_times.note(took);
        let minute = unix_ms / 60_000;
        if self.minutes.back().is_none_or(|(known, _)| *known != minute) {
            self.minutes.push_back((minute, histogram()));
        }
        if let Some((_, latencies)) = self.minutes.back_mut() {
            // It grows with what it is told.
            latencies.record(took.as_micros() as u64).expect("there is memory");
        }
        while self.minutes.front().is_some_and(|(known, _)| known + WINDOW_MINUTES <= minute) {
            self.minutes.pop_front();
        }
    }

    /// Adds those of another shard.
    pub(crate) fn add(&mut self, other: &Self) {
        self.counters.add(&other.counters);
        self.minutes.extend(other.minutes.iter().cloned());
    }

    /// They as JSON.
    pub(crate) fn shown(&self, application: &str, unix_ms: u64) -> Value {
        let minute = unix_ms / 60_000;
        let mut all = histogram();
        for (_, latencies) in
            self.minutes.iter().filter(|(known, _)| known + WINDOW_MINUTES > minute)
        {
            all.add(latencies).expect("histograms grow");
        }
        let ms = |us: f64| us / 1_000.0;
        let at = |quantile: f64| ms(all.value_at_quantile(quantile) as f64);
        let mut shown = json!({
            "application": application,
            "latency_ms": {
                "window_minutes": WINDOW_MINUTES,
                "count": all.len(),
                "mean": ms(all.mean()),
                "sd": ms(all.stdev()),
                "min": ms(all.min() as f64),
                "max": ms(all.max() as f64),
                "p50": at(0.5),
                "p90": at(0.9),
                "p99": at(0.99),
                "p99.9": at(0.999),
            },
        });
        for (name, value) in self.counters.members() {
            shown[name] = value.into();
        }
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_of_the_last_minutes_of_all_shards() {
        let (mut one, mut other) = (Statistics::default(), Statistics::default());
        one.answered(Duration::from_millis(900), true, 0);
        one.answered(Duration::from_millis(2), true, 10 * 60_000);
        other.answered(Duration::from_millis(4), false, 11 * 60_000);
        let mut total = Statistics::default();
        total.add(&one);
        total.add(&other);
        let shown = total.shown("a", 11 * 60_000);
        assert_eq!((shown["answers"].as_u64(), shown["errors"].as_u64()), (Some(2), Some(1)));
        let latency = &shown["latency_ms"];
        assert_eq!(latency["count"], 2);
        let mean = latency["mean"].as_f64().expect("a number");
        assert!((2.9..3.1).contains(&mean), "{mean}");
    }
}
