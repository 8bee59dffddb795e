//! `GET /v1/topics/{topic}` and `GET /v1/topics?selector=…`.

use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::join_all;
use http::HeaderMap;
use model::{Action, Code, PayloadKind, Refusal, Selector, TopicName};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use crate::error::{ApiError, json_header, no_answer};
use crate::question::{Listed, Question, Shards, Value};
use crate::router::{SHARD_ANSWER_MAX, principal_of};

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
        Some(value) => Ok((json_header(), value_body(&topic, &value)).into_response()),
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
    let principal = principal_of(shards, headers)?;
    if principal.may(Action::Subscribe, selector) {
        return Ok(());
    }
    let text = format!(
        "cannot read `{selector}`: {} may not read all of it; use a token that may, or a narrower \
         selector",
        principal.name
    );
    Err(Refusal::new(Code::NotAllowed, text))
}

/// A payload as the member that goes with its kind.
pub(crate) fn payload_of(publication: &model::Publication) -> serde_json::Value {
    let payload = publication.payload();
    match publication.kind() {
        PayloadKind::Json => serde_json::json!({
            "data": serde_json::from_slice::<serde_json::Value>(payload).unwrap_or_default(),
        }),
        PayloadKind::Text => serde_json::json!({ "text": String::from_utf8_lossy(payload) }),
        PayloadKind::Bytes => serde_json::json!({ "base64": STANDARD.encode(payload) }),
    }
}

/// The shape of a value; the payload's JSON is passed on byte for byte.
#[derive(Serialize)]
struct WireValue<'a> {
    topic: &'a str,
    epoch: &'a str,
    sequence: u64,
    time_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
}

fn value_body(topic: &TopicName, value: &Value) -> String {
    let payload = value.publication.payload();
    let mut wire = WireValue {
        topic: topic.as_str(),
        epoch: value.position.epoch.as_str(),
        sequence: value.position.sequence.get(),
        time_ms: value.publication.unix_ms(),
        data: None,
        text: None,
        base64: None,
    };
    match value.publication.kind() {
        PayloadKind::Json => wire.data = serde_json::from_slice(payload).ok(),
        PayloadKind::Text => wire.text = std::str::from_utf8(payload).ok(),
        PayloadKind::Bytes => wire.base64 = Some(STANDARD.encode(payload)),
    }
    serde_json::to_string(&wire).expect("a value can be written as JSON")
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
    let limits = shards.limits();
    let selector = Selector::parse(query.selector.as_deref().unwrap_or("#"), limits)
        .map_err(|error| Refusal::new(Code::BadSelector, error.to_string()))?;
    check_read(&*shards, &headers, &selector)?;
    let after = query.after.map(|after| TopicName::parse(&after, limits)).transpose();
    let after = after.map_err(|error| Refusal::new(Code::BadTopic, error.to_string()))?;
    let limit = query.limit.unwrap_or(PAGE_LEN).clamp(1, limits.page_len_max);
    // One more than asked tells whether there is a next page.
    let found = ask_all(&*shards, &selector, after.as_ref(), limit + 1).await?;
    let topics: Vec<serde_json::Value> = found
        .iter()
        .take(limit)
        .map(|listed| {
            serde_json::json!({
                "topic": listed.topic.as_str(),
                "epoch": listed.position.epoch.as_str(),
                "sequence": listed.position.sequence.get(),
            })
        })
        .collect();
    let mut body = serde_json::json!({ "topics": topics });
    if found.len() > limit {
        body["next"] = found[limit - 1].topic.as_str().into();
    }
    Ok((json_header(), body.to_string()).into_response())
}

/// The first `limit` topics of all shards, by name.
async fn ask_all(
    shards: &dyn Shards,
    selector: &Selector,
    after: Option<&TopicName>,
    limit: usize,
) -> Result<Vec<Listed>, Refusal> {
    let mut answers = Vec::new();
    for shard in 0..shards.count() {
        let (answer, hears) = oneshot::channel();
        let (selector, after) = (selector.clone(), after.cloned());
        shards.ask(shard, Question::List { selector, after, limit, answer })?;
        answers.push(tokio::time::timeout(SHARD_ANSWER_MAX, hears));
    }
    let mut all = Vec::new();
    for answer in join_all(answers).await {
        all.extend(answer.map_err(|_| no_answer())?.map_err(|_| no_answer())?);
    }
    all.sort_unstable_by(|one: &Listed, other| one.topic.cmp(&other.topic));
    all.truncate(limit);
    Ok(all)
}
