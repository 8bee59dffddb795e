//! Requests and their answers.

use admin::AnswerTaker;
use hub::Hub;
use model::Limits;
use protocol::http::{BodyReader, RequestHead};

use super::speech::{Overdue, Quiet, Speech};
use crate::byte_queue::ByteQueue;
use crate::encoder::NativeEncoder;

/// A request whose body is arriving.
#[derive(Debug)]
pub(crate) struct Arriving {
    pub head: RequestHead,
    pub body: BodyReader,
    /// What the socket did not take yet of `100 Continue`.
    pub unsent: ByteQueue,
}

/// A request that was handed on.
#[derive(Debug, Default)]
pub(crate) struct Answering {
    pub keep_alive: bool,
    /// The request was a HEAD: the answer has no body.
    pub is_head: bool,
    /// Bytes received after the request.
    pub early: ByteQueue,
    /// Bytes of the answer that the socket did not take yet.
    pub unsent: ByteQueue,
    /// Where the API waits to make more of it.
    pub taker: Option<AnswerTaker>,
    /// All of the answer is here.
    pub is_whole: bool,
    /// When its first byte was here, in whole seconds.
    pub begun_at: Option<u32>,
}

/// What is here of a request's head.
impl Speech for ByteQueue {
    fn overdue(&self, quiet: Quiet, limits: &Limits, _: Option<Overdue>) -> Option<Overdue> {
        match self.is_empty() {
            true => (quiet.lasts > limits.keep_alive_ms).then_some(Overdue::Idle),
            false => (quiet.lasts > limits.request_ms).then_some(Overdue::Slow),
        }
    }
}

impl Speech for Arriving {
    fn overdue(&self, quiet: Quiet, limits: &Limits, _: Option<Overdue>) -> Option<Overdue> {
        (quiet.lasts > limits.request_ms).then_some(Overdue::Slow)
    }
}

impl Speech for Answering {
    fn is_all_taken(&self, _: &Hub<NativeEncoder>) -> bool {
        self.unsent.is_empty() && self.is_whole
    }

    fn overdue(&self, quiet: Quiet, limits: &Limits, _: Option<Overdue>) -> Option<Overdue> {
        let is_over = self.begun_at.is_some_and(|at| quiet.since(at) > limits.answer_ms);
        is_over.then_some(Overdue::Idle)
    }
}
