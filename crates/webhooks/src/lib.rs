//! Webhooks: publications posted to HTTP endpoints, as Standard Webhooks says (docs/webhooks.md).
//!
//! Each webhook is an ordinary named subscriber of its own server. Pure are `posting` and `letter` (what is said),
//! `signature`, `places`, `schedule`, `endpoint` and
//! `deliveries` (what is tried when). `driver` joins them with threads:
//! one that reads, one that has the server keep things, and a few that post.
#![forbid(unsafe_code)]

#[cfg(test)]
mod checks;
mod deliveries;
mod driver;
mod endpoint;
mod gate;
mod keeper;
mod letter;
mod places;
mod post;
mod posting;
mod reader;
mod schedule;
mod signature;
mod webhooks;

pub use webhooks::{Plan, PlanError, Webhooks};
