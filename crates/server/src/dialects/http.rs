//! Requests and their answers.

use admin::AnswerTaker;
use protocol::http::{BodyReader, RequestHead};

use crate::byte_queue::ByteQueue;

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
