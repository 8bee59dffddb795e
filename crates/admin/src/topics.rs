//! `GET /v1/topics/{topic}` and `GET /v1/topics?selector=…`.

use std::iter::once;
use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::response::Response;
use futures_util::future::join_all;
use http::HeaderMap;
use model::{Code, Limits, Refusal, Selector, TopicName, Wish};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::oneshot;

use crate::error::{ApiError, no_answer};
use crate::pieces::{Part, json_of, opened};
use crate::question::{Listed, Question, Shards, Value};
use crate::router::{SHARD_ANSWER_MAX, principal_of};

/// Bytes of memory that an answer which tells so many takes: no more than may be under way to its connection.
pub(crate) fn bytes_told(bytes: usize, limits: &Limits) -> usize {
    bytes.min(limits.answers_bytes_max)
}

pub(crate) async fn value(
    State(shards): State<Arc<dyn Shards>>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let topic = TopicName::parse(&name, shards.limits())
        .map_err(|error| Refusal::new(Code::BadTopic, error.to_string()))?;
    check_read(&*shards, &headers, &Selector::of_topic(&topic))?;
    let (answer, hears) = oneshot::channel();
    let home = shards.home_of(&topic);
    shards.ask(home, Question::Value { topic: topic.clone(), answer })?;
    let found = tokio::time::timeout(SHARD_ANSWER_MAX, hears).await;
    let found = found.map_err(|_| no_answer())?.map_err(|_| no_answer())?;
    match found {
        Some(value) => {
            let bytes = bytes_told(value.publication.json_bytes(), shards.limits());
            shards.check_memory(bytes, "get the value")?;
            Ok(json_of(shards.work(), parts_of(&topic, value).into_iter()))
        }
        None => {
            let text = format!(
                "cannot get the value of `{topic}`: nothing is kept there; publish to it, or let \
                 its policy retain"
            );
            Err(Refusal::new(Code::NotFound, text).into())
        }
    }
}

pub(crate) fn check_read(
    shards: &dyn Shards,
    headers: &HeaderMap,
    selector: &Selector,
) -> Result<(), Refusal> {
    principal_of(shards, headers)?.check(Wish::Read(selector))
}

/// The shape of a value before its payload.
#[derive(Serialize)]
struct WireValue<'a> {
    topic: &'a str,
    epoch: &'a str,
    sequence: u64,
    time_ms: u64,
}

fn parts_of(topic: &TopicName, value: Value) -> [Part; 3] {
    let wire = WireValue {
        topic: topic.as_str(),
        epoch: value.position.epoch.as_str(),
        sequence: value.position.sequence.get(),
        time_ms: value.publication.unix_ms(),
    };
    [Part::Text(opened(&wire).into()), Part::Payload(value.publication), Part::Text("}".into())]
}

#[derive(Debug, Deserialize)]
pub(crate) struct ListQuery {
    selector: Option<String>,
    after: Option<String>,
    limit: Option<usize>,
}

pub(crate) async fn list(
    State(shards): State<Arc<dyn Shards>>,
    Query(query): Query<ListQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    const PAGE_LEN: usize = 100;
    /// What one topic of a listing takes: its name a few times.
    const LISTED_BYTES: usize = 1 << 10;
    let limits = shards.limits();
    let selector = Selector::parse(query.selector.as_deref().unwrap_or("#"), limits)
        .map_err(|error| Refusal::new(Code::BadSelector, error.to_string()))?;
    check_read(&*shards, &headers, &selector)?;
    let after = query.after.map(|after| TopicName::parse(&after, limits)).transpose();
    let after = after.map_err(|error| Refusal::new(Code::BadTopic, error.to_string()))?;
    let limit = query.limit.unwrap_or(PAGE_LEN).clamp(1, limits.page_len_max);
    shards.check_memory(limit * LISTED_BYTES, "list topics")?;
    // One more than asked tells whether there is a next page.
    let found = ask_all(&*shards, &selector, after.as_ref(), limit + 1).await?;
    Ok(json_of(shards.work(), parts_of_list(found, limit)))
}

fn parts_of_list(
    mut found: Vec<Listed>,
    limit: usize,
) -> impl Iterator<Item = Part> + Clone + Send + Unpin {
    let has_more = found.len() > limit;
    found.truncate(limit);
    let last = found.last().filter(|_| has_more).map(|last| json!(last.topic.as_str()));
    let end = last.map_or("]}".into(), |next| format!("],\"next\":{next}}}"));
    let found: Arc<[Listed]> = found.into();
    let topics = (0..found.len()).map(move |index| {
        let separator = if index == 0 { "" } else { "," };
        Part::Text(format!("{separator}{}", shown(&found[index])).into())
    });
    let (start, end) = (Part::Text("{\"topics\":[".into()), Part::Text(end.into()));
    once(start).chain(topics).chain(once(end))
}

fn shown(listed: &Listed) -> serde_json::Value {
    json!({
        "topic": listed.topic.as_str(),
        "epoch": listed.position.epoch.as_str(),
        "sequence": listed.position.sequence.get(),
    })
}

/// The first `limit` topics of one shard, by name. It looks at some names at a time.
async fn ask_one(
    shards: &dyn Shards,
    shard: usize,
    selector: &Selector,
    after: Option<&TopicName>,
    len_max: usize,
) -> Result<Vec<Listed>, Refusal> {
    let (mut found, mut after) = (Vec::new(), after.cloned());
    loop {
        let (answer, hears) = oneshot::channel();
        let (selector, limit) = (selector.clone(), len_max - found.len());
        shards.ask(shard, Question::List { selector, after, limit, answer })?;
        let answer = tokio::time::timeout(SHARD_ANSWER_MAX, hears).await;
        let part = answer.map_err(|_| no_answer())?.map_err(|_| no_answer())?;
        shards.work().note(part.topics.len());
        found.extend(part.topics);
        match part.next {
            Some(next) if found.len() < len_max => after = Some(next),
            _ => return Ok(found),
        }
    }
}

/// The first `limit` topics of all shards, by name.
async fn ask_all(
    shards: &dyn Shards,
    selector: &Selector,
    after: Option<&TopicName>,
    limit: usize,
) -> Result<Vec<Listed>, Refusal> {
    let lists = (0..shards.count()).map(|shard| ask_one(shards, shard, selector, after, limit));
    let mut all = Vec::new();
    for list in join_all(lists).await {
        all.extend(list?);
    }
    all.sort_unstable_by(|one: &Listed, other| one.topic.cmp(&other.topic));
    all.truncate(limit);
    Ok(all)
}
