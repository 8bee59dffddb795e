//! `tidegate request`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use client::Update;
use model::{Payload, Recipients, Request};

use crate::args::{Output, RequestArgs};
use crate::payload::{PayloadHint, check_hint, json_of, kind_of};
use crate::publish::{connect, failure_of};
use crate::usage::{check_filter, topic_of};
use crate::{Failure, Outcome, print_line};

/// How much longer than the server a client waits for what became of its request.
const GRACE: Duration = Duration::from_secs(5);

pub(crate) fn request(args: &RequestArgs) -> Outcome {
    let topic = topic_of(&args.topic)?;
    let bytes = args.data.as_bytes();
    let hint = if args.text { PayloadHint::Text } else { PayloadHint::None };
    check_hint(hint, &args.data, "ask")?;
    check_filter(args.filter.as_deref())?;
    let kind = kind_of(hint, bytes);
    let timeout = Duration::from_millis(args.timeout_ms);
    let filter = args.filter.as_deref().map(Into::into);
    let mut client = connect(&args.remote)?;
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
                print_answer(args.output, &response);
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

fn print_answer(output: Output, response: &model::Response) {
    let (kind, bytes) = (response.payload.kind(), response.payload.bytes());
    if !output.json {
        return print_line(&String::from_utf8_lossy(bytes));
    }
    let mut line = json_of(kind, bytes);
    line["from"] = (*response.session).into();
    print_line(&line.to_string());
}
