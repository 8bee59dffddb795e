//! Where the parts meet: a shard per core, its connections, configuration, start and stop.
//!
//! It orders calls; decisions are made on the floors below.
#![forbid(unsafe_code)]

mod api;
mod asker;
mod backbones;
mod budget;
mod byte_queue;
mod closing;
pub mod config;
mod conversation;
mod counters;
mod desks;
mod device_mail;
mod devices;
mod dialects;
mod door;
mod edge;
mod encoder;
mod events;
mod frames;
mod history;
mod http;
mod key;
mod mail;
mod memory;
mod origins;
mod outbox;
mod parking;
mod peers;
mod poll;
mod publish;
mod refusals;
mod relief;
mod reload;
mod renewal;
mod reply;
mod requests;
mod routes;
mod rules;
mod server;
mod sessions;
mod shard;
mod start_error;
mod store;
mod stream;
mod subscribers;
mod sweep;
mod turn;
mod wire;

pub use config::Config;
pub use desks::HistoryReply;
pub use device_mail::{DeviceMail, Gather};
pub use key::SessionPlace;
pub use mail::{SessionRequest, ShardMail};
pub use memory::{Memory, Reservation};
pub use reload::Reloader;
pub use reply::{Asker, Never, ReplyTo, SessionReply};
pub use routes::paths;
pub use rules::{Settings, access_of};
pub use server::{EndError, Server, Stopper, new_epoch};
pub use shard::{Shard, ShardParts, moment};
pub use start_error::StartError;
pub use store::DiskParts;
