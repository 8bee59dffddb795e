//! The Rust SDK: connect, publish with acknowledgement, subscribe, resume after a break, ask and answer.
//!
//! It blocks the calling thread and needs no runtime. A [`Client`] that loses its connection connects again with
//! growing, jittered pauses, to the next node if there are several, subscribes anew from its positions, and tells
//! whether everything was recovered. Its updates come out of [`Client::next`].
//!
//! `client` joins pure parts: `nodes` (where to connect, as whom), `subscriptions` with `parts` (places that do not go into one
//! command), `payloads` (what came, whole) and a `tracker` each (what of it is news), `progress` (what was handed out), `handlings`,
//! and `calls` (commands that are answered).
#![forbid(unsafe_code)]

mod backoff;
mod calls;
mod client;
mod connection;
mod errors;
mod handlings;
mod nodes;
mod options;
mod parts;
mod payloads;
mod progress;
mod selectors;
mod subscription_id;
mod subscriptions;
#[cfg(feature = "tls")]
pub mod tls;
mod tracker;
mod transport;
mod update;

pub use backoff::Backoff;
pub use client::Client;
pub use errors::{ClientError, ErrorCode};
pub use handlings::{HandlingId, Ticket};
pub use options::{ClientOptions, Token, TokenProvider};
pub use subscription_id::SubscriptionId;
pub use subscriptions::{SubscriptionState, Subscriptions};
pub use tracker::{Message, Notification};
pub use update::Update;

/// The words that commands and updates are made of.
pub use model;

/// Holds the README's example to what the compiler says.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
