//! Where the parts meet: a shard per core, its connections, configuration, start and stop.
//!
//! It orders calls; decisions are made on the floors below.
#![forbid(unsafe_code)]

mod access;
mod api;
mod asker;
pub mod config;
mod connection;
mod conversation;
mod devices;
mod encoder;
mod history;
mod http;
mod key;
mod mail;
mod memory;
mod payloads;
mod poll;
mod proof;
mod publish;
mod requests;
mod routes;
mod server;
mod shard;
mod store;
mod stream;
mod subscribers;
mod sweep;

pub use access::Access;
pub use asker::Asker;
pub use config::Config;
pub use devices::{Applications, DeviceMail, Gather, Role};
pub use key::SessionPlace;
pub use mail::ShardMail;
pub use memory::SharedPressure;
pub use proof::Secret;
pub use server::{Server, StartError};
pub use shard::{Shard, ShardParts, moment};
pub use store::DiskParts;
pub use stream::SessionRequest;
