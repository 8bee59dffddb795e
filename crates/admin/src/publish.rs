//! `POST /v1/publish`: one publication, a batch, or one payload to many topics.

use std::borrow::Cow;
use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::future::join_all;
use http::HeaderMap;
use model::{
    Action, Code, Draft, Limits, Payload, PayloadKind, Principal, Refusal, Selector, Sequence,
    TopicName,
};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use crate::error::{ApiError, error_body, json_header, no_answer};
use crate::question::{Published, Question, Shards};
use crate::router::{SHARD_ANSWER_MAX, principal_of};

/// One publication, as it stands in a request.
#[derive(Debug, Deserialize)]
struct WirePublish<'a> {
    #[serde(borrow)]
    topic: Option<Cow<'a, str>>,
    #[serde(borrow)]
    topics: Option<Vec<Cow<'a, str>>>,
    #[serde(borrow)]
    publications: Option<Vec<WirePublish<'a>>>,
    #[serde(borrow, default, deserialize_with = "present")]
    data: Option<&'a RawValue>,
    #[serde(borrow)]
    text: Option<Cow<'a, str>>,
    #[serde(borrow)]
    base64: Option<Cow<'a, str>>,
    #[serde(borrow)]
    key: Option<Cow<'a, str>>,
    expect: Option<u64>,
}

/// A member that is there, `null` included: that is a JSON value like others.
fn present<'de: 'a, 'a, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<&'a RawValue>, D::Error> {
    <&'a RawValue>::deserialize(deserializer).map(Some)
}

pub(crate) async fn publish(
    State(shards): State<Arc<dyn Shards>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, ApiError> {
    let principal = principal_of(&*shards, &headers)?;
    let wire: WirePublish<'_> = serde_json::from_slice(&body).map_err(|error| {
        bad_request(format!("{error}; send JSON such as {{\"topic\":\"a/b\",\"data\":1}}"))
    })?;
    match (&wire.topic, &wire.topics, &wire.publications) {
        (Some(topic), None, None) => {
            let draft = draft_of(&wire, topic, shards.limits());
            let published = publish_one(&*shards, &principal, draft).await?;
            Ok((json_header(), body_of(&published).to_string()).into_response())
        }
        (None, Some(topics), None) => {
            check_len(topics.len(), shards.limits())?;
            let drafts = topics.iter().map(|topic| draft_of(&wire, topic, shards.limits()));
            Ok(publish_many(&*shards, &principal, drafts).await)
        }
        (None, None, Some(publications)) => {
            check_len(publications.len(), shards.limits())?;
            let drafts = publications.iter().map(|wire| match &wire.topic {
                Some(topic) => draft_of(wire, topic, shards.limits()),
                None => Err(bad_request("a publication has no `topic`; add it".into())),
            });
            Ok(publish_many(&*shards, &principal, drafts).await)
        }
        _ => {
            let why = "it has not exactly one of `topic`, `topics` and `publications`; give one";
            Err(bad_request(why.into()).into())
        }
    }
}

fn bad_request(why: String) -> Refusal {
    Refusal::new(Code::BadRequest, format!("cannot read the publish request: {why}"))
}

fn check_len(len: usize, limits: &Limits) -> Result<(), Refusal> {
    if len <= limits.batch_len_max {
        return Ok(());
    }
    let text = format!(
        "cannot publish {len} at once: batch_len_max is {}; send smaller batches",
        limits.batch_len_max
    );
    Err(Refusal::new(Code::BatchTooLarge, text))
}

fn draft_of(wire: &WirePublish<'_>, topic: &str, limits: &Limits) -> Result<Draft, Refusal> {
    let topic = TopicName::parse(topic, limits)
        .map_err(|error| Refusal::new(Code::BadTopic, error.to_string()))?;
    let (kind, bytes) = match (wire.data, &wire.text, &wire.base64) {
        (Some(data), None, None) => (PayloadKind::Json, Cow::Borrowed(data.get().as_bytes())),
        (None, Some(text), None) => (PayloadKind::Text, Cow::Borrowed(text.as_bytes())),
        (None, None, Some(base64)) => {
            let bytes = STANDARD.decode(base64.as_bytes()).map_err(|error| {
                let why = format!("its base64 does not decode ({error}); mend it");
                Refusal::new(Code::BadPayload, format!("cannot publish the payload: {why}"))
            })?;
            (PayloadKind::Bytes, Cow::Owned(bytes))
        }
        _ => {
            let why = "a publication has not exactly one of `data`, `text` and `base64`; give one";
            return Err(bad_request(why.into()));
        }
    };
    if bytes.len() > limits.payload_bytes_max {
        let text = format!(
            "cannot publish the payload: it has {} bytes and payload_bytes_max is {}; send less \
             at a time, or raise the limit in the configuration",
            bytes.len(),
            limits.payload_bytes_max
        );
        return Err(Refusal::new(Code::PayloadTooLarge, text));
    }
    let idempotency_key = wire.key.as_deref().map(Into::into);
    let expected = match wire.expect {
        None => None,
        Some(number) => Some(Sequence::new(number).ok_or_else(|| {
            bad_request(format!("`expect` is {number}; sequences are below 2^53"))
        })?),
    };
    Ok(Draft { topic, payload: Payload::new(kind, &bytes), idempotency_key, expected })
}

async fn publish_one(
    shards: &dyn Shards,
    principal: &Principal,
    draft: Result<Draft, Refusal>,
) -> Result<Published, Refusal> {
    let draft = draft?;
    check_rights(principal, &draft.topic)?;
    let (answer, hears) = oneshot::channel();
    let home = shards.home_of(&draft.topic);
    shards.ask(home, Question::Publish { draft, answer })?;
    match tokio::time::timeout(SHARD_ANSWER_MAX, hears).await {
        Ok(Ok(result)) => result,
        _ => Err(no_answer()),
    }
}

fn check_rights(principal: &Principal, topic: &TopicName) -> Result<(), Refusal> {
    if topic.is_reserved() {
        let text = format!(
            "cannot publish to `{topic}`: names that begin with `$` are the server's own; use \
             another name"
        );
        return Err(Refusal::new(Code::ReservedTopic, text));
    }
    if principal.may(Action::Publish, &Selector::of_topic(topic)) {
        return Ok(());
    }
    let text = format!(
        "cannot publish to `{topic}`: {} may not; use a token that may, or have access.tokens \
         changed in the configuration",
        principal.name
    );
    Err(Refusal::new(Code::NotAllowed, text))
}

async fn publish_many(
    shards: &dyn Shards,
    principal: &Principal,
    drafts: impl Iterator<Item = Result<Draft, Refusal>>,
) -> Response {
    let results = join_all(drafts.map(|draft| publish_one(shards, principal, draft))).await;
    let results: Vec<serde_json::Value> = results
        .iter()
        .map(|result| match result {
            Ok(published) => body_of(published),
            Err(refusal) => error_body(refusal),
        })
        .collect();
    let body = serde_json::json!({ "results": results }).to_string();
    (json_header(), body).into_response()
}

fn body_of(published: &Published) -> serde_json::Value {
    serde_json::json!({
        "topic": published.topic.as_str(),
        "epoch": published.position.epoch.as_str(),
        "sequence": published.position.sequence.get(),
        "level": published.level.name(),
    })
}
