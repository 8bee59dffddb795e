//! `POST /v1/publish`: one publication, a batch, or one payload to many topics.

use std::borrow::Cow;
use std::iter::once;
use std::pin::pin;
use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::future::{Either, FutureExt, ready};
use futures_util::stream::{self, StreamExt};
use http::HeaderMap;
use model::{
    Code, Draft, Expected, HeaderOrigin, Headers, Limits, Payload, PayloadKind, Principal, Refusal,
    Sequence, SharedPayload, TopicName, Wish, check_key,
};
use protocol::native::json::decode_headers;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use crate::asked::{SHARD_ANSWER_MAX, principal_of};
use crate::error::{ApiError, error_body, json_header, no_answer};
use crate::pieces::{Part, json_of};
use crate::question::{Published, Question, Shards};

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
    #[serde(borrow)]
    headers: Option<&'a RawValue>,
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
    shards.work().note_bytes(body.len());
    // What it says is decoded and copied once more.
    shards.check_memory(2 * body.len(), "publish")?;
    let wire: WirePublish<'_> = serde_json::from_slice(&body).map_err(|error| {
        bad_request(format!("{error}; send JSON such as {{\"topic\":\"a/b\",\"data\":1}}"))
    })?;
    match (&wire.topic, &wire.topics, &wire.publications) {
        (Some(topic), None, None) => {
            let payload = payload_of(&wire, shards.limits(), Payload::with_headers)?;
            let draft = draft_of(&wire, topic, payload, shards.limits());
            let published = ask(&*shards, &principal, draft)?.await?;
            Ok((json_header(), body_of(&published).to_string()).into_response())
        }
        (None, Some(topics), None) => {
            check_len(topics.len(), shards.limits())?;
            let shared = payload_of(&wire, shards.limits(), SharedPayload::with_headers);
            let draft_at = |index: usize| {
                let payload = shared.as_ref().map_err(Clone::clone)?.payload();
                draft_of(&wire, &topics[index], payload, shards.limits())
            };
            Ok(publish_many(&*shards, &principal, topics.len(), draft_at).await)
        }
        (None, None, Some(publications)) => {
            check_len(publications.len(), shards.limits())?;
            let draft_at = |index: usize| {
                let wire = &publications[index];
                let missing = || bad_request("a publication has no `topic`; add it".into());
                let topic = wire.topic.as_ref().ok_or_else(missing)?;
                let payload = payload_of(wire, shards.limits(), Payload::with_headers)?;
                draft_of(wire, topic, payload, shards.limits())
            };
            Ok(publish_many(&*shards, &principal, publications.len(), draft_at).await)
        }
        _ => {
            let why = "it needs exactly one of `topic`, `topics` and `publications`";
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

/// The content of a publication, made into a payload by `new`.
fn payload_of<P>(
    wire: &WirePublish<'_>,
    limits: &Limits,
    new: impl Fn(PayloadKind, &Headers<'_>, &[u8]) -> P,
) -> Result<P, Refusal> {
    let (kind, bytes) = match (wire.data, &wire.text, &wire.base64) {
        (Some(data), None, None) => (PayloadKind::Json, Cow::Borrowed(data.get().as_bytes())),
        (None, Some(text), None) => (PayloadKind::Text, Cow::Borrowed(text.as_bytes())),
        (None, None, Some(base64)) => {
            let bytes = STANDARD.decode(base64.as_bytes()).map_err(|error| {
                Refusal::bad_payload(format!("its base64 does not decode ({error}); mend it"))
            })?;
            (PayloadKind::Bytes, Cow::Owned(bytes))
        }
        _ => {
            let why = "a publication needs exactly one of `data`, `text` and `base64`";
            return Err(bad_request(why.into()));
        }
    };
    let headers = match wire.headers {
        Some(headers) => decode_headers(headers.get(), HeaderOrigin::Client)?,
        None => Headers::default(),
    };
    check_payload_len(bytes.len() + headers.bytes().len(), limits)?;
    Ok(new(kind, &headers, &bytes))
}

pub(crate) fn check_payload_len(len: usize, limits: &Limits) -> Result<(), Refusal> {
    if len <= limits.payload_bytes_max {
        return Ok(());
    }
    Err(Refusal::payload_too_large(len, limits.payload_bytes_max))
}

fn draft_of(
    wire: &WirePublish<'_>,
    topic: &str,
    payload: Payload,
    limits: &Limits,
) -> Result<Draft, Refusal> {
    let topic = TopicName::parse(topic, limits)
        .map_err(|error| Refusal::new(Code::BadTopic, error.to_string()))?;
    let idempotency_key = check_key(wire.key.as_deref(), limits)?;
    let expected = match wire.expect {
        None => None,
        Some(number) => Some(Expected::sequence(Sequence::new(number).ok_or_else(|| {
            bad_request(format!("`expect` is {number}; sequences are below 2^53"))
        })?)),
    };
    Ok(Draft { topic, payload, idempotency_key, expected })
}

/// Hands a draft to its shard at once; what became of it is heard by waiting for the answer.
pub(crate) fn ask(
    shards: &dyn Shards,
    principal: &Principal,
    draft: Result<Draft, Refusal>,
) -> Result<impl Future<Output = Result<Published, Refusal>> + use<>, Refusal> {
    shards.work().note(1);
    let mut draft = draft?;
    shards.work().note_bytes(draft.payload.size());
    principal.check(Wish::Publish(&draft.topic))?;
    if shards.records_principal(&draft.topic) {
        draft.payload = draft.payload.of_principal(&principal.name);
    }
    let (answer, hears) = oneshot::channel();
    let home = shards.home_of(&draft.topic);
    shards.ask(home, Question::Publish { draft, answer })?;
    let answered = tokio::time::timeout(SHARD_ANSWER_MAX, hears);
    Ok(answered.map(|answer| match answer {
        Ok(Ok(result)) => result,
        _ => Err(no_answer()),
    }))
}

/// Publishes in order, a bounded number at a time: drafts are made no sooner than that.
async fn publish_many(
    shards: &dyn Shards,
    principal: &Principal,
    count: usize,
    draft_at: impl Fn(usize) -> Result<Draft, Refusal>,
) -> Response {
    /// Publications of one request that are with their shards.
    const UNDER_WAY_MAX: usize = 256;
    let asked = (0..count).map(|index| match ask(shards, principal, draft_at(index)) {
        Ok(answer) => Either::Left(answer),
        Err(refusal) => Either::Right(ready(Err(refusal))),
    });
    let mut results = pin!(stream::iter(asked).buffered(UNDER_WAY_MAX));
    let mut answers = Vec::new();
    while let Some(result) = results.next().await {
        answers.push(result);
    }
    json_of(shards.work(), parts_of(answers))
}

fn parts_of(
    results: Vec<Result<Published, Refusal>>,
) -> impl Iterator<Item = Part> + Clone + Send + Unpin {
    let results: Arc<[_]> = results.into();
    let each = (0..results.len()).map(move |index| {
        let separator = if index == 0 { "" } else { "," };
        let result = results[index].as_ref().map_or_else(error_body, body_of);
        Part::Text(format!("{separator}{result}").into())
    });
    let (start, end) = (Part::Text("{\"results\":[".into()), Part::Text("]}".into()));
    once(start).chain(each).chain(once(end))
}

pub(crate) fn body_of(published: &Published) -> serde_json::Value {
    serde_json::json!({
        "topic": published.topic.as_str(),
        "epoch": published.position.epoch.as_str(),
        "sequence": published.position.sequence.get(),
        "level": published.level.name(),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Mutex;

    use axum::body::to_bytes;
    use futures_util::future::select;
    use model::{AckLevel, Epoch, Position};

    use super::*;
    use crate::{ApiWork, WebhookCounters};

    /// One shard that holds what it is asked until it is told to answer.
    #[derive(Default)]
    struct HoldingShard {
        limits: Limits,
        work: ApiWork,
        held: Mutex<Vec<Question>>,
    }

    impl Shards for HoldingShard {
        fn count(&self) -> usize {
            1
        }
        fn home_of(&self, _: &TopicName) -> usize {
            0
        }
        fn ask(&self, _: usize, question: Question) -> Result<(), Refusal> {
            self.held.lock().expect("no test panicked").push(question);
            Ok(())
        }
        fn principal(&self, _: Option<&str>) -> Result<Arc<Principal>, Refusal> {
            Ok(Arc::new(Principal::unlimited("tester")))
        }
        fn records_principal(&self, _: &TopicName) -> bool {
            false
        }
        fn certified(&self, _: &str) -> Option<Arc<Principal>> {
            None
        }
        fn origin_allowed(&self, _: &str, _: &str) -> bool {
            true
        }
        fn origin_listed(&self, _: &str) -> bool {
            true
        }
        fn work(&self) -> &ApiWork {
            &self.work
        }
        fn webhooks(&self) -> &[Arc<WebhookCounters>] {
            &[]
        }
        fn has_private_descriptors(&self) -> bool {
            false
        }
        fn limits(&self) -> &Limits {
            &self.limits
        }
        fn is_ready(&self) -> bool {
            true
        }
        fn store_fault(&self) -> Option<String> {
            None
        }
        fn check_memory(&self, _: usize, _: &str) -> Result<(), Refusal> {
            Ok(())
        }
        fn hiccups(&self) -> Option<Vec<(u64, u64)>> {
            None
        }
    }

    /// The drafts of each step, as they were answered, and the body of the answer.
    fn steps_of(request: String) -> (Vec<Vec<Draft>>, String) {
        let shard = Arc::new(HoldingShard::default());
        let shards: Arc<dyn Shards> = Arc::clone(&shard) as _;
        let mut steps: Vec<Vec<Draft>> = Vec::new();
        let answering = async {
            loop {
                tokio::task::yield_now().await;
                let held = std::mem::take(&mut *shard.held.lock().expect("no test panicked"));
                steps.push(held.into_iter().map(answered).collect());
            }
        };
        let asking = publish(State(shards), HeaderMap::new(), Bytes::from(request));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let both = select(Box::pin(asking), Box::pin(answering));
        let Either::Left((response, _)) = runtime.expect("a runtime").block_on(both);
        let body = to_bytes(response.expect("published").into_body(), usize::MAX);
        let body = body.now_or_never().expect("whole").expect("bytes");
        (steps, String::from_utf8(body.to_vec()).expect("text"))
    }

    fn answered(question: Question) -> Draft {
        let Question::Publish { draft, answer } = question else { panic!("{question:?}") };
        let position = Position { epoch: Epoch::new("e"), sequence: Sequence::START.next() };
        let topic = draft.topic.clone();
        let published = Published { topic, position, level: AckLevel::Memory };
        answer.send(Ok(published)).expect("it waits");
        draft
    }

    #[test]
    fn a_broadcast_shares_one_payload_and_goes_in_steps() {
        let topics: Vec<String> = (0..2_000).map(|number| format!("t/{number}")).collect();
        let request = serde_json::json!({"topics": topics, "text": "x".repeat(1000)});
        let (steps, body) = steps_of(request.to_string());
        let most = steps.iter().map(Vec::len).max();
        assert!(most <= Some(256), "{most:?} were under way");
        let drafts: Vec<&Draft> = steps.iter().flatten().collect();
        let bytes: HashSet<_> = drafts.iter().map(|draft| draft.payload.bytes().as_ptr()).collect();
        assert_eq!(bytes.len(), 1, "all have the same bytes");
        let names: Vec<&str> = drafts.iter().map(|draft| draft.topic.as_str()).collect();
        assert!(names == topics, "in order");
        let body: serde_json::Value = serde_json::from_str(&body).expect("JSON");
        assert_eq!(body["results"].as_array().map(Vec::len), Some(2_000));
        assert_eq!(body["results"][1999]["topic"], "t/1999");
    }

    #[test]
    fn what_is_wrong_with_a_broadcast_is_told_for_each_topic() {
        let (_, body) = steps_of(r#"{"topics":["a","b//","c"],"text":"x","data":1}"#.into());
        let body: serde_json::Value = serde_json::from_str(&body).expect("JSON");
        assert_eq!(body["results"].as_array().map(Vec::len), Some(3));
        assert_eq!(body["results"][2]["code"], 4210);
    }
}
