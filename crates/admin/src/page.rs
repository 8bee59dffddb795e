//! The page at `/`: what the server carries right now, live.

use axum::response::{IntoResponse, Response};
use http::header;

pub(crate) async fn index() -> Response {
    let fields = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CACHE_CONTROL, "no-cache"),
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
             connect-src 'self'; img-src data:",
        ),
    ];
    (fields, include_str!("page/index.html")).into_response()
}
