//! The scenarios: what each does, with what parameters, beside which reference.

mod c12m;
mod catalogue;
mod device_rpc;
mod durable;
mod floor;
mod idle;
mod large;
mod ping_pong;
mod reductions;
mod resume;
mod slow;
mod storm;
mod stream;

pub(crate) use catalogue::Reading;
pub use catalogue::{Kind, QUICK, Reference, Scenario, find, list};

use serde_json::Value;

use crate::run::Context;

/// Runs a scenario; answers its result as JSON.
pub(crate) fn run(context: &Context<'_>) -> Result<Value, String> {
    match context.scenario.kind {
        Kind::Stream => stream::run(context),
        Kind::PingPong => ping_pong::run(context),
        Kind::IdleMemory => idle::run(context),
        Kind::ReconnectStorm | Kind::Churn => storm::run(context),
        Kind::ResumeStorm | Kind::ResumeFromDisk => resume::run(context),
        Kind::SlowConsumers => slow::run(context),
        Kind::Millions => c12m::run(context),
        Kind::DurablePublish | Kind::DurableRestart => durable::run(context),
        Kind::Reductions => reductions::run(context),
        Kind::LargeAmongSmall => large::run(context),
        Kind::DeviceRpc => device_rpc::run(context),
        Kind::Floor => floor::run(context),
    }
}
