//! `tidegate sub`.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use client::{Client, Message, Update};
use model::{
    CommandId, Conflation, DeltaKind, Position, Rates, Selector, Stamps, Start, Subscribe,
    SubscribeOptions, SubscriberName, TopicName,
};

use crate::args::SubArgs;
use crate::payload::{json_of, json_of_headers};
use crate::publish::{connect_with, failure_of};
use crate::usage::{check_filter, selector_of, wrong};
use crate::{Failure, Outcome, print_line};

pub(crate) fn subscribe(args: &SubArgs) -> Outcome {
    let selectors: Vec<Selector> =
        args.selectors.iter().map(|text| selector_of(text)).collect::<Result<_, _>>()?;
    check_filter(args.filter.as_deref())?;
    let name = args.name.as_deref().map(name_of).transpose()?;
    let usual = if name.is_some() { "all" } else { "snapshot" };
    let start = start_of(args.from.as_deref().unwrap_or(usual))?;
    let (positions, options) = (Vec::new(), options_of(args)?);
    let rates = Rates { bytes: args.bytes_per_second, messages: args.messages_per_second };
    let mut client = connect_with(&args.remote, rates)?;
    let mut hint = (std::io::stderr().is_terminal() && !args.output.json)
        .then(|| (Instant::now() + HINT_AFTER, hint_of(&selectors, &start)));
    client.subscribe(Subscribe {
        subscription: None,
        selectors,
        start,
        positions,
        name: name.clone(),
        options,
    });
    let mut printed = name.map(Printed::new);
    let mut left = args.count.unwrap_or(u64::MAX);
    while left > 0 {
        let patience = match &printed {
            Some(printed) if !printed.is_acknowledged() => ACKNOWLEDGE_EVERY,
            _ => Duration::from_secs(3600),
        };
        let until = Instant::now() + patience;
        let until = hint.as_ref().map_or(until, |(at, _)| until.min(*at));
        let update = client.next(until);
        if update.is_none()
            && let Some((_, text)) = hint.take_if(|(at, _)| Instant::now() >= *at)
        {
            eprintln!("{text}");
        }
        match update {
            Some(Update::Message { message, .. }) => {
                left -= 1;
                hint = None;
                print_line(&line_of(&message, args.output.json, args.headers));
                if let Some(printed) = &mut printed {
                    printed.note(message);
                }
            }
            Some(Update::Refused { refusal, .. } | Update::Ended { refusal, .. }) => {
                return Err((Failure::Refused, refusal.to_string()));
            }
            Some(Update::Stopped(error)) => return Err(failure_of(&error)),
            Some(Update::Gap { gap, .. }) => {
                let from = gap.from.map_or("?".into(), |from| from.to_string());
                let (topic, to, reason) = (&gap.topic, gap.to, gap.reason.name());
                eprintln!("gap in {topic}: {from} to {to} cannot be had any more ({reason})");
            }
            Some(Update::Disconnected { why, pause }) => {
                eprintln!("{why}; next attempt in {} ms", pause.as_millis());
            }
            Some(Update::Lag(0)) => eprintln!("up to date again"),
            Some(Update::Lag(ms)) => eprintln!("{ms} ms behind"),
            Some(Update::Resumed { topic, recovered, .. }) => {
                let how = if recovered { "everything follows" } else { "with a gap" };
                eprintln!("resumed {topic}: {how}");
            }
            Some(_) | None => {}
        }
        if let Some(printed) = &mut printed {
            printed.acknowledge(&mut client, ACKNOWLEDGE_EVERY);
        }
    }
    printed.map_or(Ok(()), |printed| printed.finish(&mut client))
}

/// How long nothing may come before a user at a terminal is told what is waited for.
const HINT_AFTER: Duration = Duration::from_millis(700);

/// The reason why nothing arrives yet, for the user.
fn hint_of(selectors: &[Selector], start: &Start) -> String {
    let names: Vec<String> = selectors.iter().map(|it| format!("`{it}`")).collect();
    let what = match start {
        Start::Now => "waiting for what is published from now on",
        _ => "nothing is published there yet, or nothing that is let through; waiting",
    };
    let plain = |it: &&Selector| it.as_str().contains(['*', '>', '?']);
    let slip = selectors.iter().find(plain).map_or(String::new(), |it| {
        format!("\n`{it}` has no wildcards: these are + for one level and # for the rest, such as 'a/+' or 'a/#'")
    });
    format!("subscribed to {}: {what} (Ctrl-C ends){slip}", names.join(", "))
}

/// How often a named subscriber tells the server how far it came.
const ACKNOWLEDGE_EVERY: Duration = Duration::from_millis(200);

/// How far a named subscriber came, and what of it the server does not know yet.
struct Printed {
    name: SubscriberName,
    news: BTreeMap<TopicName, Position>,
    told_at: Instant,
}

impl Printed {
    fn new(name: SubscriberName) -> Self {
        Self { name, news: BTreeMap::new(), told_at: Instant::now() }
    }

    fn note(&mut self, message: Message) {
        let Message { topic, epoch, sequence, .. } = message;
        self.news.insert(topic, Position { epoch, sequence });
    }

    fn is_acknowledged(&self) -> bool {
        self.news.is_empty()
    }

    fn acknowledge(&mut self, client: &mut Client, every: Duration) -> Option<CommandId> {
        if self.news.is_empty() || self.told_at.elapsed() < every {
            return None;
        }
        self.told_at = Instant::now();
        let news = std::mem::take(&mut self.news).into_iter().collect();
        Some(client.acknowledge(self.name.clone(), news))
    }

    /// Tells the rest, and waits until it is on the server's disk.
    fn finish(mut self, client: &mut Client) -> Outcome {
        const PATIENCE: Duration = Duration::from_secs(10);
        let Some(last) = self.acknowledge(client, Duration::ZERO) else { return Ok(()) };
        let until = Instant::now() + PATIENCE;
        while let Some(update) = client.next(until) {
            match update {
                Update::Acknowledged { id } if id == last => return Ok(()),
                Update::Refused { id, refusal } if id == Some(last) => {
                    return Err((Failure::Refused, refusal.to_string()));
                }
                _ => {}
            }
        }
        let text = "cannot tell whether the last position is remembered: no answer in 10 s; what was \
                    printed last may come again under this name";
        Err((Failure::NoConnection, text.into()))
    }
}

fn name_of(text: &str) -> Result<SubscriberName, (Failure, String)> {
    SubscriberName::parse(text).ok_or_else(|| {
        wrong(format!("cannot subscribe as `{text}`: a name has 1 to 64 of A-Z a-z 0-9 . _ -"))
    })
}

fn options_of(args: &SubArgs) -> Result<SubscribeOptions, (Failure, String)> {
    let refused = |option: &str, given: &str, known: &str| {
        wrong(format!("cannot use `{given}` for {option}: say {known}"))
    };
    let (conflation, delta) = (&args.conflation, &args.delta);
    Ok(SubscribeOptions {
        conflation: Conflation::from_name(conflation).ok_or_else(|| {
            refused("--conflation", conflation, "off, lagging, always or unsubscribe")
        })?,
        interval: Duration::from_millis(args.interval_ms),
        priority: 0,
        delta: DeltaKind::from_name(delta)
            .ok_or_else(|| refused("--delta", delta, "none, vcdiff or json-patch"))?,
        filter: args.filter.as_deref().map(Into::into),
        stamps: Stamps { time: args.time, principal: args.principal },
        is_resumable: false,
    })
}

fn start_of(text: &str) -> Result<Start, (Failure, String)> {
    let last = text.strip_prefix("last:").and_then(|count| count.parse().ok());
    match (text, last) {
        ("snapshot", _) => Ok(Start::Snapshot),
        ("now", _) => Ok(Start::Now),
        ("all", _) => Ok(Start::All),
        (_, Some(count)) => Ok(Start::Last(count)),
        _ => {
            let why = "it means nothing; say snapshot, now, all or last:10";
            Err(wrong(format!("cannot start from `{text}`: {why}")))
        }
    }
}

fn line_of(message: &Message, is_json: bool, has_headers: bool) -> String {
    let Message { topic, sequence, kind, payload, headers, time_ms, principal, .. } = message;
    let told = json_of_headers(Some(headers));
    if !is_json {
        let mut line = format!("{topic} {sequence}");
        line.extend(time_ms.iter().map(|time_ms| format!(" {time_ms}")));
        line.extend(principal.iter().map(|name| format!(" {name}")));
        line.extend(told.iter().filter(|_| has_headers).map(|told| format!(" {told}")));
        return format!("{line} {}", String::from_utf8_lossy(payload));
    }
    let mut line = json_of(*kind, payload);
    line["topic"] = topic.as_str().into();
    line["sequence"] = sequence.get().into();
    if let Some(headers) = told {
        line["headers"] = headers;
    }
    if let Some(time_ms) = time_ms {
        line["time_ms"] = (*time_ms).into();
    }
    if let Some(principal) = principal {
        line["principal"] = (**principal).into();
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
        assert!(start_of("last:x").is_err_and(|(failure, _)| failure == Failure::Usage));
    }
}
