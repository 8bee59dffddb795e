//! The questions that the API asks shards, and the services of the server that it needs.

use std::net::IpAddr;
use std::sync::Arc;

use model::{
    AckLevel, Conflation, Draft, HistoryPage, HistoryStart, Limits, Position, Principal,
    Publication, Refusal, Selector, TopicName,
};
use tokio::sync::oneshot;

use crate::{ApiWork, ApplicationCounters, ShardCounters, Times, WebhookCounters};

/// Something asked of one shard; it answers through the sender and never waits.
#[derive(Debug)]
pub enum Question {
    /// Keep this publication; the topic is at home there.
    Publish {
        /// The message.
        draft: Draft,
        /// Its position, or why it was refused.
        answer: oneshot::Sender<Result<Published, Refusal>>,
    },
    /// The newest value of a topic that is at home there.
    Value {
        /// Which topic.
        topic: TopicName,
        /// The value, if there is one.
        answer: oneshot::Sender<Option<Value>>,
    },
    /// The newest values of topics that are at home there.
    Values {
        /// Which topics.
        topics: Vec<TopicName>,
        /// Once they have so many bytes of payload, no more are answered.
        bytes_max: usize,
        /// The value of each, if there is one, in the same order: of the first at least.
        answer: oneshot::Sender<Vec<Option<Value>>>,
    },
    /// Kept publications of a topic that is at home there.
    History {
        /// Which topic.
        topic: TopicName,
        /// From where.
        start: HistoryStart,
        /// At most so many.
        limit: usize,
        /// They, and where the topic stands; or why it cannot be told.
        answer: oneshot::Sender<Result<HistoryPage, Refusal>>,
    },
    /// Published topics that are at home there, by name.
    List {
        /// Which ones.
        selector: Selector,
        /// Only those after this name.
        after: Option<TopicName>,
        /// At most so many.
        limit: usize,
        /// The topics.
        answer: oneshot::Sender<ListedPart>,
    },
    /// The sessions that are furthest behind.
    Slow {
        /// At most so many.
        limit: usize,
        /// The matching entries.
        answer: oneshot::Sender<Vec<Slow>>,
    },
    /// Sessions, in order of the numbers of their connections.
    Sessions {
        /// Only those after this number.
        after: Option<u32>,
        /// At most so many.
        limit: usize,
        /// The sessions, and the number after which to continue, if there may be more.
        answer: oneshot::Sender<(Vec<SeenSession>, Option<u32>)>,
    },
    /// Whether the shard is at work at all.
    Alive {
        /// That it is.
        answer: oneshot::Sender<()>,
    },
    /// The shard's counters.
    Counters {
        /// The counters, and how long deliveries took.
        answer: oneshot::Sender<(ShardCounters, Times)>,
    },
    /// The shard's counters of applications.
    Applications {
        /// The matching entries.
        answer: oneshot::Sender<Vec<CountedApplication>>,
    },
}

/// An application, as one shard counted it.
#[derive(Clone, Debug, PartialEq)]
pub struct CountedApplication {
    /// Its id.
    pub application: String,
    /// The counters.
    pub counters: ApplicationCounters,
    /// How long its devices took to answer.
    pub answer_times: Times,
}

/// A kept publication.
#[derive(Clone, Debug, PartialEq)]
pub struct Published {
    /// Where.
    pub topic: TopicName,
    /// The place it was given.
    pub position: Position,
    /// How safe it is.
    pub level: AckLevel,
}

/// The newest publication of a topic.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// Where it stands.
    pub position: Position,
    /// The publication.
    pub publication: Publication,
}

/// A session that is behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slow {
    /// Its public name.
    pub session: String,
    /// Whose it is.
    pub principal: String,
    /// The age of the oldest publication that it lacks, in milliseconds.
    pub lag_ms: u64,
    /// Payload bytes that it lacks, as far as they were counted.
    pub lag_bytes: u64,
    /// Publications that it lacks, as far as they were counted.
    pub lag_count: u64,
    /// The topic of the oldest that it lacks, and what it may skip of that.
    pub topic: Option<(TopicName, Conflation)>,
    /// Whether it waits because it was sent all that it may be, not because its connection is full.
    pub is_throttled: bool,
}

/// A session, as an operator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenSession {
    /// Its public name.
    pub session: String,
    /// Whose it is.
    pub principal: String,
    /// The client's own name.
    pub client: Option<String>,
    /// Where its connection comes from, if it has one.
    pub peer: Option<IpAddr>,
    /// How it travels.
    pub transport: &'static str,
    /// Audiences that it is in.
    pub subscriptions: u64,
    /// Whether it has everything that was published to it.
    pub is_in_step: bool,
    /// Seconds since it was heard.
    pub heard_s: u32,
}

/// Topics of one shard, as far as it looked in one go.
#[derive(Clone, Debug, Default)]
pub struct ListedPart {
    /// The matching topics, by name.
    pub topics: Vec<Listed>,
    /// After which name to go on, if there may be more.
    pub next: Option<TopicName>,
}

/// A topic in a listing.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed {
    /// Its name.
    pub topic: TopicName,
    /// Its newest position.
    pub position: Position,
}

/// The services of the server that the API needs.
pub trait Shards: Send + Sync + 'static {
    /// How many shards there are.
    fn count(&self) -> usize;
    /// The shard where a topic is at home.
    fn home_of(&self, topic: &TopicName) -> usize;
    /// Asks one shard.
    ///
    /// # Errors
    /// Its mailbox is full (`Code::Busy`).
    fn ask(&self, shard: usize, question: Question) -> Result<(), Refusal>;
    /// The principal with this token; the anonymous one for `None`.
    ///
    /// # Errors
    /// The token is unknown.
    fn principal(&self, token: Option<&str>) -> Result<Arc<Principal>, Refusal>;
    /// Whether the policy of `topic` has the names of those who publish recorded.
    fn records_principal(&self, topic: &TopicName) -> bool;
    /// The principal with a certificate of this name, if it is known.
    fn certified(&self, name: &str) -> Option<Arc<Principal>>;
    /// Whether pages of `origin` may use a server that they call `host`.
    fn origin_allowed(&self, origin: &str, host: &str) -> bool;
    /// Whether the configuration names `origin`: its pages may also change things.
    fn origin_listed(&self, origin: &str) -> bool;
    /// Where the API counts its work.
    fn work(&self) -> &ApiWork;
    /// The counters of each webhook.
    fn webhooks(&self) -> &[Arc<WebhookCounters>];
    /// Whether each shard has its sockets in a table of descriptors of its own.
    fn has_private_descriptors(&self) -> bool;
    /// Every bound.
    fn limits(&self) -> &Limits;
    /// Whether memory is left for `bytes` more, to do `what` ("publish").
    ///
    /// # Errors
    /// There is not so much (`Code::OutOfMemory`).
    fn check_memory(&self, bytes: usize, what: &str) -> Result<(), Refusal>;
    /// Whether the server takes requests.
    fn is_ready(&self) -> bool;
    /// Why the durable store takes nothing more, if that is so: topics in memory go on.
    fn store_fault(&self) -> Option<String>;
    /// Since the last call: how much naps of 1 ms were too long, as (nanoseconds at most, naps),
    /// growing; `None` if that is not metered.
    fn hiccups(&self) -> Option<Vec<(u64, u64)>>;
}
