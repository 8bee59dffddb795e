//! The reference scenarios: load, checks, histograms, cost, reports.
//!
//! Load is open-loop: a publication is stamped with the time at which it should have been sent, so
//! a stalled server cannot hide its stalls. Every delivery to every client is checked. The driver
//! knows what servers say on the wire (`dialect`), not their insides.
#![forbid(unsafe_code)]

mod asking;
mod compare;
mod cores;
mod devices;
mod dialect;
mod drain;
mod feeds;
mod findings;
mod hiccup;
mod progress;
mod publisher;
mod report;
mod run;
mod sample;
mod scenario;
mod shared;
mod stage;
mod stamp;
mod swarm;
mod target;
mod tun;
mod watch;

pub use compare::compare;
pub use devices::{DeviceCounts, DevicePlan, DeviceSwarm};
pub use progress::{Progress, ProgressLook, Quiet};
pub use report::{html, table};
pub use run::{Options, Report, run};
pub use scenario::{Kind, QUICK, Reference, Scenario, find, list};
pub use target::TargetChoice;
