//! `GET /v1/sessions`: who is connected, page by page.
//!
//! The order is the shards', each in order of its connections; a session that comes or goes meanwhile may be in a page or not,
//! every other one is in exactly one.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::HeaderMap;
use model::{Code, Refusal, Selector, Wish};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::asked::{Asked, SHARD_ANSWER_MAX, principal_of};
use crate::error::{ApiError, json_header, no_answer};
use crate::question::{Question, SeenSession, Shards};

/// The bytes of one session in a listing.
const LISTED_BYTES: usize = 1 << 10;

#[derive(Debug, Deserialize)]
pub(crate) struct SessionsQuery {
    limit: Option<usize>,
    after: Option<String>,
}

/// Where a page begins: at the beginning of a shard, or after one of its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    shard: usize,
    after: Option<u32>,
}

impl Place {
    fn parse(text: &str) -> Option<Self> {
        let (shard, after) = match text.split_once('-') {
            Some((shard, after)) => (shard, Some(after.parse().ok()?)),
            None => (text, None),
        };
        Some(Self { shard: shard.parse().ok()?, after })
    }

    fn text(self) -> String {
        let Self { shard, after } = self;
        after.map_or_else(|| shard.to_string(), |after| format!("{shard}-{after}"))
    }
}

pub(crate) async fn sessions(
    State(shards): State<Arc<dyn Shards>>,
    Asked(query): Asked<SessionsQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    const PAGE_LEN: usize = 100;
    principal_of(&*shards, &headers)?.check(Wish::Inspect(&selector()))?;
    let mut place = match &query.after {
        None => Place { shard: 0, after: None },
        Some(text) => Place::parse(text).ok_or_else(|| {
            let why = "it is not a place in the list; give `next` of the page before";
            Refusal::new(Code::BadRequest, format!("cannot list sessions after `{text}`: {why}"))
        })?,
    };
    let limit = query.limit.unwrap_or(PAGE_LEN).clamp(1, shards.limits().page_len_max);
    shards.check_memory(limit * LISTED_BYTES, "list sessions")?;
    let mut found: Vec<Value> = Vec::new();
    while place.shard < shards.count() && found.len() < limit {
        let part = ask(&*shards, place, limit - found.len()).await?;
        found.extend(part.0.iter().map(shown));
        place = match part.1 {
            Some(after) => Place { after: Some(after), ..place },
            None => Place { shard: place.shard + 1, after: None },
        };
    }
    let mut page = json!({ "sessions": found });
    if place.shard < shards.count() {
        page["next"] = place.text().into();
    }
    Ok((json_header(), page.to_string()).into_response())
}

/// The right to list sessions.
fn selector() -> Selector {
    Selector::parse(model::SESSIONS_TOPIC, &model::Limits::default()).expect("a valid name")
}

/// Sessions of one shard, and where to go on in it.
async fn ask(
    shards: &dyn Shards,
    place: Place,
    limit: usize,
) -> Result<(Vec<SeenSession>, Option<u32>), Refusal> {
    let (answer, hears) = oneshot::channel();
    shards.ask(place.shard, Question::Sessions { after: place.after, limit, answer })?;
    let answer = tokio::time::timeout(SHARD_ANSWER_MAX, hears).await;
    answer.map_err(|_| no_answer())?.map_err(|_| no_answer())
}

fn shown(seen: &SeenSession) -> Value {
    json!({
        "session": seen.session,
        "principal": seen.principal,
        "client": seen.client,
        "peer": seen.peer.map(|peer| peer.to_string()),
        "transport": seen.transport,
        "subscriptions": seen.subscriptions,
        "in_step": seen.is_in_step,
        "heard_s": seen.heard_s,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_and_nothing_else_is() {
        for (text, after) in [("3-17", Some(17)), ("3", None)] {
            let place = Place { shard: 3, after };
            assert_eq!((Place::parse(text), place.text()), (Some(place), text.to_owned()));
        }
        for text in ["", "3-", "-3", "a-1", "1-4294967296", "1-2-3"] {
            assert_eq!(Place::parse(text), None, "{text}");
        }
    }
}
