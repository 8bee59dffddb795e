//! Storms: half of the clients come back at once; connections close and open all the time. What do
//! the clients feel that are still being served, and is anything lost?

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::run::Context;
use crate::scenario::Kind;
use crate::stage::Stage;
use crate::swarm::Behaviour;
use crate::target::Needs;

const CHURN_PER_SECOND: u32 = 100;

pub(crate) fn run(context: &Context<'_>) -> Result<Value, String> {
    // History that covers the time a client is away.
    let needs = Needs {
        sections: "[[topics]]\nselector = \"#\"\nhistory_count = 1000\n".into(),
        connections: context.clients * 2,
        ..Needs::default()
    };
    let mut stage = Stage::set(context, &["before", "during", "after"], needs)?;
    let half = context.clients / 2;
    stage.connect(0..half, 0, Behaviour::Steady)?;
    stage.connect(half..context.clients, 0, Behaviour::ComesAndGoes)?;
    // The histograms are of those that stay; the others' waiting is no latency of delivery.
    stage.publish();
    let third = Duration::from_secs(context.seconds);
    stage.note_cost();
    stage.measure(1, third);
    match context.scenario.kind {
        Kind::Churn => churn(&mut stage, third),
        _ => storm(&mut stage, third)?,
    }
    stage.measure(3, third);
    stage.note_cost();
    stage.await_live(context.clients, Duration::from_secs(30))?;
    stage.end(true)
}

fn churn(stage: &mut Stage<'_>, length: Duration) {
    stage.fact("closes_and_opens_per_second", CHURN_PER_SECOND);
    stage.swarms[1].orders.churn_per_second.store(CHURN_PER_SECOND, Ordering::Relaxed);
    stage.measure(2, length);
    stage.swarms[1].orders.churn_per_second.store(0, Ordering::Relaxed);
}

fn storm(stage: &mut Stage<'_>, length: Duration) -> Result<(), String> {
    let clients = stage.context.clients;
    let began = Instant::now();
    stage.shared.enter(2);
    stage.swarms[1].orders.storms.fetch_add(1, Ordering::Relaxed);
    // First they must have gone.
    while stage.shared.live() > clients - clients / 4 && began.elapsed() < length {
        std::thread::sleep(Duration::from_millis(1));
    }
    stage.await_live(clients, length.max(Duration::from_secs(60)))?;
    let seconds = began.elapsed().as_secs_f64();
    stage.shared.enter(0);
    let back = clients - clients / 2;
    stage.fact("clients_that_came_back", back);
    stage.fact("seconds_until_all_were_back", seconds);
    stage.fact("reconnects_per_second", back as f64 / seconds);
    Ok(())
}
