//! The live feed: real readings of this machine, and a synthetic market.

mod host;
mod market;

use std::time::{Duration, Instant};

use client::Update;
use model::{Draft, Limits, Payload, PayloadKind, TopicName};

use crate::args::Remote;
use crate::publish::{connect, failure_of};
use crate::{Failure, Outcome};

/// The market moves in so many steps a second; each moves a part of the symbols.
const STEPS_PER_SECOND: u32 = 100;
/// Steps between two readings of the host: 4 a second.
const HOST_EVERY: u64 = 25;

/// Publishes until the connection is refused; breaks are mended by the client.
pub(crate) fn feed(remote: &Remote) -> Outcome {
    let mut client = connect(remote)?;
    let mut market = market::Market::new(engine::random_seed());
    let mut host = host::Host::new();
    let (began, pause) = (Instant::now(), Duration::from_secs(1) / STEPS_PER_SECOND);
    for step in 0u64.. {
        let mut drafts = market.step(step, unix_ms());
        if step.is_multiple_of(HOST_EVERY) {
            drafts.extend(host.read());
        }
        client.publish_unacknowledged(drafts.into_iter().filter_map(draft_of));
        // Open loop: a late step does not push back the next.
        let next = began + pause * u32::try_from(step + 1).unwrap_or(u32::MAX);
        while let Some(update) = client.next(next) {
            match update {
                Update::Refused { refusal, .. } => {
                    return Err((Failure::Refused, refusal.to_string()));
                }
                Update::Disconnected { why, .. } => eprintln!("tidegate: feed: {why}"),
                Update::Stopped(error) => return Err(failure_of(&error)),
                _ => {}
            }
        }
    }
    Ok(())
}

fn unix_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(0))
}

/// One reading: a topic and its JSON. Names that are no topics (a device called `a//b`) are left out.
type Reading = (String, serde_json::Value);

fn draft_of((topic, value): Reading) -> Option<Draft> {
    let topic = TopicName::parse(&topic, &Limits::default()).ok()?;
    let payload = Payload::new(PayloadKind::Json, value.to_string().as_bytes());
    Some(Draft { topic, payload, idempotency_key: None, expected: None })
}
