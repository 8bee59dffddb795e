//! `device-rpc`: applications ask devices that are attached over plain HTTP; heartbeats included.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::asking::{Asked, Asking, AskingPlan};
use crate::devices::{DevicePlan, DeviceSwarm};
use crate::progress::ProgressLook;
use crate::run::Context;
use crate::sample::{Cpu, Memory};
use crate::stage::latency_json;
use crate::target::{Needs, Target, get_with};

const DEVICE_KEY: &str = "bench-device-key-0123456789";
const ADMIN_KEY: &str = "bench-admin-key-0123456789";
/// Applications of the reference, each asking its own device.
const APPLICATIONS: usize = 4_000;
/// Applications that ask without a pause, to see how much one core can do.
const EAGER_APPLICATIONS: usize = 256;
const HEARTBEAT: Duration = Duration::from_secs(60);

pub(crate) fn run(context: &Context<'_>) -> Result<Value, String> {
    let sections = format!(
        "[[applications]]\nid = \"bench\"\npresence = false\n\
         [[applications.keys]]\nid = \"d\"\nkey = \"{DEVICE_KEY}\"\nroles = [\"device\"]\n\
         [[applications.keys]]\nid = \"a\"\nkey = \"{ADMIN_KEY}\"\nroles = [\"admin\"]\n"
    );
    let connections = context.clients + APPLICATIONS + 1_000;
    let needs = Needs { connections, sections, ..Needs::default() };
    let target = Target::start(context.target, &needs, &context.cores)?;
    let before = Memory::of(&target.processes);
    let plan = DevicePlan {
        address: target.address,
        devices: context.clients,
        application: "bench".into(),
        key: DEVICE_KEY.into(),
        answer_bytes: context.payload_bytes,
        heartbeat: HEARTBEAT,
        think: Duration::ZERO,
        cores: context.cores.load.clone(),
    };
    let began = Instant::now();
    let devices = DeviceSwarm::start(&plan);
    context.progress.phase("attaching", None);
    while devices.counts.attached.load(Ordering::Relaxed) < context.clients {
        if context.progress.is_interrupted() || began.elapsed() > Duration::from_secs(600) {
            let attached = devices.counts.attached.load(Ordering::Relaxed);
            return Err(format!(
                "{attached} of {} devices are attached; the rest did not come",
                context.clients
            ));
        }
        look(context, &devices, began, 0.0);
        std::thread::sleep(Duration::from_millis(500));
    }
    let attached_in = began.elapsed();
    std::thread::sleep(Duration::from_secs(2));
    let after = Memory::of(&target.processes);
    let pause = (Duration::from_secs(1), Duration::from_secs(3));
    let reference = ask(context, &target, &devices, (APPLICATIONS, pause, "as the reference"))?;
    let statistics = get_with(target.address, "/v1/applications/bench/stats", ADMIN_KEY)
        .ok()
        .and_then(|text| serde_json::from_str::<Value>(text.split_once("\r\n\r\n")?.1).ok());
    let eager = (EAGER_APPLICATIONS, (Duration::ZERO, Duration::ZERO), "without pauses");
    let eager = ask(context, &target, &devices, eager)?;
    let lost = devices.counts.lost.load(Ordering::Relaxed);
    let heartbeats = devices.counts.heartbeats.load(Ordering::Relaxed);
    devices.end()?;
    let each = |after: u64, before: u64| {
        (after.saturating_sub(before)) as f64 / context.clients.max(1) as f64
    };
    let is_valid = lost == 0 && reference["refused"] == 0 && eager["refused"] == 0;
    Ok(json!({
        "devices": context.clients,
        "attached_in_s": attached_in.as_secs_f64(),
        "user_bytes_per_device": each(after.anonymous, before.anonymous),
        "kernel_bytes_per_device_both_ends": each(after.slab, before.slab),
        "server_resident_mb": after.resident as f64 / 1e6,
        "heartbeats": heartbeats,
        "lost": lost,
        "reference_load": reference,
        "server_statistics": statistics,
        "saturation": eager,
        "is_valid": is_valid,
    }))
}

fn look(context: &Context<'_>, devices: &DeviceSwarm, began: Instant, per_second: f64) {
    context.progress.look(ProgressLook {
        live: devices.counts.attached.load(Ordering::Relaxed),
        clients: context.clients,
        messages_per_second: per_second,
        seconds: began.elapsed().as_secs_f64(),
    });
}

/// Lets applications ask for a while; the first two seconds warm up.
fn ask(
    context: &Context<'_>,
    target: &Target,
    devices: &DeviceSwarm,
    (applications, pause, name): (usize, (Duration, Duration), &str),
) -> Result<Value, String> {
    let seconds = context.seconds;
    context.progress.phase(name, Some(seconds));
    let applications = applications.min(context.clients);
    let asking = Asking::start(AskingPlan {
        address: target.address,
        applications,
        devices: context.clients,
        key: ADMIN_KEY.into(),
        pause,
        cores: context.cores.load.clone(),
    });
    std::thread::sleep(Duration::from_secs(3));
    asking.measure();
    let (began, cpu) = (Instant::now(), Cpu::of(&target.processes));
    let answered = || devices.counts.answered.load(Ordering::Relaxed);
    let first = answered();
    while began.elapsed() < Duration::from_secs(seconds) && !context.progress.is_interrupted() {
        std::thread::sleep(Duration::from_millis(500));
        look(context, devices, began, (answered() - first) as f64 / began.elapsed().as_secs_f64());
    }
    let (took, cost) = (began.elapsed().as_secs_f64(), Cpu::of(&target.processes).since(cpu));
    let Asked { latency, answered, refused, first_refusal } = asking.end()?;
    Ok(json!({
        "applications": applications,
        "requests_per_second": answered as f64 / took,
        "server_cores": cost.total_us() / 1e6 / took,
        "server_cpu_us_per_request": cost.total_us() / answered.max(1) as f64,
        "of_it_user_us": cost.user_us / answered.max(1) as f64,
        "refused": refused,
        "first_refusal": first_refusal,
        "application_latency_ms": latency_json(&latency, 1e6),
    }))
}
