//! The shards as the API sees them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use admin::{ApiWork, Question, Shards, WebhookCounters};
use backbone::SharedFault;
use engine::{Hiccups, MailSender};
use hub::home_shard;
use model::{Code, Limits, PolicyRule, Principal, Refusal, TopicName};

use crate::config::Config;
use crate::mail::ShardMail;
use crate::memory::Memory;
use crate::reload::Current;

/// Asks shards by mail.
pub(crate) struct MailedShards {
    pub peers: Vec<MailSender<ShardMail>>,
    pub config: Arc<Config>,
    pub access: Current,
    pub is_ready: Arc<AtomicBool>,
    pub store_fault: Option<SharedFault>,
    pub hiccups: Option<Arc<Hiccups>>,
    pub webhooks: Vec<Arc<WebhookCounters>>,
    pub memory: Memory,
    pub work: ApiWork,
}

impl Shards for MailedShards {
    fn count(&self) -> usize {
        self.peers.len()
    }

    fn home_of(&self, topic: &TopicName) -> usize {
        usize::from(home_shard(topic, self.peers.len() as u16).0)
    }

    fn ask(&self, shard: usize, question: Question) -> Result<(), Refusal> {
        self.peers[shard].send(ShardMail::Question(Box::new(question))).map_err(|_| {
            let text = "cannot ask the shard now: its mailbox is full; try again";
            Refusal::new(Code::Busy, text)
        })
    }

    fn principal(&self, token: Option<&str>) -> Result<Arc<Principal>, Refusal> {
        self.access.get().principal(token)
    }

    fn records_principal(&self, topic: &TopicName) -> bool {
        let selects = |rule: &&PolicyRule| rule.selector.matches(topic.as_str());
        self.config.policies.iter().find(selects).is_some_and(|it| it.policy.record_principal)
    }

    fn certified(&self, name: &str) -> Option<Arc<Principal>> {
        self.access.get().certified(name)
    }

    fn origin_allowed(&self, origin: &str, host: &str) -> bool {
        self.access.get().origin_allowed(origin, host)
    }

    fn origin_listed(&self, origin: &str) -> bool {
        self.access.get().origin_listed(origin)
    }

    fn work(&self) -> &ApiWork {
        &self.work
    }

    fn webhooks(&self) -> &[Arc<WebhookCounters>] {
        &self.webhooks
    }

    fn has_private_descriptors(&self) -> bool {
        self.config.engine.private_fd_tables
    }

    fn limits(&self) -> &Limits {
        &self.config.limits
    }

    fn check_memory(&self, bytes: usize, what: &str) -> Result<(), Refusal> {
        self.memory.check(bytes, what)
    }

    fn hiccups(&self) -> Option<Vec<(u64, u64)>> {
        self.hiccups.as_ref().map(|hiccups| hiccups.take())
    }

    fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Relaxed)
    }

    fn store_fault(&self) -> Option<String> {
        Some(self.store_fault.as_ref()?.get()?.to_string())
    }
}
