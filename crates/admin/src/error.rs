//! Refusals as HTTP answers. docs/protocol.md#http-api and docs/protocol.md#codes.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use model::{Code, Refusal};

/// A refusal on its way to becoming an answer.
#[derive(Debug)]
pub(crate) struct ApiError(pub Refusal);

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        Self(refusal)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let Self(refusal) = self;
        let status = StatusCode::from_u16(refusal.code.http_status())
            .expect("every code has a valid HTTP status");
        let mut response =
            (status, json_header(), error_body(&refusal).to_string()).into_response();
        if status == StatusCode::UNAUTHORIZED {
            let bearer = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, bearer);
        }
        if let Some(seconds) = refusal.code.retry_after() {
            let seconds = HeaderValue::from_static(seconds);
            response.headers_mut().insert(header::RETRY_AFTER, seconds);
        }
        // For whoever logs what is refused.
        response.extensions_mut().insert(refusal);
        response
    }
}

/// The JSON form of a refusal.
pub(crate) fn error_body(refusal: &Refusal) -> serde_json::Value {
    serde_json::json!({
        "code": refusal.code.number(),
        "word": refusal.code.word(),
        "error": refusal.text,
    })
}

pub(crate) fn json_header() -> [(header::HeaderName, &'static str); 1] {
    [(header::CONTENT_TYPE, "application/json")]
}

/// A shard did not answer; it is stopping, or drowning.
pub(crate) fn no_answer() -> Refusal {
    let text = "cannot answer: the shard did not reply in time; try again";
    Refusal::new(Code::Busy, text)
}
