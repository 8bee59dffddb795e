//! Which path leads where, and what goes for all of them.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use model::{Code, Principal, Refusal};

use crate::error::{ApiError, json_header};
use crate::question::Shards;
use crate::{hiccups, history, metrics, page, publish, slow, topics};

/// How long a shard may take to answer.
pub(crate) const SHARD_ANSWER_MAX: Duration = Duration::from_secs(10);

/// All paths of the ordinary HTTP side.
pub fn router(shards: Arc<dyn Shards>) -> Router {
    Router::new()
        .route("/", get(page::index))
        .route("/page/{*path}", get(page::file))
        .route("/health", get(health))
        .route("/ready", get(ready))
        .route("/metrics", get(metrics::metrics))
        .route("/diagnostics/hiccups", get(hiccups::hiccups))
        .route("/v1/publish", post(publish::publish))
        .route("/v1/topics", get(topics::list))
        .route("/v1/topics/{*topic}", get(topics::value))
        .route("/v1/history/{*topic}", get(history::history))
        .route("/v1/slow", get(slow::slow))
        .fallback(not_found)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(Arc::clone(&shards), check_origin))
        // The engine has bounded the body already.
        .layer(DefaultBodyLimit::disable())
        .with_state(shards)
}

async fn health() -> Response {
    (json_header(), "{\"status\":\"ok\"}").into_response()
}

async fn ready(State(shards): State<Arc<dyn Shards>>) -> Result<Response, ApiError> {
    if shards.is_ready() {
        return Ok((json_header(), "{\"status\":\"ready\"}").into_response());
    }
    let text = "cannot serve now: the server is starting or stopping; try another node, or again";
    Err(Refusal::new(Code::GoingAway, text).into())
}

async fn not_found(request: Request) -> ApiError {
    let path = request.uri().path();
    let text = format!(
        "cannot find `{path}`: there is nothing under that path; see section 1 of the protocol"
    );
    ApiError(Refusal::new(Code::NotFound, text))
}

async fn wrong_method(request: Request) -> ApiError {
    let (method, path) = (request.method(), request.uri().path());
    let text = format!(
        "cannot {method} `{path}`: it does not take that method; see section 7 of the protocol"
    );
    ApiError(Refusal::new(Code::WrongMethod, text))
}

/// Refuses pages of foreign origins, and tells browsers of those that are allowed.
async fn check_origin(
    State(shards): State<Arc<dyn Shards>>,
    request: Request,
    next: Next,
) -> Response {
    let headers = request.headers();
    let text_of = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let Some(origin) = text_of(header::ORIGIN).map(str::to_owned) else {
        return next.run(request).await;
    };
    let host = text_of(header::HOST).unwrap_or("");
    if !shards.origin_allowed(&origin, host) {
        let text = format!(
            "cannot serve pages of `{origin}`: it is not this server's own origin; add it to \
             access.origins in the configuration"
        );
        return ApiError(Refusal::new(Code::ForeignOrigin, text)).into_response();
    }
    let mut response = match *request.method() {
        Method::OPTIONS => StatusCode::NO_CONTENT.into_response(),
        _ => next.run(request).await,
    };
    let headers = response.headers_mut();
    if let Ok(origin) = HeaderValue::from_str(&origin) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    }
    headers.insert(header::VARY, HeaderValue::from_static("origin"));
    let methods = HeaderValue::from_static("GET, POST");
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
    let fields = HeaderValue::from_static("authorization, content-type, last-event-id");
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, fields);
    response
}

/// Who sent a request, by its `Authorization: Bearer`.
pub(crate) fn principal_of(
    shards: &dyn Shards,
    headers: &HeaderMap,
) -> Result<Arc<Principal>, Refusal> {
    let authorization = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    shards.principal(authorization.and_then(|value| value.strip_prefix("Bearer ")))
}
