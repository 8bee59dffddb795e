//! The durable store: opened before the shards start, closed after they ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use backbone::{
    BackboneMail, Deliver, Log, Retention, RetentionOf, SharedFault, Spawn, StoreMail, StoredTopic,
};
use engine::{MailSender, Supervision, Supervisor};
use hub::home_shard;
use model::{BackboneIndex, Epoch, PolicyRule, TopicName, TopicPolicy};

use crate::config::Config;
use crate::mail::ShardMail;
use crate::start_error::{StartError, cannot};

/// What one shard gets of the store.
pub struct DiskParts {
    /// Its hold on the log.
    pub store: Box<dyn backbone::Store>,
    /// The life of the store's numbering.
    pub epoch: Epoch,
    /// The topics that are at home on the shard.
    pub topics: Vec<StoredTopic>,
}

/// The running store.
pub(crate) struct Store {
    log: Log,
    is_closing: Arc<AtomicBool>,
}

type Opened = (Option<Store>, Vec<Option<DiskParts>>);

impl Store {
    /// Opens the configured store, if there is one, and shares its topics out.
    pub(crate) fn open(
        config: &Config,
        new_epoch: &str,
        shard_count: u16,
        peers: &[MailSender<ShardMail>],
        supervisor: &Supervisor,
    ) -> Result<Opened, StartError> {
        let Some(path) = &config.store else {
            return Ok((None, (0..shard_count).map(|_| None).collect()));
        };
        let held = |topic: &TopicName| {
            let policy = policy_of(&config.policies, topic);
            (policy.held_count(), policy.held_bytes())
        };
        let retention = retention_of(config.policies.clone());
        let opened = backbone::open(path, &Epoch::new(new_epoch), &config.limits, &held, retention)
            .map_err(|error| StartError::new(error.to_string()))?;
        for line in &opened.damage {
            tracing::error!(store = %path.display(), "damaged: {line}");
        }
        if let Some(moved) = &opened.moved {
            tracing::warn!(store = %path.display(), "{moved}");
        }
        let (topics, records, epoch) = (opened.topics.len(), opened.records, opened.epoch.clone());
        tracing::info!(store = %path.display(), topics, records, %epoch, "store open");
        let is_closing = Arc::new(AtomicBool::new(false));
        let deliver = peers.iter().map(|peer| deliver_to(peer.clone(), &is_closing)).collect();
        let spawn: &Spawn = &|name, run| {
            supervisor.spawn(name, Supervision::Awaited, run)?;
            Ok(())
        };
        let (log, topics) = Log::start(opened, deliver, &config.limits, spawn)
            .map_err(|error| cannot("start the store", error, "free some memory"))?;
        let (durable, others): (Vec<_>, Vec<_>) = topics.into_iter().partition(|it| {
            policy_of(&config.policies, &it.topic).backbone() == BackboneIndex::DISK
        });
        if !others.is_empty() {
            let count = others.len();
            tracing::warn!(count, "topics in the store are durable no more by policy: left alone");
        }
        let mut disks: Vec<DiskParts> = (0..shard_count)
            .map(|shard| DiskParts {
                store: Box::new(log.store(usize::from(shard))),
                epoch: epoch.clone(),
                topics: Vec::new(),
            })
            .collect();
        for topic in durable {
            disks[usize::from(home_shard(&topic.topic, shard_count).0)].topics.push(topic);
        }
        Ok((Some(Self { log, is_closing }), disks.into_iter().map(Some).collect()))
    }

    /// Where it shows that nothing is written any more, and why.
    pub(crate) fn fault(&self) -> SharedFault {
        self.log.fault()
    }

    /// Lets its threads end once all that was handed over is on disk. The shards must have ended.
    pub(crate) fn close(self) {
        self.is_closing.store(true, Ordering::Relaxed);
        drop(self.log);
    }
}

fn policy_of(policies: &[PolicyRule], topic: &TopicName) -> TopicPolicy {
    let rule = policies.iter().find(|rule| rule.selector.matches(topic.as_str()));
    rule.map_or_else(TopicPolicy::default, |rule| rule.policy.clone())
}

/// What stays on disk of each topic. Of one that is durable no more by policy, everything.
fn retention_of(policies: Vec<PolicyRule>) -> RetentionOf {
    Box::new(move |topic| {
        let policy = policy_of(&policies, topic);
        match policy.backbone() {
            BackboneIndex::DISK => Retention {
                count: policy.history_count as u64,
                bytes: policy.history_bytes.map_or(u64::MAX, |bytes| bytes as u64),
                age: policy.history_age,
            },
            _ => Retention { count: u64::MAX, bytes: u64::MAX, age: None },
        }
    })
}

/// Mails what the store tells. What finds no room comes back, unless nobody is there any more to hear it.
fn deliver_to(peer: MailSender<ShardMail>, is_closing: &Arc<AtomicBool>) -> Deliver {
    let is_closing = Arc::clone(is_closing);
    let mail_of = |mail| {
        let (backbone, mail) = (BackboneIndex::DISK, BackboneMail::Store(mail));
        ShardMail::Backbone { backbone, mail }
    };
    Box::new(move |mail: StoreMail| match peer.send(mail_of(mail)) {
        Err(ShardMail::Backbone { mail: BackboneMail::Store(mail), .. })
            if !is_closing.load(Ordering::Relaxed) =>
        {
            Err(mail)
        }
        _ => Ok(()),
    })
}
