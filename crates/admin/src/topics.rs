//! `GET /v1/topics/{topic}`, with `?raw` too, and `GET /v1/topics?selector=…`.

use std::iter::once;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::future::join_all;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use model::{Code, Limits, PayloadKind, Publication, Refusal, Selector, TopicName, Wish};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::oneshot;

use crate::asked::{Asked, SHARD_ANSWER_MAX, TopicOf, principal_of};
use crate::conditions::{self, Read, etag};
use crate::error::{ApiError, no_answer};
use crate::members::{fields_of, members_of};
use crate::pieces::{Part, json_of, opened};
use crate::question::{Listed, Question, Shards, Value};
use crate::table;

/// Bytes of memory that an answer which tells so many takes: no more than may be under way to its connection.
pub(crate) fn bytes_told(bytes: usize, limits: &Limits) -> usize {
    bytes.min(limits.answers_bytes_max)
}

#[derive(Debug, Deserialize)]
pub(crate) struct ValueQuery {
    raw: Option<String>,
}

/// Whether a parameter says yes: without a value it does.
fn is_set(name: &str, said: Option<&str>) -> Result<bool, Refusal> {
    match said {
        None | Some("false" | "0") => Ok(false),
        Some("" | "true" | "1") => Ok(true),
        Some(other) => {
            let why = format!("`{name}` is `{other}`; say true or false, or leave it out");
            Err(Refusal::bad_request(why))
        }
    }
}

pub(crate) async fn value(
    State(shards): State<Arc<dyn Shards>>,
    TopicOf(topic): TopicOf,
    Asked(query): Asked<ValueQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let is_raw = is_set("raw", query.raw.as_deref())?;
    check_read(&*shards, &headers, &Selector::of_topic(&topic))?;
    let (answer, hears) = oneshot::channel();
    let home = shards.home_of(&topic);
    shards.ask(home, Question::Value { topic: topic.clone(), answer })?;
    let found = tokio::time::timeout(SHARD_ANSWER_MAX, hears).await;
    let found = found.map_err(|_| no_answer())?.map_err(|_| no_answer())?;
    let value = found.ok_or_else(|| {
        let text = format!(
            "cannot get the value of `{topic}`: nothing is kept there; publish to it, or let \
             its policy retain"
        );
        Refusal::new(Code::NotFound, text)
    })?;
    let (is_known, tag) =
        (conditions::check_read(&headers, &value.position)?, etag(&value.position));
    let headers_told = match is_known {
        Read::Told => fields_of(&value.publication),
        Read::NotModified => Vec::new(),
    };
    let mut response = match is_known {
        Read::NotModified => StatusCode::NOT_MODIFIED.into_response(),
        Read::Told => {
            let bytes = bytes_told(value.publication.told_bytes(), shards.limits());
            shards.check_memory(bytes, "get the value")?;
            match is_raw {
                true => raw(&*shards, value.publication),
                false => json_of(shards.work(), parts_of(&topic, value).into_iter()),
            }
        }
    };
    let fields = response.headers_mut();
    // Whoever keeps it asks whether it is still the newest.
    fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    fields.extend(tag.map(|tag| (header::ETAG, tag)));
    fields.extend(headers_told);
    Ok(response)
}

/// The payload as it is. Its type follows from its kind, never from what a publisher said, and it never becomes a page of the
/// server's origin.
fn raw(shards: &dyn Shards, publication: Publication) -> Response {
    struct Shared(Publication);
    impl AsRef<[u8]> for Shared {
        fn as_ref(&self) -> &[u8] {
            self.0.payload()
        }
    }
    shards.work().note_bytes(publication.payload().len());
    let kind = publication.kind();
    let mut response = Body::from(Bytes::from_owner(Shared(publication))).into_response();
    let fields = response.headers_mut();
    let mut say = |name, value| fields.insert(name, HeaderValue::from_static(value));
    say(
        header::CONTENT_TYPE,
        match kind {
            PayloadKind::Json => "application/json",
            PayloadKind::Text => "text/plain; charset=utf-8",
            PayloadKind::Bytes => "application/octet-stream",
        },
    );
    say(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    say(header::CONTENT_SECURITY_POLICY, "sandbox");
    if kind == PayloadKind::Bytes {
        say(header::CONTENT_DISPOSITION, "attachment");
    }
    response
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
    let start = opened(&wire) + &members_of(&value.publication);
    [Part::Text(start.into()), Part::Payload(value.publication), Part::Text("}".into())]
}

#[derive(Debug, Deserialize)]
pub(crate) struct ListQuery {
    selector: Option<String>,
    after: Option<String>,
    limit: Option<usize>,
    values: Option<String>,
}

pub(crate) async fn list(
    State(shards): State<Arc<dyn Shards>>,
    Asked(query): Asked<ListQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    const PAGE_LEN: usize = 100;
    /// The bytes of one topic in a listing: its name a few times.
    const LISTED_BYTES: usize = 1 << 10;
    let limits = shards.limits();
    let selector = Selector::parse(query.selector.as_deref().unwrap_or("#"), limits)
        .map_err(|error| Refusal::new(Code::BadSelector, error.to_string()))?;
    check_read(&*shards, &headers, &selector)?;
    let after = query.after.map(|after| TopicName::parse(&after, limits)).transpose();
    let after = after.map_err(|error| Refusal::new(Code::BadTopic, error.to_string()))?;
    let has_values = is_set("values", query.values.as_deref())?;
    let limit = query.limit.unwrap_or(PAGE_LEN).clamp(1, limits.page_len_max);
    shards.check_memory(limit * LISTED_BYTES, "list topics")?;
    // One more than asked tells whether there is a next page.
    let mut found = ask_all(&*shards, &selector, after.as_ref(), limit + 1).await?;
    let has_more = found.len() > limit;
    found.truncate(limit);
    if has_values {
        return Ok(table::page(&*shards, found, has_more).await?);
    }
    Ok(json_of(shards.work(), parts_of_list(found, has_more)))
}

/// The end of a page; `last` is its last topic, if others come after it.
pub(crate) fn end_of_list(last: Option<&TopicName>) -> Part {
    let next = last.map(|last| json!(last.as_str()));
    Part::Text(next.map_or("]}".into(), |next| format!("],\"next\":{next}}}").into()))
}

fn parts_of_list(
    found: Vec<Listed>,
    has_more: bool,
) -> impl Iterator<Item = Part> + Clone + Send + Unpin {
    let end = end_of_list(found.last().filter(|_| has_more).map(|last| &last.topic));
    let found: Arc<[Listed]> = found.into();
    let topics = (0..found.len()).map(move |index| {
        let separator = if index == 0 { "" } else { "," };
        Part::Text(format!("{separator}{}", shown(&found[index])).into())
    });
    let start = Part::Text("{\"topics\":[".into());
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
