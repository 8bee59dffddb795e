//! `slow-consumers`: 1 client in 10 stops reading. The others must not notice, the server must not grow,
//! and the slow ones must miss nothing unannounced when they read on.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};

use crate::run::Context;
use crate::sample::Memory;
use crate::stage::Stage;
use crate::swarm::Behaviour;
use crate::target::Needs;

pub(crate) fn run(context: &Context<'_>) -> Result<Value, String> {
    // History that covers the stall, so that nothing may be missing afterwards.
    let needed = context.pace.per_second(context.topics) / context.topics as f64
        * (context.seconds * 3) as f64;
    let needs = Needs {
        sections: format!(
            "[[topics]]\nselector = \"#\"\nhistory_count = {}\n",
            needed as u64 + 100
        ),
        ..Needs::default()
    };
    let mut stage = Stage::set(context, &["before", "during", "after"], needs)?;
    let slow = (context.clients / 10).max(1);
    stage.connect(slow..context.clients, 0, Behaviour::Steady)?;
    stage.connect(0..slow, 0, Behaviour::Stalls)?;
    stage.publish();
    let length = Duration::from_secs(context.seconds);
    stage.note_cost();
    stage.measure(1, length);
    let resident_before = Memory::of(&stage.target.processes).resident;
    stage.swarms[1].orders.is_reading.store(false, Ordering::Relaxed);
    stage.measure(2, length);
    let resident_during = Memory::of(&stage.target.processes).resident;
    let stalls = stage.target.counter("tidegate_stalls_total");
    if stalls.is_some_and(|stalls| stalls < slow as u64) {
        return Err(
            "the server noticed no stall of the slow clients: measure longer (--duration)".into()
        );
    }
    // What the slow ones catch up with is old on arrival: that is not what the others feel.
    stage.swarms[1].orders.is_reading.store(true, Ordering::Relaxed);
    stage.pass("catching up", Duration::from_secs(3));
    stage.measure(3, length);
    stage.note_cost();
    let history_bytes = stage.target.counter("tidegate_history_bytes");
    stage.fact("slow_clients", slow);
    stage.fact("stalls", json!(stalls));
    stage.fact("history_bytes", json!(history_bytes));
    stage.fact("resident_bytes_before", resident_before);
    stage.fact("resident_bytes_during", resident_during);
    stage.end(true)
}
