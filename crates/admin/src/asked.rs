//! The parts of a request that handlers use: its topic, its query, and its principal with its rights.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequestParts, Path, Query};
use http::request::Parts;
use http::{HeaderMap, header};
use model::{Code, Limits, Principal, Refusal, Selector, TopicName, Wish, bearer_token};
use serde::de::DeserializeOwned;

use crate::error::ApiError;
use crate::question::Shards;

/// How long a shard may take to answer.
pub(crate) const SHARD_ANSWER_MAX: Duration = Duration::from_secs(10);

/// The topic that a path names: percent-encoded UTF-8, decoded once, so that `%2F` is a slash like others.
pub(crate) struct TopicOf(pub TopicName);

impl FromRequestParts<Arc<dyn Shards>> for TopicOf {
    type Rejection = ApiError;

    async fn from_request_parts(
        parts: &mut Parts,
        shards: &Arc<dyn Shards>,
    ) -> Result<Self, ApiError> {
        let bad = |why: String| ApiError(Refusal::new(Code::BadTopic, why));
        let Path(name) = Path::<String>::from_request_parts(parts, shards).await.map_err(|_| {
            bad(format!(
                "cannot read the topic of `{}`: it is not UTF-8 once its %XX are decoded; encode it \
                 as UTF-8",
                parts.uri.path()
            ))
        })?;
        TopicName::parse(&name, shards.limits()).map(Self).map_err(|error| bad(error.to_string()))
    }
}

/// The query of a request.
pub(crate) struct Asked<T>(pub T);

impl<T: DeserializeOwned> FromRequestParts<Arc<dyn Shards>> for Asked<T> {
    type Rejection = ApiError;

    async fn from_request_parts(
        parts: &mut Parts,
        shards: &Arc<dyn Shards>,
    ) -> Result<Self, ApiError> {
        let query = Query::<T>::from_request_parts(parts, shards).await;
        query.map(|Query(asked)| Self(asked)).map_err(|error| {
            let text = format!(
                "cannot read the query of `{}`: {}; mend it, see docs/protocol.md#http-api",
                parts.uri.path(),
                error.body_text()
            );
            ApiError(Refusal::new(Code::BadRequest, text))
        })
    }
}

/// The field in which the shards say whose certificate a connection was opened with. Clients cannot set it.
pub const CERTIFICATE: &str = "tidegate-certificate";

/// The principal of a request, by its `Authorization: Bearer`, else by the certificate of its connection.
pub(crate) fn principal_of(
    shards: &dyn Shards,
    headers: &HeaderMap,
) -> Result<Arc<Principal>, Refusal> {
    // The engine has read it as UTF-8 already.
    let authorization =
        headers.get(header::AUTHORIZATION).map(|value| value.to_str().unwrap_or(""));
    let token = bearer_token(authorization)?;
    let certificate = headers.get(CERTIFICATE).and_then(|name| name.to_str().ok());
    match certificate.filter(|_| token.is_none()).and_then(|name| shards.certified(name)) {
        Some(principal) => Ok(principal),
        None => shards.principal(token),
    }
}

/// Whether who sent a request may see how the server is: it takes the right to read a topic of that name.
pub(crate) fn check_observe(
    shards: &dyn Shards,
    headers: &HeaderMap,
    name: &str,
) -> Result<(), Refusal> {
    let selector = Selector::parse(name, &Limits::default()).expect("a valid name");
    principal_of(shards, headers)?.check(Wish::Read(&selector))
}
