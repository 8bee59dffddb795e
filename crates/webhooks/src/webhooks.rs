//! Starting and stopping the webhooks of a server.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use admin::WebhookCounters;
use engine::{Supervision, Supervisor};
use model::{Limits, Principal, Selector, TopicName};
use server::config::WebhookConfig;
use server::{Config, Server};

use crate::deliveries::{Deliveries, Rules};
use crate::driver::{Driver, Input, Random, STOP_MAX, post_all};
use crate::gate::Gate;
use crate::keeper::Keeper;
use crate::places::{OWNER, Places};
use crate::post::Poster;
use crate::reader::{Link, Reader};
use crate::schedule::Schedule;

/// How much longer than attempts under way the rest of a stop may take.
const LATE_MAX: Duration = Duration::from_millis(500);

/// Why webhooks did not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanError {
    text: String,
}

impl PlanError {
    fn new(webhook: &str, why: impl fmt::Display, how: &str) -> Self {
        Self { text: format!("cannot start the webhook `{webhook}`: {why}; {how}") }
    }
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for PlanError {}

/// Webhooks whose server is not started yet.
#[derive(Debug)]
pub struct Plan {
    token: Arc<str>,
    posters: Vec<Poster>,
}

impl Plan {
    /// Prepares what `config` says, and lets the webhooks in: under a token that only this process knows.
    ///
    /// # Errors
    /// A `ca_file` cannot be used.
    pub fn new(config: &mut Config) -> Result<Self, PlanError> {
        let poster = |it: &WebhookConfig| {
            let how = "check its ca_file";
            Poster::new(it).map_err(|error| PlanError::new(&it.name, error, how))
        };
        let posters = config.webhooks.iter().map(poster).collect::<Result<_, _>>()?;
        let bytes: [u8; 32] = engine::random_bytes();
        let token: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        if !config.webhooks.is_empty() {
            config.access.tokens.push((token.clone(), principal(config)));
        }
        Ok(Self { token: token.into(), posters })
    }

    /// The token that they come in with, and what it may do: to be let in again by each other configuration.
    pub fn token(&self, config: &Config) -> Option<(String, Principal)> {
        let own = config.access.tokens.iter().find(|(token, _)| **token == *self.token);
        own.cloned()
    }

    /// Starts the webhooks beside their server.
    ///
    /// # Errors
    /// The system has no room for the threads.
    pub fn start(self, server: &Server) -> Result<Webhooks, PlanError> {
        let config = server.config();
        let url: Arc<str> = format!("ws://{}", reachable(server.address())).into();
        let mut all = Vec::new();
        for (at, (it, poster)) in config.webhooks.iter().zip(self.posters).enumerate() {
            let link = Link {
                webhook: it.name.as_str().into(),
                server: Arc::clone(&url),
                token: Arc::clone(&self.token),
            };
            let counters = Arc::clone(&server.webhooks()[at]);
            let started = start_one(it, poster, link, counters, server);
            let how = "free some memory, or lower its concurrency";
            all.push(started.map_err(|error| PlanError::new(&it.name, error, how))?);
        }
        Ok(Webhooks { all })
    }
}

/// Who the webhooks are: they read what they post, and write dead letters.
fn principal(config: &Config) -> Principal {
    let own = Selector::parse(&format!("$subscribers/{OWNER}/+"), &config.limits);
    let topics = config.webhooks.iter().flat_map(|it| it.topics.iter().cloned());
    let letters =
        config.webhooks.iter().map(|it| Selector::of_topic(&letters_of(it, &config.limits)));
    Principal {
        subscribe: topics.chain(own).collect(),
        publish: letters.collect(),
        everything: false,
        ..Principal::unlimited(OWNER)
    }
}

fn letters_of(config: &WebhookConfig, limits: &Limits) -> TopicName {
    let text = format!("webhooks/{}/dead", config.name);
    TopicName::parse(&text, limits).expect("a webhook's name is a level of topics")
}

/// Where the server is reached from within: one that listens everywhere, on the loopback.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address
}

fn start_one(
    it: &WebhookConfig,
    poster: Poster,
    link: Link,
    counters: Arc<WebhookCounters>,
    server: &Server,
) -> std::io::Result<Running> {
    let (config, supervisor) = (server.config(), server.supervisor());
    let (inputs, hears) = channel();
    let (jobs, work) = channel();
    let (orders, ordered) = channel();
    let gate = Arc::new(Gate::new(&config.limits));
    let letters = letters_of(it, &config.limits);
    let places = match config.store.is_some() {
        true => Places::new(it.subscribers()),
        false => Places::default(),
    };
    let work = Arc::new(Mutex::new(work));
    for _ in 0..it.concurrency {
        let (poster, work, inputs) = (poster.clone(), Arc::clone(&work), inputs.clone());
        spawn(supervisor, "post", it, Supervision::Unawaited, move || {
            post_all(&poster, &work, &inputs)
        })?;
    }
    let keeper = Keeper {
        link: link.clone(),
        places: places.clone(),
        letters: letters.clone(),
        page_len_max: config.limits.webhook_topic_pending_max,
        orders: ordered,
        inputs: inputs.clone(),
    };
    spawn(supervisor, "keep", it, Supervision::Unawaited, move || keeper.run())?;
    let reader = Reader {
        link: link.clone(),
        topics: it.topics.clone(),
        places,
        limits: config.limits.clone(),
        gate: Arc::clone(&gate),
        inputs: inputs.clone(),
    };
    let rules = Rules {
        letters,
        topics: it.topics.clone(),
        schedule: Schedule { pause_min: it.pause_min, pause_max: it.pause_max },
        attempts_max: it.attempts_max,
        concurrency: it.concurrency,
        ahead_max: config.limits.webhook_topic_pending_max,
        topics_max: config.limits.webhook_topics_max,
    };
    let driver = Driver {
        name: link.webhook,
        deliveries: Deliveries::new(rules),
        counters,
        gate,
        inputs: hears,
        jobs,
        orders,
        random: Random(engine::random_seed()),
        entered: (0, 0),
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
    spawn(supervisor, "read", it, Supervision::Unawaited, move || reader.run())?;
    tracing::info!(webhook = %it.name, topics = it.topics.len(), "posting");
    Ok(Running { inputs, ended })
}

/// All but the driver are left to themselves: each ends when nobody listens to it any more.
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

#[derive(Debug)]
struct Running {
    inputs: Sender<Input>,
    /// Nothing comes: it closes when the driver has ended.
    ended: Receiver<()>,
}

/// The webhooks of a server that runs.
#[derive(Debug)]
pub struct Webhooks {
    all: Vec<Running>,
}

impl Webhooks {
    /// Begins nothing new, waits some seconds for what is under way, and has the server remember it: to be called
    /// before the server stops. What is cut off all the same is posted again after the next start.
    pub fn stop(self) {
        for running in &self.all {
            // It has ended already if its endpoint was gone.
            let _ = running.inputs.send(Input::Stop);
        }
        let until = Instant::now() + STOP_MAX + LATE_MAX;
        for running in self.all {
            // The server names one that is late.
            let _ = running.ended.recv_timeout(until.saturating_duration_since(Instant::now()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_listens_everywhere_is_reached_on_the_loopback() {
        let reached = |text: &str| reachable(text.parse().expect("an address")).to_string();
        assert_eq!(reached("0.0.0.0:1"), "127.0.0.1:1");
        assert_eq!(reached("[::]:1"), "[::1]:1");
        assert_eq!(reached("10.0.0.7:1"), "10.0.0.7:1");
    }
}
