//! Where the parts meet: a shard per core, its connections, configuration, start and stop.
//!
//! It orders calls; decisions are made on the floors below.
#![forbid(unsafe_code)]

mod access;
mod addresses;
mod api;
mod asker;
mod budget;
mod byte_queue;
mod closing;
pub mod config;
mod connection;
mod conversation;
mod devices;
mod door;
mod encoder;
mod history;
mod http;
mod input;
mod key;
mod mail;
mod memory;
mod origins;
mod outbox;
mod poll;
mod proof;
mod publish;
mod refusals;
mod renewal;
mod requests;
mod rights;
mod routes;
mod server;
mod sessions;
mod shard;
mod store;
mod stream;
mod subscribers;
mod sweep;
mod turn_budget;

pub use access::Access;
pub use addresses::Network;
pub use asker::Asker;
pub use config::Config;
pub use devices::{Applications, DeviceMail, Gather, Role};
pub use key::SessionPlace;
pub use mail::ShardMail;
pub use memory::{Memory, Reservation};
pub use proof::Secret;
pub use routes::paths;
pub use server::{EndError, Server, StartError, Stopper, new_epoch};
pub use shard::{Shard, ShardParts, moment};
pub use store::DiskParts;
pub use stream::SessionRequest;
