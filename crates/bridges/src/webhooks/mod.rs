//! Webhooks: publications posted to HTTP endpoints, as Standard Webhooks says (docs/webhooks.md).
//!
//! Each webhook is a named subscriber of its own server. Pure are `delivery` and `dead_letter` (what is said),
//! `signature`, `schedule`, `endpoint` and `deliveries` (what is tried when). `driver` joins them in a thread; a few others post.

#[cfg(test)]
pub(crate) mod checks;
mod dead_letter;
mod deliveries;
mod delivery;
mod driver;
mod endpoint;
mod post;
mod schedule;
mod signature;

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use engine::{Supervision, Supervisor};
use model::{Limits, Principal, Selector, TopicName};
use server::config::WebhookConfig;
use server::{Config, Server};

use self::deliveries::{Deliveries, Rules};
pub(crate) use self::driver::STOP_MAX;
use self::driver::{Driver, Input, post_all};
pub(crate) use self::post::Poster;
use self::schedule::Schedule;
use crate::gate::{self, Gate};
use crate::positions::PositionStore;
use crate::random::Random;
use crate::sessions::Sessions;

/// The owner of all webhooks' names.
const OWNER: &str = "$webhooks";

/// A webhook that runs.
#[derive(Debug)]
pub(crate) struct Running {
    inputs: Sender<Input>,
    /// Nothing comes: it closes when the driver has ended.
    ended: Receiver<()>,
}

impl Running {
    /// Has it begin nothing new.
    pub(crate) fn stop(&self) {
        // It has ended already if its endpoint was gone.
        let _ = self.inputs.send(Input::Stop);
    }

    /// Waits until it has ended, but no longer than that.
    pub(crate) fn wait(self, until: Instant) {
        // The server names one that is late.
        let _ = self.ended.recv_timeout(until.saturating_duration_since(Instant::now()));
    }
}

/// The principal of a webhook, which reads the topics that it posts and publishes its dead letters.
fn principal(it: &WebhookConfig, limits: &Limits) -> Principal {
    let own = Selector::parse(&format!("$subscribers/{OWNER}/+"), limits);
    Principal {
        subscribe: it.topics.iter().cloned().chain(own).collect(),
        publish: vec![Selector::of_topic(&dead_letters_of(it, limits))],
        everything: false,
        ..Principal::unlimited(OWNER)
    }
}

fn dead_letters_of(config: &WebhookConfig, limits: &Limits) -> TopicName {
    let text = format!("webhooks/{}/dead", config.name);
    TopicName::parse(&text, limits).expect("a webhook's name is a level of topics")
}

fn rules_of(it: &WebhookConfig, limits: &Limits) -> Rules {
    Rules {
        dead_letters: dead_letters_of(it, limits),
        topics: it.topics.clone(),
        schedule: Schedule { pause_min: it.pause_min, pause_max: it.pause_max },
        attempts_max: it.attempts_max,
        concurrency: it.concurrency,
        ahead_max: limits.webhook_topic_pending_max,
        topics_max: limits.webhook_topics_max,
    }
}

fn gate_of(it: &WebhookConfig, config: &Config) -> Gate {
    let limits = config.limits.clone();
    let positions = match config.store.is_some() {
        true => PositionStore::new(OWNER, it.subscribers()),
        false => PositionStore::default(),
    };
    Gate::new(gate::Rules {
        topics: it.topics.clone(),
        positions,
        pending_max: limits.webhook_pending_max,
        pending_bytes_max: limits.webhook_pending_bytes_max,
        limits,
    })
}

/// Starts the webhook of that number: a thread that drives it, and as many as are wanted that post.
///
/// # Errors
/// The system has no room for the threads.
pub(crate) fn start(at: usize, poster: &Poster, server: &Server) -> std::io::Result<Running> {
    let (config, supervisor) = (server.config(), server.supervisor());
    let (it, limits) = (&config.webhooks[at], &config.limits);
    let (inputs, hears) = channel();
    let (jobs, work) = channel();
    let work = Arc::new(Mutex::new(work));
    for _ in 0..it.concurrency {
        let (poster, work, inputs) = (poster.clone(), Arc::clone(&work), inputs.clone());
        let post = move || post_all(&poster, &work, &inputs);
        spawn(supervisor, "post", it, Supervision::Unawaited, post)?;
    }
    let tell = inputs.clone();
    let sessions = Sessions {
        port: server.port(),
        name: format!("webhook {}", it.name),
        principal: Arc::new(principal(it, limits)),
        // Whoever hears it is gone only when all of it ends.
        hear: Arc::new(move |number, told| drop(tell.send(Input::Told(number, told)))),
        open: Vec::new(),
    };
    let driver = Driver {
        name: it.name.as_str().into(),
        dead_letters: dead_letters_of(it, limits),
        deliveries: Deliveries::new(rules_of(it, limits)),
        counters: Arc::clone(&server.webhooks()[at]),
        gate: gate_of(it, config),
        sessions,
        inputs: hears,
        jobs,
        random: Random(engine::random_seed()),
        page_len_max: limits.webhook_topic_pending_max,
        recording: VecDeque::new(),
        acknowledging: false,
        acknowledge_at: Instant::now(),
        stop_by: None,
    };
    let (ending, ended) = channel();
    let drive = move || {
        driver.run();
        drop(ending);
    };
    spawn(supervisor, "hook", it, Supervision::Awaited, drive)?;
    tracing::info!(webhook = %it.name, topics = it.topics.len(), "posting");
    Ok(Running { inputs, ended })
}

/// Those that post are left to themselves: they end when nobody has anything to post any more.
fn spawn(
    supervisor: &Supervisor,
    what: &str,
    it: &WebhookConfig,
    supervision: Supervision,
    run: impl FnOnce() + Send + 'static,
) -> std::io::Result<()> {
    supervisor.spawn(&format!("{what}-{}", it.name), supervision, run)?;
    Ok(())
}
