//! `idle-memory`: what an idle session costs.

use std::time::Duration;

use serde_json::{Value, json};

use crate::run::Context;
use crate::stage::Stage;
use crate::swarm::Behaviour;
use crate::target::Needs;

/// Sessions with one subscription each, on a shared topic or on one of their own.
pub(crate) fn run(context: &Context<'_>) -> Result<Value, String> {
    let mut stage = Stage::set(context, &["idle"], Needs::default())?;
    stage.connect(0..context.clients, 0, Behaviour::Steady)?;
    // Lets the server free what opening took.
    stage.pass("settling", Duration::from_secs(2));
    let sessions = stage.target.counter("tidegate_sessions");
    stage.fact("sessions_at_server", json!(sessions));
    stage.end(true)
}
