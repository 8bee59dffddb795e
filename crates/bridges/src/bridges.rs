//! Starting and stopping the bridges of a server.

use std::fmt;
use std::time::{Duration, Instant};

use server::config::WebhookConfig;
use server::{Config, Server};

use crate::webhooks::{self, Poster, Running, STOP_MAX};

/// How much longer than attempts under way the rest of a stop may take.
const LATE_MAX: Duration = Duration::from_millis(500);

/// Why bridges did not start.
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

/// Bridges whose server is not started yet.
#[derive(Debug)]
pub struct Plan {
    posters: Vec<Poster>,
}

impl Plan {
    /// Prepares what `config` says.
    ///
    /// # Errors
    /// A `ca_file` cannot be used.
    pub fn new(config: &Config) -> Result<Self, PlanError> {
        let poster = |it: &WebhookConfig| {
            let how = "check its ca_file";
            Poster::new(it).map_err(|error| PlanError::new(&it.name, error, how))
        };
        let posters = config.webhooks.iter().map(poster).collect::<Result<_, _>>()?;
        Ok(Self { posters })
    }

    /// Starts the bridges beside their server.
    ///
    /// # Errors
    /// The system has no room for the threads.
    pub fn start(self, server: &Server) -> Result<Bridges, PlanError> {
        let start = |(at, poster): (usize, &Poster)| {
            let name = &server.config().webhooks[at].name;
            let how = "free some memory, or lower its concurrency";
            let started = webhooks::start(at, poster, server);
            started.map_err(|error| PlanError::new(name, error, how))
        };
        let all = self.posters.iter().enumerate().map(start).collect::<Result<_, _>>()?;
        Ok(Bridges { all })
    }
}

/// The bridges of a server that runs.
#[derive(Debug)]
pub struct Bridges {
    all: Vec<Running>,
}

impl Bridges {
    /// Begins nothing new, waits some seconds for what is under way, and has the server remember it: to be called
    /// before the server stops. A delivery that is cut off all the same is done again after the next start.
    pub fn stop(self) {
        self.all.iter().for_each(Running::stop);
        let until = Instant::now() + STOP_MAX + LATE_MAX;
        self.all.into_iter().for_each(|running| running.wait(until));
    }
}
