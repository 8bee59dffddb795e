//! `tidegate get`.

use std::time::{Duration, Instant};

use client::Update;
use model::{Selector, Start, Subscribe, SubscribeOptions, TopicName};

use crate::args::GetArgs;
use crate::http::{Api, encoded};
use crate::publish::{connect, failure_of};
use crate::usage::topic_of;
use crate::{Failure, Outcome, print_line};

pub(crate) fn get(args: &GetArgs) -> Outcome {
    let topic = topic_of(&args.topic)?;
    match args.wait_ms {
        0 => get_now(args, &topic),
        wait_ms => wait_for(args, &topic, Duration::from_millis(wait_ms)),
    }
}

fn get_now(args: &GetArgs, topic: &TopicName) -> Outcome {
    const NOT_FOUND: u16 = 404;
    let api = Api::new(&args.remote);
    let (status, text) = api.ask(&format!("/v1/topics/{}?raw", encoded(topic.as_str())))?;
    match status {
        200 => {
            print_line(&text);
            Ok(())
        }
        NOT_FOUND => {
            let (_, why) = api.refusal(status, &text);
            Err((Failure::Other, format!("{why}; --wait-ms 5000 waits for one")))
        }
        _ => Err(api.refusal(status, &text)),
    }
}

fn wait_for(args: &GetArgs, topic: &TopicName, time: Duration) -> Outcome {
    let mut client = connect(&args.remote)?;
    client.subscribe(Subscribe {
        subscription: None,
        selectors: vec![Selector::of_topic(topic)],
        start: Start::Snapshot,
        positions: Vec::new(),
        name: None,
        options: SubscribeOptions::default(),
    });
    let until = Instant::now() + time;
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
    let text = format!(
        "cannot get the value of `{topic}`: none came in {} ms; publish first, or wait longer",
        time.as_millis()
    );
    Err((Failure::Other, text))
}
