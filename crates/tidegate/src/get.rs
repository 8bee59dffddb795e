//! `tidegate get`.

use std::time::{Duration, Instant};

use client::Update;
use model::{Selector, Start, Subscribe, SubscribeOptions};

use crate::args::GetArgs;
use crate::publish::{connect, failure_of};
use crate::usage::topic_of;
use crate::{Failure, Outcome, print_line};

/// How long a value may take to come.
const VALUE_MAX: Duration = Duration::from_secs(2);

pub(crate) fn get(args: &GetArgs) -> Outcome {
    let topic = topic_of(&args.topic)?;
    let mut client = connect(&args.remote)?;
    client.subscribe(Subscribe {
        selectors: vec![Selector::of_topic(&topic)],
        start: Start::Snapshot,
        positions: Vec::new(),
        name: None,
        options: SubscribeOptions::default(),
    });
    let until = Instant::now() + VALUE_MAX;
    while let Some(update) = client.next(until) {
        match update {
            Update::Message { message, .. } => {
                print_line(&String::from_utf8_lossy(&message.payload));
                return Ok(());
            }
            Update::Ended { refusal, .. } => return Err((Failure::Refused, refusal.to_string())),
            Update::Disconnected { why, .. } => return Err((Failure::NoConnection, why)),
            Update::Stopped(error) => return Err(failure_of(&error)),
            _ => {}
        }
    }
    let text = format!("cannot get the value of `{topic}`: nothing is kept there; publish first");
    Err((Failure::Other, text))
}
