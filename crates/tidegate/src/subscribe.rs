//! `tidegate sub`.

use std::time::{Duration, Instant};

use client::{Message, Update};
use model::{Limits, PayloadKind, Selector, Start, Subscribe, SubscribeOptions};
use serde_json::json;

use crate::args::{Remote, SubArgs};
use crate::publish::connect;
use crate::{Failure, Outcome, print_line};

pub(crate) fn subscribe(remote: &Remote, args: &SubArgs) -> Outcome {
    let selectors = args
        .selectors
        .iter()
        .map(|text| Selector::parse(text, &Limits::default()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| (Failure::Refused, error.to_string()))?;
    let start = start_of(&args.from)?;
    let mut client = connect(remote)?;
    let options = SubscribeOptions::default();
    client.subscribe(Subscribe { selectors, start, positions: Vec::new(), options });
    let mut left = args.count.unwrap_or(u64::MAX);
    while left > 0 {
        match client.next(Instant::now() + Duration::from_secs(3600)) {
            Some(Update::Message(message)) => {
                left -= 1;
                print_line(&line_of(&message, remote.json));
            }
            Some(Update::Refused { refusal, .. }) => {
                return Err((Failure::Refused, refusal.to_string()));
            }
            Some(Update::Gap(gap)) => {
                let from = gap.from.map_or("?".into(), |from| from.to_string());
                let (topic, to, reason) = (&gap.topic, gap.to, gap.reason.name());
                eprintln!("gap in {topic}: {from} to {to} cannot be had any more ({reason})");
            }
            Some(Update::Disconnected { why, pause }) => {
                eprintln!("{why}; next attempt in {} ms", pause.as_millis());
            }
            Some(Update::Resumed { topic, recovered }) => {
                let how = if recovered { "everything follows" } else { "with a gap" };
                eprintln!("resumed {topic}: {how}");
            }
            Some(Update::Published { .. }) | None => {}
        }
    }
    Ok(())
}

fn start_of(text: &str) -> Result<Start, (Failure, String)> {
    let last = text.strip_prefix("last:").and_then(|count| count.parse().ok());
    match (text, last) {
        ("snapshot", _) => Ok(Start::Snapshot),
        ("now", _) => Ok(Start::Now),
        (_, Some(count)) => Ok(Start::Last(count)),
        _ => {
            let text = format!(
                "cannot start from `{text}`: it means nothing; say snapshot, now or last:10"
            );
            Err((Failure::Refused, text))
        }
    }
}

fn line_of(message: &Message, is_json: bool) -> String {
    let Message { topic, sequence, kind, payload } = message;
    let text = String::from_utf8_lossy(payload);
    if !is_json {
        return format!("{topic} {sequence} {text}");
    }
    let mut line = json!({ "topic": topic.as_str(), "sequence": sequence.get() });
    match kind {
        PayloadKind::Json => {
            line["data"] = serde_json::from_slice(payload).unwrap_or(serde_json::Value::Null);
        }
        PayloadKind::Text => line["text"] = text.into(),
        PayloadKind::Bytes => line["bytes"] = payload.clone().into(),
    }
    line.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_are_read() {
        assert_eq!(start_of("last:3"), Ok(Start::Last(3)));
        assert_eq!(start_of("now"), Ok(Start::Now));
        assert!(start_of("last:x").is_err_and(|(failure, _)| failure == Failure::Refused));
    }
}
