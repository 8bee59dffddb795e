//! The Rust SDK: connect, publish with acknowledgement, subscribe, resume after a break.
//!
//! It blocks the calling thread and needs no runtime. A [`Client`] that loses its connection
//! connects again with growing, jittered pauses, subscribes anew from its positions, and tells
//! whether everything was recovered. Two explicit state machines stand behind it: the client
//! (connected or waiting for the next attempt) and each subscription ([`SubscriptionState`]).
#![forbid(unsafe_code)]

mod backoff;
mod client;
mod connection;
mod subscriptions;
mod tracker;

pub use backoff::Backoff;
pub use client::{Client, ClientOptions, Update};
pub use connection::ConnectError;
pub use subscriptions::{SubscriptionState, Subscriptions};
pub use tracker::{Message, Told, Tracker};
