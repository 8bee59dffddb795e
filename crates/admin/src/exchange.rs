//! Requests in and answers out, as values.

use std::future::poll_fn;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use futures_util::task::AtomicWaker;
use http_body_util::BodyExt;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
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
    /// How much of the answer may be in progress.
    fn window(&self) -> &AnswerWindow;
    /// Status and fields; `body_len` in bytes where known.
    fn head(&mut self, parts: &http::response::Parts, body_len: Option<u64>);
    /// The next piece of body; gives it back when there is no room right now.
    fn chunk(&mut self, bytes: Bytes) -> Result<(), Bytes>;
    /// Nothing more comes. Answers false when there is no room right now.
    fn end(&mut self) -> bool;
}

/// The part of an answer that may exist before its connection takes it: the producer waits here.
#[derive(Debug)]
pub struct AnswerWindow(Arc<Window>);

/// The side that takes the answer. Once it is dropped, nothing more is made.
#[derive(Debug)]
pub struct AnswerTaker(Arc<Window>);

#[derive(Debug)]
struct Window {
    bytes_max: usize,
    under_way: AtomicUsize,
    is_given_up: AtomicBool,
    maker: AtomicWaker,
}

impl AnswerWindow {
    /// Both sides of a window of so many bytes.
    pub fn new(bytes_max: usize) -> (Self, AnswerTaker) {
        let (under_way, is_given_up, maker) = Default::default();
        let window = Arc::new(Window { bytes_max, under_way, is_given_up, maker });
        (Self(Arc::clone(&window)), AnswerTaker(window))
    }

    /// Notes bytes that are under way.
    pub fn send(&self, bytes: usize) {
        self.0.under_way.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Notes that bytes are not under way after all.
    pub fn take_back(&self, bytes: usize) {
        self.0.take(bytes);
    }

    /// Waits until there is room for `bytes`; any number has if nothing is under way. Answers false if the answer is
    /// given up.
    async fn has_room(&self, bytes: usize) -> bool {
        let window = &*self.0;
        poll_fn(|context| {
            window.maker.register(context.waker());
            let under_way = window.under_way.load(Ordering::Acquire);
            if window.is_given_up.load(Ordering::Acquire) {
                Poll::Ready(false)
            } else if under_way == 0 || under_way + bytes <= window.bytes_max {
                Poll::Ready(true)
            } else {
                Poll::Pending
            }
        })
        .await
    }
}

impl Window {
    fn take(&self, bytes: usize) {
        let less = |under_way: usize| Some(under_way.saturating_sub(bytes));
        // It always changes something.
        let _ = self.under_way.fetch_update(Ordering::AcqRel, Ordering::Relaxed, less);
    }
}

impl AnswerTaker {
    /// Notes bytes that the connection took.
    pub fn take(&self, bytes: usize) {
        self.0.take(bytes);
        self.0.maker.wake();
    }
}

impl Drop for AnswerTaker {
    fn drop(&mut self) {
        self.0.is_given_up.store(true, Ordering::Release);
        self.0.maker.wake();
    }
}

/// Runs the API until `exchanges` closes, in the calling thread.
///
/// # Panics
/// If the system has no room for a runtime, or answering panics.
pub fn run(router: Router, mut exchanges: mpsc::Receiver<Exchange>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime without I/O needs nothing that could be missing");
    runtime.block_on(async move {
        let mut answers = JoinSet::new();
        while let Some(exchange) = next(&mut exchanges, &mut answers).await {
            answers.spawn(answer(router.clone(), exchange));
        }
    });
}

/// The next request. A panic of an answer continues here: a server that leaves requests unanswered is to end.
async fn next(
    exchanges: &mut mpsc::Receiver<Exchange>,
    answers: &mut JoinSet<()>,
) -> Option<Exchange> {
    poll_fn(|context| {
        while let Poll::Ready(Some(ended)) = answers.poll_join_next(context) {
            if let Err(error) = ended
                && let Ok(reason) = error.try_into_panic()
            {
                resume_unwind(reason);
            }
        }
        exchanges.poll_recv(context)
    })
    .await
}

/// Bytes that are sent at a time, where an answer comes whole.
const FRAME_BYTES: usize = 64 << 10;

async fn answer(mut router: Router, exchange: Exchange) {
    let Exchange { request, mut answer } = exchange;
    let is_head = request.method() == http::Method::HEAD;
    let Ok(response) = router.call(request.map(Body::from)).await;
    let (parts, body) = response.into_parts();
    let mut body = Box::pin(body);
    // To a HEAD the router answers without a body, and with the length that a GET's would have.
    let said = parts
        .headers
        .get(http::header::CONTENT_LENGTH)
        .and_then(|len| len.to_str().ok()?.parse().ok());
    let body_len = match is_head {
        true => said,
        false => http_body::Body::size_hint(&*body).exact(),
    };
    answer.head(&parts, body_len);
    while !is_head && let Some(Ok(frame)) = body.frame().await {
        let Ok(mut bytes) = frame.into_data() else { continue };
        while !bytes.is_empty() {
            let mut piece = bytes.split_to(bytes.len().min(FRAME_BYTES));
            if !answer.window().has_room(piece.len()).await {
                return;
            }
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

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn a_window_lets_in_as_much_as_was_taken() {
        let (window, taker) = AnswerWindow::new(100);
        let has_room = |bytes: usize| window.has_room(bytes).now_or_never();
        assert_eq!(has_room(1_000), Some(true), "one is made, however large");
        window.send(60);
        assert_eq!((has_room(40), has_room(41)), (Some(true), None));
        window.send(40);
        assert_eq!(has_room(1), None);
        taker.take(30);
        assert_eq!((has_room(30), has_room(31)), (Some(true), None));
        taker.take(1_000);
        assert_eq!(has_room(1_000), Some(true));
        window.send(100);
        drop(taker);
        assert_eq!(has_room(1), Some(false), "nobody takes it any more");
    }
}
