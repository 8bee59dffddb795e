//! `tidegate devices simulate`.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bench::{DevicePlan, DeviceSwarm};

use crate::args::{DevicesArgs, DevicesVerb, SimulateArgs};
use crate::{Failure, Outcome, print_line};

pub(crate) fn devices(args: &DevicesArgs) -> Outcome {
    match &args.verb {
        DevicesVerb::Simulate(simulate) => self::simulate(simulate),
    }
}

/// Attaches devices that answer what they are asked, and tells each second how they are.
fn simulate(args: &SimulateArgs) -> Outcome {
    engine::raise_descriptor_limit();
    let plan = DevicePlan {
        address: address_of(&args.remote.server)?,
        devices: args.count,
        application: args.application.clone(),
        key: args.key.clone(),
        answer_bytes: args.answer_bytes,
        heartbeat: Duration::from_millis(args.heartbeat_ms),
        think: Duration::from_millis(args.think_ms),
        cores: Vec::new(),
    };
    let swarm = DeviceSwarm::start(&plan);
    let (began, mut before) = (Instant::now(), 0);
    let is_over =
        || args.seconds.is_some_and(|seconds| began.elapsed() >= Duration::from_secs(seconds));
    while !is_over() && !swarm.has_failed() {
        std::thread::sleep(Duration::from_secs(1));
        let counts = &swarm.counts;
        let answered = counts.answered.load(Ordering::Relaxed);
        print_line(&format!(
            "{} of {} attached, {} answers a second, {} heartbeats, {} attachments lost",
            counts.attached.load(Ordering::Relaxed),
            args.count,
            answered - before,
            counts.heartbeats.load(Ordering::Relaxed),
            counts.lost.load(Ordering::Relaxed),
        ));
        before = answered;
    }
    swarm.end().map_err(|text| (Failure::NoConnection, text))
}

fn address_of(url: &str) -> Result<SocketAddr, (Failure, String)> {
    let host = url.split_once("://").map_or(url, |(_, rest)| rest);
    let host = host.split('/').next().unwrap_or(host);
    let cannot = |why: String| {
        let text =
            format!("cannot attach devices to {url}: {why}; give such as http://127.0.0.1:8470");
        (Failure::NoConnection, text)
    };
    let mut found = host.to_socket_addrs().map_err(|error| cannot(error.to_string()))?;
    found.find(SocketAddr::is_ipv4).ok_or_else(|| cannot("it has no IPv4 address".into()))
}
