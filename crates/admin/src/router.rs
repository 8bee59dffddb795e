//! Which path leads where, and what goes for all of them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use http::{HeaderValue, Method, StatusCode, header};
use model::{Code, Refusal};
use serde_json::{Map, Value, json};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use crate::error::{ApiError, json_header};
use crate::question::{Question, Shards};
use crate::webhooks::WebhookCounters;
use crate::{hiccups, history, metrics, page, publish, put as put_topic, sessions, slow, topics};

/// The same for being ready: those who ask wait no longer, as a rule.
const READY_ANSWER_MAX: Duration = Duration::from_millis(800);

/// Lists paths with their methods and what serves them, once for the router and once for whoever checks them.
macro_rules! paths {
    ($($method:ident $path:literal $handler:path;)*) => {
        /// The methods and paths of the ordinary HTTP side.
        pub const PATHS: &[(&str, &str)] = &[$((stringify!($method), $path)),*];

        fn routes() -> Router<Arc<dyn Shards>> {
            Router::new()$(.route($path, $method($handler)))*
        }
    };
}

paths! {
    get "/" page::index;
    get "/demo" page::demo;
    get "/favicon.ico" page::icon;
    get "/page/{*path}" page::file;
    get "/health" health;
    get "/ready" ready;
    get "/metrics" metrics::metrics;
    get "/diagnostics/hiccups" hiccups::hiccups;
    post "/v1/publish" publish::publish;
    get "/v1/topics" topics::list;
    get "/v1/topics/{*topic}" topics::value;
    put "/v1/topics/{*topic}" put_topic::put;
    get "/v1/history/{*topic}" history::history;
    get "/v1/slow" slow::slow;
    get "/v1/sessions" sessions::sessions;
}

/// All paths of the ordinary HTTP side.
pub fn router(shards: Arc<dyn Shards>) -> Router {
    routes()
        .fallback(not_found)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(Arc::clone(&shards), check_origin))
        // The engine has bounded the body already.
        .layer(DefaultBodyLimit::disable())
        .with_state(shards)
}

async fn health(State(shards): State<Arc<dyn Shards>>) -> Response {
    state_of("ok", shards.store_fault(), Map::new())
}

async fn ready(State(shards): State<Arc<dyn Shards>>) -> Result<Response, ApiError> {
    if !shards.is_ready() {
        let text =
            "cannot serve now: the server is starting or stopping; try another node, or again";
        return Err(Refusal::new(Code::GoingAway, text).into());
    }
    let asked: Vec<_> = (0..shards.count()).map(|shard| ask_alive(&*shards, shard)).collect();
    let until = Instant::now() + READY_ANSWER_MAX;
    for (shard, answer) in asked.into_iter().enumerate() {
        let is_alive = match answer {
            Ok(answer) => matches!(timeout_at(until, answer).await, Ok(Ok(()))),
            Err(_) => false,
        };
        if !is_alive {
            let text = format!(
                "cannot serve now: shard-{shard} does not answer; try another node, or again"
            );
            return Err(Refusal::new(Code::Busy, text).into());
        }
    }
    Ok(state_of("ready", shards.store_fault(), troubled_bridges(shards.webhooks())))
}

fn ask_alive(shards: &dyn Shards, shard: usize) -> Result<oneshot::Receiver<()>, Refusal> {
    let (tell, answer) = oneshot::channel();
    shards.ask(shard, Question::Alive { answer: tell })?;
    Ok(answer)
}

/// The bridges that do not deliver now, by name. The server serves all the same.
fn troubled_bridges(webhooks: &[Arc<WebhookCounters>]) -> Map<String, Value> {
    let state = |it: &Arc<WebhookCounters>| {
        let state = match it.failing.load(Ordering::Relaxed) {
            0 => return None,
            1 => "failing",
            _ => "gone",
        };
        Some((it.name.clone(), state.into()))
    };
    webhooks.iter().filter_map(state).collect()
}

/// A server whose disk failed still serves topics in memory, and says what it does not serve.
fn state_of(status: &str, store_fault: Option<String>, bridges: Map<String, Value>) -> Response {
    let mut body = json!({ "status": status });
    if let Some(fault) = store_fault {
        body["store"] = fault.into();
    }
    if !bridges.is_empty() {
        body["bridges"] = bridges.into();
    }
    (json_header(), body.to_string()).into_response()
}

async fn not_found(request: Request) -> ApiError {
    let path = request.uri().path();
    let text = format!(
        "cannot find `{path}`: there is nothing under that path; see docs/protocol.md#endpoints"
    );
    ApiError(Refusal::new(Code::NotFound, text))
}

async fn wrong_method(request: Request) -> ApiError {
    let (method, path) = (request.method(), request.uri().path());
    let text = format!(
        "cannot {method} `{path}`: it does not take that method; see docs/protocol.md#http-api"
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
        return ApiError(Refusal::foreign_origin(&origin)).into_response();
    }
    let is_listed = shards.origin_listed(&origin);
    let mut response = match *request.method() {
        Method::OPTIONS => StatusCode::NO_CONTENT.into_response(),
        _ => next.run(request).await,
    };
    let headers = response.headers_mut();
    if let Ok(origin) = HeaderValue::from_str(&origin) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    }
    headers.insert(header::VARY, HeaderValue::from_static("origin"));
    // Of the others there is only the server's own, which asks nobody.
    let (methods, fields) = match is_listed {
        true => (
            "GET, POST, PUT, DELETE",
            "authorization, content-type, idempotency-key, if-match, if-none-match, last-event-id",
        ),
        false => ("GET, POST", "authorization, content-type, last-event-id"),
    };
    let mut say = |name, value| headers.insert(name, HeaderValue::from_static(value));
    say(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
    say(header::ACCESS_CONTROL_ALLOW_HEADERS, fields);
    say(header::ACCESS_CONTROL_EXPOSE_HEADERS, "etag");
    response
}
