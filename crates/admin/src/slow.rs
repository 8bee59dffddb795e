//! `GET /v1/slow`: the sessions that are behind, the one that lags most first.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures_util::future::join_all;
use http::HeaderMap;
use model::{Refusal, Selector};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::oneshot;

use crate::asked::{Asked, SHARD_ANSWER_MAX};
use crate::error::{ApiError, json_header, no_answer};
use crate::question::{Question, Shards, Slow};
use crate::topics::check_read;

/// Sessions that one answer tells of at most.
const SLOW_MAX: usize = 100;

#[derive(Debug, Deserialize)]
pub(crate) struct SlowQuery {
    limit: Option<usize>,
}

pub(crate) async fn slow(
    State(shards): State<Arc<dyn Shards>>,
    Asked(query): Asked<SlowQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    const USUAL: usize = 10;
    let everything = Selector::parse("#", shards.limits()).expect("a valid selector");
    check_read(&*shards, &headers, &everything)?;
    let limit = query.limit.unwrap_or(USUAL).clamp(1, SLOW_MAX);
    let mut slow = ask_all(&*shards, limit).await?;
    slow.sort_by_key(|session| std::cmp::Reverse(session.lag_ms));
    slow.truncate(limit);
    let sessions: Vec<serde_json::Value> = slow.iter().map(shown).collect();
    Ok((json_header(), json!({ "slow": sessions }).to_string()).into_response())
}

async fn ask_all(shards: &dyn Shards, limit: usize) -> Result<Vec<Slow>, Refusal> {
    let mut answers = Vec::new();
    for shard in 0..shards.count() {
        let (answer, hears) = oneshot::channel();
        shards.ask(shard, Question::Slow { limit, answer })?;
        answers.push(tokio::time::timeout(SHARD_ANSWER_MAX, hears));
    }
    let mut all = Vec::new();
    for answer in join_all(answers).await {
        all.extend(answer.map_err(|_| no_answer())?.map_err(|_| no_answer())?);
    }
    Ok(all)
}

fn shown(slow: &Slow) -> serde_json::Value {
    json!({
        "session": slow.session,
        "principal": slow.principal,
        "lag_ms": slow.lag_ms,
        "lag_bytes": slow.lag_bytes,
        "lag_publications": slow.lag_count,
        "topic": slow.topic.as_ref().map(|(topic, _)| topic.as_str()),
        "conflation": slow.topic.as_ref().map(|(_, conflation)| conflation.name()),
        "waits_for": if slow.is_throttled { "throttle" } else { "connection" },
    })
}
