//! `GET /v1/history/{topic}`: kept publications by position, the last N, or since a time, in pages.

use std::iter::once;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;
use model::{Code, HistoryPage, HistoryStart, Publication, Refusal, Selector, Sequence, TopicName};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::asked::{Asked, SHARD_ANSWER_MAX, TopicOf};
use crate::error::{ApiError, no_answer};
use crate::members::members_of;
use crate::pieces::{Part, json_of, opened};
use crate::question::{Question, Shards};
use crate::topics::{bytes_told, check_read};

#[derive(Debug, Deserialize)]
pub(crate) struct HistoryQuery {
    after: Option<u64>,
    before: Option<u64>,
    last: Option<u64>,
    since: Option<u64>,
    limit: Option<usize>,
    order: Option<String>,
}

pub(crate) async fn history(
    State(shards): State<Arc<dyn Shards>>,
    TopicOf(topic): TopicOf,
    Asked(query): Asked<HistoryQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    const PAGE_LEN: usize = 100;
    let limits = shards.limits();
    check_read(&*shards, &headers, &Selector::of_topic(&topic))?;
    let start = start_of(&query)?;
    let limit = query.limit.unwrap_or(PAGE_LEN).clamp(1, limits.history_page_len_max);
    let is_descending = match query.order.as_deref() {
        None | Some("asc") => false,
        Some("desc") => true,
        Some(other) => return Err(bad(format!("`order` is `{other}`; say asc or desc")).into()),
    };
    let (answer, hears) = oneshot::channel();
    let question = Question::History { topic: topic.clone(), start, limit, answer };
    shards.ask(shards.home_of(&topic), question)?;
    let page = tokio::time::timeout(SHARD_ANSWER_MAX, hears).await;
    let page = page.map_err(|_| no_answer())?.map_err(|_| no_answer())??;
    let bytes = page.publications.iter().map(Publication::told_bytes);
    shards.check_memory(bytes_told(bytes.sum(), limits), "read the history")?;
    Ok(json_of(shards.work(), parts_of(&topic, page, is_descending)))
}

fn bad(why: String) -> Refusal {
    Refusal::new(Code::BadRequest, format!("cannot read the history: {why}"))
}

fn start_of(query: &HistoryQuery) -> Result<HistoryStart, Refusal> {
    let sequence = |number: u64| {
        Sequence::new(number)
            .ok_or_else(|| bad(format!("{number} is not a sequence; sequences are below 2^53")))
    };
    match (query.after, query.before, query.last, query.since) {
        (None, None, None, None) => Ok(HistoryStart::After(Sequence::START)),
        (Some(after), None, None, None) => Ok(HistoryStart::After(sequence(after)?)),
        (None, Some(before), None, None) => Ok(HistoryStart::Before(sequence(before)?)),
        (None, None, Some(last), None) => Ok(HistoryStart::Last(last)),
        (None, None, None, Some(since)) => Ok(HistoryStart::Since(since)),
        _ => Err(bad("it has more than one of after, before, last and since; give one".into())),
    }
}

/// The shape of a page before its publications.
#[derive(Serialize)]
struct WireStart<'a> {
    topic: &'a str,
    epoch: &'a str,
    head: u64,
}

/// The same behind them, with the query values for its neighbours.
#[derive(Serialize)]
struct WireEnd {
    #[serde(skip_serializing_if = "Option::is_none")]
    gap: Option<WireGap>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_after: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_before: Option<u64>,
}

#[derive(Serialize)]
struct WireGap {
    from: u64,
    to: u64,
}

fn parts_of(
    topic: &TopicName,
    page: HistoryPage,
    is_descending: bool,
) -> impl Iterator<Item = Part> + Clone + Send + Unpin + use<> {
    let start = start_text(topic, &page);
    let end = end_text(&page);
    let (len, page) = (page.publications.len(), Arc::new(page));
    let publications = (0..len).flat_map(move |number| {
        let index = if is_descending { len - 1 - number } else { number };
        let publication = &page.publications[index];
        let separator = if number == 0 { "" } else { "," };
        let (sequence, time_ms) = (publication.sequence(), publication.unix_ms());
        let previous = match publication.previous() {
            dense if dense == sequence.back(1) => String::new(),
            other => format!(",\"previous\":{other}"),
        };
        let members = members_of(publication);
        let begin = format!(
            "{separator}{{\"sequence\":{sequence}{previous},\"time_ms\":{time_ms}{members}"
        );
        let payload = Part::Payload(publication.clone());
        [Part::Text(begin.into()), payload, Part::Text("}".into())]
    });
    let (start, end) = (Part::Text(start.into()), Part::Text(end.into()));
    once(start).chain(publications).chain(once(end))
}

fn start_text(topic: &TopicName, page: &HistoryPage) -> String {
    let wire = WireStart {
        topic: topic.as_str(),
        epoch: page.position.epoch.as_str(),
        head: page.position.sequence.get(),
    };
    opened(&wire) + ",\"publications\":["
}

fn end_text(page: &HistoryPage) -> String {
    let head = page.position.sequence;
    let first = page.publications.first();
    let last = page.publications.last().map(|last| last.sequence());
    let begins = first.map_or(head, Publication::previous);
    let gap = WireGap { from: page.after.get() + 1, to: begins.get() };
    let wire = WireEnd {
        gap: (begins > page.after).then_some(gap),
        next_after: last.filter(|last| *last < head).map(Sequence::get),
        next_before: first
            .filter(|first| first.previous() > Sequence::START)
            .map(|first| first.sequence().get()),
    };
    let members = serde_json::to_string(&wire).expect("numbers can be written as JSON");
    let separator = if members == "{}" { "" } else { "," };
    format!("]{separator}{}", &members[1..])
}
