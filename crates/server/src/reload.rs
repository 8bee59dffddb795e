//! Taking over another configuration while the server runs.
//!
//! Which settings it takes is known by the table of settings alone (`config::Sources::reloaded`): here the rest is as it
//! was at the start already.

use std::sync::Arc;
use std::time::Duration;

use access::Access;
use engine::{Io, MailSender};
use tokio::sync::watch;

use crate::certificates::Certificates;
use crate::config::Config;
use crate::mail::{ShardMail, tell_all};
use crate::rules::Settings;
use crate::shard::Shard;

/// How long a new configuration may wait for room in a mailbox: a stop waits behind it.
const PATIENCE: Duration = Duration::from_secs(1);

/// The access rules that go now, for threads other than shards.
#[derive(Clone, Debug)]
pub(crate) struct Current(watch::Sender<Arc<Access>>);

impl Current {
    pub fn new(it: Arc<Access>) -> Self {
        Self(watch::Sender::new(it))
    }

    pub fn get(&self) -> Arc<Access> {
        Arc::clone(&self.0.borrow())
    }

    fn set(&self, it: Arc<Access>) {
        self.0.send_replace(it);
    }
}

/// Takes over other configurations.
pub struct Reloader {
    started: Arc<Config>,
    access: Current,
    certificates: Certificates,
    peers: Vec<MailSender<ShardMail>>,
}

impl Reloader {
    pub(crate) fn new(
        started: &Arc<Config>,
        access: Current,
        certificates: Certificates,
        peers: Vec<MailSender<ShardMail>>,
    ) -> Self {
        Self { started: Arc::clone(started), access, certificates, peers }
    }

    /// Tells all shards, and whoever else asks.
    pub fn take_over(&self, config: Config) {
        self.certificates.reload();
        let settings = Arc::new(Settings::new(config, &self.started, &self.access.get()));
        self.access.set(Arc::clone(&settings.access));
        let mail = || ShardMail::Settings(Arc::clone(&settings));
        let untold = tell_all(&self.peers, PATIENCE, mail);
        if !untold.is_empty() {
            tracing::error!(shards = ?untold, "not taken over everywhere: mailboxes are full; try again");
        }
    }
}

impl<I: Io> Shard<I> {
    /// What the shard goes by.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Goes by other settings from now on. Who is in stays so, with the rights that it had.
    pub(crate) fn take_over(&mut self, settings: &Settings) {
        self.devices.renew_applications(&settings.config.applications);
        self.config = Arc::clone(&settings.config);
        self.access = Arc::clone(&settings.access);
    }
}
