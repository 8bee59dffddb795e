//! `tidegate request`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use client::Update;
use model::{Limits, Payload, Recipients, Request, TopicName};

use crate::args::{Remote, RequestArgs};
use crate::payload::{Said, json_of, kind_of};
use crate::publish::{connect, failure_of};
use crate::{Failure, Outcome, print_line};

/// How much longer than the server a client waits for what became of its request.
const GRACE: Duration = Duration::from_secs(5);

pub(crate) fn request(remote: &Remote, args: &RequestArgs) -> Outcome {
    let topic = TopicName::parse(&args.topic, &Limits::default())
        .map_err(|error| (Failure::Refused, error.to_string()))?;
    let bytes = args.data.as_bytes();
    let kind = kind_of(if args.text { Said::Text } else { Said::Nothing }, bytes);
    let timeout = Duration::from_millis(args.timeout_ms);
    let filter = args.filter.as_deref().map(Into::into);
    let mut client = connect(remote)?;
    client.request(Request {
        topic,
        payload: Arc::new(Payload::new(kind, bytes)),
        timeout,
        to: Recipients { filter, all: args.all, ..Recipients::default() },
        key: args.key.as_deref().map(Into::into),
    });
    let until = Instant::now() + timeout + GRACE;
    while let Some(update) = client.next(until) {
        match update {
            Update::Response(response) => {
                print_answer(remote, &response);
                if !response.has_more {
                    return Ok(());
                }
            }
            Update::Responded { missing: 0, .. } => return Ok(()),
            Update::Responded { missing, .. } => {
                let text = format!("{missing} of those who were asked did not answer in time");
                return Err((Failure::Other, text));
            }
            Update::Refused { refusal, .. } => return Err((Failure::Refused, refusal.to_string())),
            Update::Disconnected { why, .. } if args.key.is_some() => eprintln!("{why}"),
            Update::Disconnected { why, .. } => return Err((Failure::NoConnection, why)),
            Update::Stopped(error) => return Err(failure_of(&error)),
            _ => {}
        }
    }
    let text =
        "cannot tell what became of the request: the server did not answer in time; see its log";
    Err((Failure::Other, text.into()))
}

fn print_answer(remote: &Remote, response: &model::Response) {
    let (kind, bytes) = (response.payload.kind(), response.payload.bytes());
    if !remote.json {
        return print_line(&String::from_utf8_lossy(bytes));
    }
    let mut line = json_of(kind, bytes);
    line["from"] = (*response.session).into();
    print_line(&line.to_string());
}
