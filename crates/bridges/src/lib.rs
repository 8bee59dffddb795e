//! Bridges: systems outside, connected with topics. They run in the server's process and talk to it by mailbox.
//!
//! All bridges have one shape. A pure part decides what becomes of each publication (`webhooks::deliveries`), an adapter speaks
//! with the system outside (`webhooks::post`), a driver joins both in a thread (`webhooks::driver`). The shared parts are here: the
//! `gate`, where a bridge meets its server, with credit, questions and sessions that end; `sessions`, which carries out
//! what the gate decides; `positions`, how far a bridge came, kept by the server; start and stop (`bridges`). A publication
//! that a bridge cannot deliver becomes a publication of a topic of dead letters. Counters belong to `admin`, which shows them, and names
//! bridges that fail in `/ready`.
#![forbid(unsafe_code)]

mod bridges;
mod gate;
mod positions;
mod random;
mod sessions;
mod webhooks;

pub use bridges::{Bridges, Plan, PlanError};
