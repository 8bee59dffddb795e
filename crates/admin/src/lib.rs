//! The ordinary HTTP side: publish API, topics API, health, metrics and the page.
//!
//! It never touches a socket: requests come as values, answers go back as values. It never reads
//! a shard's memory: it asks by message.
#![forbid(unsafe_code)]

mod asked;
mod conditions;
mod counters;
mod error;
mod exchange;
mod exposition;
mod hiccups;
mod history;
mod members;
mod metrics;
mod page;
mod pieces;
mod process;
mod publish;
mod put;
mod question;
mod router;
mod sessions;
mod slow;
mod table;
mod topics;
mod webhooks;
mod work;

pub use asked::CERTIFICATE;
pub use counters::{ApplicationCounters, ShardCounters, Times};
pub use exchange::{Answer, AnswerTaker, AnswerWindow, Exchange, run};
pub use question::{
    CountedApplication, Listed, ListedPart, Published, Question, SeenSession, Shards, Slow, Value,
};
pub use router::{PATHS, router};
pub use webhooks::WebhookCounters;
pub use work::ApiWork;
