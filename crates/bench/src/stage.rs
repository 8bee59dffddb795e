//! The common parts of scenarios with a swarm: server, clients, publisher, meters, and the
//! result with everything that belongs beside it.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};

use crate::findings::Findings;
use crate::hiccup;
use crate::progress::ProgressLook;
use crate::publisher::{self, Plan, Published};
use crate::run::Context;
use crate::sample::{Cpu, Memory};
use crate::scenario::Reading;
use crate::shared::Shared;
use crate::swarm::{Behaviour, Swarm, SwarmPlan, TopicsOf};
use crate::target::{Needs, Target};
use crate::tun::TunSwarm;
use crate::watch::{self, Look};

pub(crate) const INTERRUPTED: &str = "interrupted: everything was put back as it was";
/// At most: no longer than what is measured.
const WARM_UP_SECONDS_MAX: u64 = 3;
/// A generator later than this at its 99th percentile invalidates the run.
const LATE_MAX: Duration = Duration::from_millis(20);

/// A run with a swarm, while it goes on.
pub(crate) struct Stage<'a> {
    pub context: &'a Context<'a>,
    pub target: Target,
    pub shared: Arc<Shared>,
    pub swarms: Vec<Swarm>,
    /// Clients over a TUN device, in place of swarms.
    pub tun: Option<TunSwarm>,
    publisher: Option<JoinHandle<Result<Published, String>>>,
    meters: [JoinHandle<Histogram<u64>>; 2],
    watch: JoinHandle<Vec<Look>>,
    memory_before: Memory,
    /// CPU and sends of the server when measuring began and ended.
    cost: Vec<Cost>,
    facts: Map<String, Value>,
}

/// The resources that the server had used at one moment.
#[derive(Clone, Copy, Debug)]
struct Cost {
    at: Instant,
    cpu: Cpu,
    sends: Option<u64>,
    delivered: u64,
}

impl<'a> Stage<'a> {
    /// Starts the server and the meters.
    pub(crate) fn set(
        context: &'a Context<'a>,
        phases: &[&'static str],
        mut needs: Needs,
    ) -> Result<Self, String> {
        if !context.audiences {
            needs.engine.push_str("audiences = false\n");
        }
        needs.connections = needs.connections.max(context.clients + 10);
        needs.sections.push_str("[diagnostics]\nhiccups = true\n");
        let target = Target::start(context.target, &needs, &context.cores)?;
        let shared = Shared::new(phases);
        let memory_before = Memory::of(&target.processes);
        let meters = [
            hiccup::start(&context.cores.server, &shared),
            hiccup::start(&context.cores.load, &shared),
        ];
        let watch = watch::start(target.processes.clone(), &shared);
        Ok(Self {
            context,
            target,
            shared,
            swarms: Vec::new(),
            tun: None,
            publisher: None,
            meters,
            watch,
            memory_before,
            cost: Vec::new(),
            facts: Map::new(),
        })
    }

    /// Which topics the clients of this scenario read.
    pub(crate) fn topics_of(&self) -> TopicsOf {
        let topics = self.context.topics;
        match self.context.reading {
            Reading::OneOfAll => Arc::new(move |client| vec![(client % topics) as u32]),
            Reading::All => Arc::new(move |_| (0..topics as u32).collect()),
            Reading::Own => Arc::new(|client| vec![client as u32]),
        }
    }

    /// Adds clients, and waits until all stand.
    pub(crate) fn connect(
        &mut self,
        clients: std::ops::Range<usize>,
        sample_every: usize,
        behaviour: Behaviour,
    ) -> Result<(), String> {
        let plan = SwarmPlan {
            clients: clients.len(),
            first: clients.start,
            address: self.target.address,
            dialect: Arc::clone(&self.target.dialect),
            topics_of: self.topics_of(),
            sample_every,
            behaviour,
        };
        let (began, before) = (Instant::now(), self.shared.live());
        self.swarms.push(Swarm::start(&plan, &self.context.cores, &self.shared));
        let patience = Duration::from_secs(60 + clients.len() as u64 / 1_000);
        self.context.progress.phase("connecting", None);
        self.await_live(before + clients.len(), patience)?;
        let seconds = began.elapsed().as_secs_f64();
        self.facts.insert("connects_per_second".into(), (clients.len() as f64 / seconds).into());
        Ok(())
    }

    /// Waits until so many clients stand.
    pub(crate) fn await_live(&self, live: usize, patience: Duration) -> Result<(), String> {
        let (began, mut said) = (Instant::now(), Instant::now());
        while self.shared.live() < live {
            if self.context.progress.is_interrupted() {
                return Err(INTERRUPTED.into());
            }
            if began.elapsed() >= patience {
                return Err(format!(
                    "only {} of {live} clients were subscribed within {} s",
                    self.shared.live(),
                    patience.as_secs()
                ));
            }
            if said.elapsed() > Duration::from_millis(200) {
                said = Instant::now();
                self.say(began, 0);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn say(&self, began: Instant, delivered_before: u64) {
        let seconds = began.elapsed().as_secs_f64();
        let delivered = self.shared.delivered() - delivered_before.min(self.shared.delivered());
        self.context.progress.look(ProgressLook {
            live: self.shared.live(),
            clients: self.context.clients,
            messages_per_second: delivered as f64 / seconds.max(0.001),
            seconds,
        });
    }

    /// Starts publishing, and lets it go for a while unmeasured.
    pub(crate) fn publish(&mut self) {
        let plan = Plan {
            topics: self.context.topics,
            payload_bytes: self.context.payload_bytes,
            pace: self.context.pace,
        };
        let Target { address, dialect, .. } = &self.target;
        let handle = publisher::start(plan, *address, dialect, &self.context.cores, &self.shared);
        self.publisher = Some(handle);
        let seconds = self.context.seconds.min(WARM_UP_SECONDS_MAX);
        self.pass("warming up", Duration::from_secs(seconds));
    }

    /// Lets time pass.
    pub(crate) fn pass(&self, name: &str, length: Duration) {
        self.context.progress.phase(name, Some(length.as_secs()));
        let (began, delivered) = (Instant::now(), self.shared.delivered());
        while began.elapsed() < length && !self.context.progress.is_interrupted() {
            std::thread::sleep((length - began.elapsed()).min(Duration::from_millis(250)));
            self.say(began, delivered);
        }
    }

    /// Notes what the server has used so far: at the beginning and the end of what is measured.
    pub(crate) fn note_cost(&mut self) {
        if self.cost.is_empty() {
            // Each look begins a new count: what was before is not measured.
            let _ = self.target.hiccups();
        }
        self.cost.push(Cost {
            at: Instant::now(),
            cpu: Cpu::of(&self.target.processes),
            sends: self.target.counter("tidegate_sends_total"),
            delivered: self.shared.delivered(),
        });
    }

    /// Measures phase `number` for a time.
    pub(crate) fn measure(&mut self, number: usize, length: Duration) {
        self.shared.enter(number);
        self.pass(self.shared.phases[number - 1], length);
        self.shared.enter(0);
    }

    pub(crate) fn fact(&mut self, name: &str, value: impl Into<Value>) {
        self.facts.insert(name.into(), value.into());
    }

    /// User and kernel bytes for each connection since the server started.
    pub(crate) fn memory_so_far(&self) -> (f64, f64) {
        let (now, before) = (Memory::of(&self.target.processes), self.memory_before);
        let each = |before: u64, now: u64| {
            (now as f64 - before as f64) / self.context.clients.max(1) as f64
        };
        (each(before.anonymous, now.anonymous), each(before.slab, now.slab))
    }

    /// Ends everything and says what was found. `is_lossless` is whether a lost message, a gap or a
    /// closed connection makes the run invalid.
    pub(crate) fn end(mut self, is_lossless: bool) -> Result<Value, String> {
        if self.context.progress.is_interrupted() {
            self.shared.end();
            return Err(INTERRUPTED.into());
        }
        let resident = Memory::of(&self.target.processes).resident;
        let (user_bytes, kernel_bytes) = self.memory_so_far();
        let server_hiccups = self.target.hiccups();
        // Lets what is under way arrive before the clients go.
        std::thread::sleep(Duration::from_millis(700));
        let live = self.shared.live();
        self.shared.end();
        let published = self
            .publisher
            .take()
            .map(|publisher| publisher.join().map_err(|_| "the publisher panicked".to_owned())?);
        let published = published.transpose()?;
        let mut findings = Findings::new(self.shared.phases.len());
        for swarm in self.swarms.drain(..) {
            findings.add(swarm.join(&self.shared)?);
        }
        if let Some(swarm) = self.tun.take() {
            findings.add(swarm.join()?);
        }
        let [server_core, load_core] = self.meters.map(|meter| meter.join().ok());
        let looks = self.watch.join().unwrap_or_default();
        let late = published.as_ref().map_or(0, |p| p.late_ns.value_at_quantile(0.99));
        let is_late = Duration::from_nanos(late) > LATE_MAX;
        let faults = findings.checks.faults();
        let mut result = self.facts;
        result.insert("is_valid".into(), (!is_late && (faults == 0 || !is_lossless)).into());
        result.insert("clients_at_the_end".into(), live.into());
        result.insert("phases".into(), phases_json(&self.shared.phases, &findings));
        result.insert("checks".into(), checks_json(&findings));
        result.insert(
            "generator_late_ms".into(),
            json!({
                "p99": late as f64 / 1e6,
                "max": published.as_ref().map_or(0.0, |p| p.late_ns.max() as f64 / 1e6),
                "is_late": is_late,
            }),
        );
        result.insert("published".into(), published.map_or(0, |p| p.count).into());
        let hiccup = |histogram: &Option<Histogram<u64>>| {
            histogram.as_ref().map_or(Value::Null, |histogram| latency_json(histogram, 1e6))
        };
        result.insert(
            "hiccups_ms".into(),
            json!({
                "server_process": server_hiccups,
                "server_cores": hiccup(&server_core),
                "load_cores": hiccup(&load_core),
            }),
        );
        if let [first, .., last] = self.cost[..] {
            result.insert("cost".into(), cost_json(first, last, &looks, &self.target));
        }
        result.insert("memory".into(), json!({
            "server_resident_bytes": resident,
            "user_bytes_per_connection": user_bytes,
            "kernel_slab_bytes_per_connection": kernel_bytes,
            "note": "kernel bytes are of both ends of each connection, where both are kernel sockets",
        }));
        if !findings.sampled.is_empty() {
            result.insert("sampled_clients".into(), sampled_json(&findings));
        }
        result.insert("series".into(), watch::series(&looks));
        Ok(result.into())
    }
}

fn phases_json(names: &[&'static str], findings: &Findings) -> Value {
    names.iter().zip(&findings.latency_ns).map(|(name, found)| phase_json(name, found)).collect()
}

/// The latencies of a phase, in nanoseconds, with their curve for the plot.
pub(crate) fn phase_json(name: &str, histogram: &Histogram<u64>) -> Value {
    let curve: Vec<[f64; 2]> = histogram
        .iter_quantiles(2)
        .map(|at| [at.quantile_iterated_to(), at.value_iterated_to() as f64 / 1e6])
        .collect();
    json!({
        "name": name,
        "latency_ms": latency_json(histogram, 1e6),
        "latency_curve_ms": curve,
    })
}

fn checks_json(findings: &Findings) -> Value {
    let checks = findings.checks;
    json!({
        "delivered": findings.delivered,
        "missing": checks.missing,
        "repeated": checks.repeated,
        "damaged": checks.damaged,
        "gaps": checks.gaps,
        "closed": checks.closed,
        "refused": checks.refused,
    })
}

fn cost_json(first: Cost, last: Cost, looks: &[Look], target: &Target) -> Value {
    let (cpu, seconds) = (last.cpu.since(first.cpu), (last.at - first.at).as_secs_f64());
    let delivered = (last.delivered - first.delivered).max(1) as f64;
    // A scrape that a busy server answered only in part says nothing.
    let sends = last.sends.zip(first.sends).and_then(|(last, first)| last.checked_sub(first));
    let sends = sends.map(|sends| sends as f64);
    let is_known = !target.processes.is_empty();
    let known = |value: f64| if is_known { Value::from(value) } else { Value::Null };
    json!({
        "messages_per_second": delivered / seconds,
        "server_cpu_us_per_message": known(cpu.total_us() / delivered),
        "server_user_us_per_message": known(cpu.user_us / delivered),
        "server_system_us_per_message": known(cpu.system_us / delivered),
        "server_cores": known(cpu.total_us() / seconds / 1e6),
        "sends_per_message": sends.map(|sends| sends / delivered),
        "server_cpu_us_per_send": sends.map(|sends| cpu.total_us() / sends.max(1.0)),
        "server_cpu_us_per_message_by_second": watch::cpu_per_message(looks),
        "shards": target.shards,
    })
}

/// The reference's own statistic: the mean of each sampled client, and their mean with its 95 %
/// confidence interval.
fn sampled_json(findings: &Findings) -> Value {
    let of = |value: &dyn Fn(&Histogram<u64>) -> f64| -> Value {
        let values: Vec<f64> = findings.sampled.iter().map(|(_, h)| value(h) / 1e6).collect();
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let variance =
            values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (count - 1.0).max(1.0);
        json!({ "mean": mean, "interval_95": 1.96 * (variance / count).sqrt() })
    };
    json!({
        "clients": findings.sampled.len(),
        "mean_ms": of(&|h| h.mean()),
        "p95_ms": of(&|h| h.value_at_quantile(0.95) as f64),
        "p99_ms": of(&|h| h.value_at_quantile(0.99) as f64),
    })
}

/// The percentiles of a histogram of nanoseconds, in `unit` nanoseconds.
pub(crate) fn latency_json(histogram: &Histogram<u64>, unit: f64) -> Value {
    let at = |quantile: f64| histogram.value_at_quantile(quantile) as f64 / unit;
    json!({
        "count": histogram.len(),
        "min": if histogram.is_empty() { 0.0 } else { histogram.min() as f64 / unit },
        "mean": histogram.mean() / unit,
        "sd": histogram.stdev() / unit,
        "p50": at(0.5),
        "p90": at(0.9),
        "p95": at(0.95),
        "p99": at(0.99),
        "p99.9": at(0.999),
        "p99.99": at(0.9999),
        "max": histogram.max() as f64 / unit,
    })
}
