//! The reference scenarios: load, checks, histograms, cost.
//!
//! Load is open-loop: a publication is stamped with the time at which it should have been sent, so
//! a stalled server cannot hide its stalls. Every delivery to every client is checked. The driver
//! knows the wire, not the server's insides; it speaks the protocol by hand.
#![forbid(unsafe_code)]

mod floor;
mod idle;
mod ping_pong;
mod publisher;
mod report;
mod sample;
mod stamp;
mod stream;
mod swarm;
mod target;
mod wire;

pub use report::{Report, Scenario, ScenarioOptions, run};
