//! `idle-memory`: what an idle session costs.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::publisher::await_true;
use crate::report::ScenarioOptions;
use crate::sample::Memory;
use crate::swarm::{Shared, Swarm, TopicsOf};
use crate::target::Target;

/// Sessions with one subscription each, on a shared topic or on one of their own.
pub(crate) fn idle_memory(options: &ScenarioOptions) -> Result<Value, String> {
    let target = Target::start(options.clients + 10, "")?;
    let shared = Shared::new();
    let is_own = options.own_topic;
    let topics_of: TopicsOf = Arc::new(move |client| match is_own {
        true => format!("[\"bench/subject/{client:07}\"]"),
        false => "[\"bench/shared\"]".into(),
    });
    let before = Memory::of(target.pid());
    let began = Instant::now();
    let swarm = Swarm::start(options.clients, 0, target.address, &topics_of, &shared);
    let patience = Duration::from_secs(60 + options.clients as u64 / 1_000);
    await_true("subscribing", patience, || {
        shared.subscribed.load(Ordering::Relaxed) == options.clients
    })?;
    let seconds = began.elapsed().as_secs_f64();
    // Lets the server free what opening took.
    std::thread::sleep(Duration::from_secs(2));
    let after = Memory::of(target.pid());
    let sessions = target.counter("tidegate_sessions");
    shared.is_over.store(true, Ordering::Relaxed);
    let findings = swarm.join()?;
    let each = |before: u64, after: u64| (after as f64 - before as f64) / options.clients as f64;
    Ok(json!({
        "clients": options.clients,
        "sessions_at_server": sessions,
        "shards": target.shards,
        "connects_per_second": options.clients as f64 / seconds,
        "user_bytes_per_session": each(before.anonymous, after.anonymous),
        "resident_bytes_per_session": each(before.resident, after.resident),
        "kernel_slab_bytes_per_socket": each(before.slab, after.slab) / 2.0,
        "note": "the kernel holds two sockets per session here, one for each end",
        "closed": findings.closed,
        "is_valid": findings.closed == 0 && sessions == options.clients as u64,
    }))
}
