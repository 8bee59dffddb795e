//! `c12m`: millions of clients, each with a topic of its own, over a TUN device in a namespace of the run's
//! own; without root, as many as kernel sockets allow.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use engine::open_tun;
use serde_json::{Value, json};

use crate::run::Context;
use crate::stage::Stage;
use crate::swarm::Behaviour;
use crate::swarm::PER_TABLE;
use crate::target::{Needs, TargetChoice};
use crate::tun::{DEVICE, Namespace, SERVER, TunPlan, TunSwarm};

const PORT: u16 = 8470;

pub(crate) fn run(context: &Context<'_>) -> Result<Value, String> {
    if *context.target == TargetChoice::Own {
        match Namespace::enter(context.clients, &context.cores.server) {
            Ok(namespace) => return over_tun(context, namespace),
            Err(why) => {
                context.progress.note(&format!("kernel sockets instead of a TUN device: {why}"))
            }
        }
    }
    over_sockets(context)
}

/// The namespace goes when the run ends, however it ends.
fn over_tun(context: &Context<'_>, _namespace: Namespace) -> Result<Value, String> {
    let listen = SocketAddr::new(IpAddr::V4(SERVER), PORT);
    // Chance fills shards unevenly: some room in each.
    let per_shard = PER_TABLE - 1_000;
    let needs = Needs {
        listen: Some(listen),
        connections: context.clients.div_ceil(per_shard) * PER_TABLE,
        sections: "[[topics]]\nselector = \"#\"\nretain = false\nhistory_count = 0\n".into(),
        ..Needs::default()
    };
    let mut stage = Stage::set(context, &["steady"], needs)?;
    let device = open_tun(DEVICE).map_err(|error| format!("cannot open {DEVICE}: {error}"))?;
    let plan = TunPlan {
        clients: context.clients,
        server_port: PORT,
        dialect: Arc::clone(&stage.target.dialect),
        cores: context.cores.load.clone(),
    };
    let began = std::time::Instant::now();
    let swarm = TunSwarm::start(plan, device, &stage.shared);
    context.progress.phase("connecting", None);
    stage.await_live(context.clients, Duration::from_secs(120 + context.clients as u64 / 5_000))?;
    let connects_per_second = context.clients as f64 / began.elapsed().as_secs_f64();
    stage.fact("connects_per_second", connects_per_second);
    stage.fact("driver", "a TUN device: one kernel socket for each connection, the server's");
    finish(stage, context, Some(swarm))
}

fn over_sockets(context: &Context<'_>) -> Result<Value, String> {
    let needs = Needs {
        sections: "[[topics]]\nselector = \"#\"\nretain = false\nhistory_count = 0\n".into(),
        ..Needs::default()
    };
    let mut stage = Stage::set(context, &["steady"], needs)?;
    stage.connect(0..context.clients, 0, Behaviour::Steady)?;
    stage.fact("driver", "kernel sockets at both ends");
    finish(stage, context, None)
}

fn finish(
    mut stage: Stage<'_>,
    context: &Context<'_>,
    swarm: Option<TunSwarm>,
) -> Result<Value, String> {
    let idle = stage.memory_so_far();
    stage.fact("idle_user_bytes_per_connection", json!(idle.0));
    stage.fact("idle_kernel_slab_bytes_per_connection", json!(idle.1));
    stage.publish();
    stage.note_cost();
    stage.measure(1, Duration::from_secs(context.seconds));
    stage.note_cost();
    stage.tun = swarm;
    stage.end(true)
}
