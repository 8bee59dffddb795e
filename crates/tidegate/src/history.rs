//! `tidegate history`.

use std::time::{Duration, UNIX_EPOCH};

use client::Update;
use model::{HistoryQuery, HistoryStart, Publication, Sequence};

use crate::args::HistoryArgs;
use crate::payload::{json_of, json_of_headers};
use crate::publish::{connect, failure_of};
use crate::usage::{topic_of, wrong};
use crate::{Failure, Outcome, print_line};

/// How long an answer may take.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// Publications that are asked for at a time.
const PAGE_LEN: u64 = 100;
/// Of those that `--last` did not name.
const USUAL: u64 = 10;

pub(crate) fn history(args: &HistoryArgs) -> Outcome {
    let topic = topic_of(&args.topic)?;
    let sequence = |number: u64| {
        Sequence::new(number).ok_or_else(|| {
            wrong(format!(
                "cannot continue after {number}: it is not a sequence; sequences are below 2^53"
            ))
        })
    };
    let mut start = match (args.after, args.since) {
        (Some(after), _) => HistoryStart::After(sequence(after)?),
        (None, Some(since)) => HistoryStart::Since(since),
        (None, None) => HistoryStart::Last(args.last.unwrap_or(USUAL)),
    };
    let mut left = match start {
        HistoryStart::Last(count) => count.min(args.limit),
        _ => args.limit,
    };
    let mut client = connect(&args.remote)?;
    let mut is_empty = true;
    while left > 0 {
        let limit = usize::try_from(left.min(PAGE_LEN)).unwrap_or(usize::MAX);
        let id = client.history(HistoryQuery { topic: topic.clone(), start, limit });
        let page = loop {
            match client.next(std::time::Instant::now() + ANSWER_MAX) {
                Some(Update::History { id: of, page, .. }) if of == id => break page,
                Some(Update::Refused { refusal, .. }) => {
                    return Err((Failure::Refused, refusal.to_string()));
                }
                Some(Update::Disconnected { why, .. }) => return Err((Failure::NoConnection, why)),
                Some(Update::Stopped(error)) => return Err(failure_of(&error)),
                Some(_) => {}
                None => {
                    let text = "the server did not answer in time; see its log".to_owned();
                    return Err((Failure::Other, text));
                }
            }
        };
        let first = page.publications.first().map(Publication::sequence);
        if let (HistoryStart::After(_), Some(first)) = (&start, first)
            && page.after.next() < first
        {
            eprintln!("{} to {} are not kept any more", page.after.next(), first.get() - 1);
        }
        for publication in &page.publications {
            is_empty = false;
            print_line(&line_of(args, publication));
        }
        left = left.saturating_sub(page.publications.len() as u64);
        match page.publications.last().map(Publication::sequence) {
            Some(last) if last < page.position.sequence => start = HistoryStart::After(last),
            _ => break,
        }
    }
    if is_empty && !args.output.json {
        eprintln!("nothing is kept of `{topic}` there");
    }
    Ok(())
}

fn line_of(args: &HistoryArgs, publication: &Publication) -> String {
    let (sequence, unix_ms) = (publication.sequence(), publication.unix_ms());
    if args.output.json {
        let mut line = json_of(publication.kind(), publication.payload());
        line["topic"] = args.topic.as_str().into();
        line["sequence"] = sequence.get().into();
        line["time_ms"] = unix_ms.into();
        if let Some(headers) = json_of_headers(publication.headers().as_ref()) {
            line["headers"] = headers;
        }
        if let Some(principal) = publication.principal() {
            line["principal"] = principal.into();
        }
        return line.to_string();
    }
    let at = humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(unix_ms));
    format!("{at} {sequence} {}", String::from_utf8_lossy(publication.payload()))
}
