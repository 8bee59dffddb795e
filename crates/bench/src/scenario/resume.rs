//! `resume-storm`: most of the clients were away and come back at once, each with its positions; every one
//! gets what it missed, from memory or from the disk. What do those feel that stayed?

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::run::Context;
use crate::scenario::Kind;
use crate::scenario::durable::Folder;
use crate::stage::Stage;
use crate::swarm::Behaviour;
use crate::target::Needs;

/// Messages that each of them misses.
const MISSED: f64 = 100.0;

pub(crate) fn run(context: &Context<'_>) -> Result<Value, String> {
    let folder = Folder::new();
    let memory_count = match context.scenario.kind {
        Kind::ResumeFromDisk => 1,
        _ => 1_000,
    };
    let needs = Needs {
        sections: format!(
            "[store]\npath = \"{}\"\n[[topics]]\nselector = \"#\"\nack = \"disk\"\n\
             history_count = 1000\nmemory_count = {memory_count}\n",
            folder.0.display()
        ),
        connections: context.clients * 2,
        ..Needs::default()
    };
    let mut stage = Stage::set(context, &["before", "during", "after"], needs)?;
    let stay = (context.clients / 6).max(1);
    let back = context.clients - stay;
    stage.connect(0..stay, 0, Behaviour::Steady)?;
    stage.connect(stay..context.clients, 0, Behaviour::ComesAndGoes)?;
    stage.publish();
    stage.swarms[1].orders.is_away.store(true, Ordering::Relaxed);
    let per_topic = context.pace.per_second(context.topics) / context.topics as f64;
    stage.pass("some are away", Duration::from_secs_f64(MISSED / per_topic));
    let third = Duration::from_secs(context.seconds);
    stage.note_cost();
    stage.measure(1, third);
    stage.shared.enter(2);
    let (began, delivered) = (Instant::now(), stage.shared.delivered());
    stage.swarms[1].orders.is_away.store(false, Ordering::Relaxed);
    stage.await_live(context.clients, Duration::from_secs(120))?;
    let all_subscribed = began.elapsed();
    while stage.shared.caught_up.load(Ordering::Relaxed) < back {
        if began.elapsed() > Duration::from_secs(180) {
            let done = stage.shared.caught_up.load(Ordering::Relaxed);
            return Err(format!("only {done} of {back} clients caught up within 180 s"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let all_caught_up = began.elapsed();
    let resumed = stage.shared.delivered() - delivered;
    stage.shared.enter(0);
    stage.measure(3, third);
    stage.note_cost();
    let missed = MISSED + per_topic * context.seconds as f64;
    stage.fact("clients_that_stayed", stay);
    stage.fact("clients_that_came_back", back);
    stage.fact("missed_by_each_about", missed);
    stage.fact("seconds_until_all_were_subscribed", all_subscribed.as_secs_f64());
    stage.fact("seconds_until_all_had_caught_up", all_caught_up.as_secs_f64());
    stage.fact("delivered_meanwhile", resumed);
    stage.end(true)
}
