//! `GET /v1/history/{topic}`: kept publications by position, the last N, or since a time, in pages.

use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use http::HeaderMap;
use model::{Code, HistoryPage, HistoryStart, Refusal, Selector, Sequence, TopicName};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::error::{ApiError, json_header, no_answer};
use crate::question::{Question, Shards};
use crate::router::SHARD_ANSWER_MAX;
use crate::topics::{check_read, payload_of};

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
    Path(name): Path<String>,
    Query(query): Query<HistoryQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    const PAGE_LEN: usize = 100;
    let limits = shards.limits();
    let topic = TopicName::parse(&name, limits)
        .map_err(|error| Refusal::new(Code::BadTopic, error.to_string()))?;
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
    let page = page.map_err(|_| no_answer())?.map_err(|_| no_answer())?;
    Ok((json_header(), body_of(&topic, &page, is_descending).to_string()).into_response())
}

fn bad(why: String) -> Refusal {
    Refusal::new(Code::BadRequest, format!("cannot read the history: {why}"))
}

fn start_of(query: &HistoryQuery) -> Result<HistoryStart, Refusal> {
    let sequence = |number: u64| {
        Sequence::new(number)
            .ok_or_else(|| bad(format!("{number} is no sequence; they are below 2^53")))
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

/// The page as JSON, with the query values for its neighbours.
fn body_of(topic: &TopicName, page: &HistoryPage, is_descending: bool) -> Value {
    let one = |publication: &model::Publication| {
        let mut one = payload_of(publication);
        one["sequence"] = publication.sequence().get().into();
        one["time_ms"] = publication.unix_ms().into();
        one
    };
    let mut publications: Vec<Value> = page.publications.iter().map(one).collect();
    if is_descending {
        publications.reverse();
    }
    let mut body = json!({
        "topic": topic.as_str(),
        "epoch": page.position.epoch.as_str(),
        "head": page.position.sequence.get(),
        "publications": publications,
    });
    let head = page.position.sequence;
    let first = page.publications.first().map(|first| first.sequence());
    let last = page.publications.last().map(|last| last.sequence());
    let begins = first.map_or(head, |first| first.back(1));
    if begins > page.after {
        body["gap"] = json!({ "from": page.after.get() + 1, "to": begins.get() });
    }
    if let Some(last) = last.filter(|last| *last < head) {
        body["next_after"] = last.get().into();
    }
    if let Some(first) = first.filter(|first| first.get() > 1) {
        body["next_before"] = first.get().into();
    }
    body
}
