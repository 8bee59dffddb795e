//! Requests in and answers out, as values.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use http_body_util::BodyExt;
use tokio::sync::mpsc;
use tower_service::Service;

/// One ordinary HTTP request, and the way back.
pub struct Exchange {
    /// The request, with its whole body.
    pub request: http::Request<Bytes>,
    /// Where the answer goes.
    pub answer: Box<dyn Answer>,
}

/// Where the parts of an answer go.
pub trait Answer: Send {
    /// Status and fields; `body_len` in bytes where known.
    fn head(&mut self, parts: &http::response::Parts, body_len: Option<u64>);
    /// The next piece of body; gives it back when there is no room right now.
    fn chunk(&mut self, bytes: Bytes) -> Result<(), Bytes>;
    /// Nothing more comes. Answers false when there is no room right now.
    fn end(&mut self) -> bool;
}

/// Runs the API until `exchanges` closes, in the calling thread.
///
/// # Panics
/// If the system has no room for a runtime.
pub fn run(router: Router, mut exchanges: mpsc::Receiver<Exchange>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime without I/O needs nothing that could be missing");
    runtime.block_on(async move {
        while let Some(exchange) = exchanges.recv().await {
            let router = router.clone();
            tokio::spawn(answer(router, exchange));
        }
    });
}

async fn answer(mut router: Router, exchange: Exchange) {
    let Exchange { request, mut answer } = exchange;
    let is_head = request.method() == http::Method::HEAD;
    let Ok(response) = router.call(request.map(Body::from)).await;
    let (parts, body) = response.into_parts();
    let mut body = Box::pin(body);
    let body_len = http_body::Body::size_hint(&*body).exact();
    answer.head(&parts, body_len);
    while !is_head && let Some(Ok(frame)) = body.frame().await {
        let Ok(mut bytes) = frame.into_data() else { continue };
        const PIECE: usize = 64 << 10;
        while !bytes.is_empty() {
            let mut piece = bytes.split_to(bytes.len().min(PIECE));
            while let Err(back) = answer.chunk(piece) {
                piece = back;
                wait_for_room().await;
            }
        }
    }
    while !answer.end() {
        wait_for_room().await;
    }
}

async fn wait_for_room() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}
