//! Errors with a stable number: the server's codes, and those that all SDKs share.

use std::fmt;

use model::{Advice, Code, Refusal};

/// The reason of a failure, as a number that programs match.
///
/// Of the SDKs' own codes (sdk/conformance/README.md) two cannot come up here: a client that is dropped has
/// nobody to tell that it was closed (4901), and what is not taken with `Client::next` is not read (4903).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    /// The server's. docs/protocol.md#codes.
    Server(Code),
    /// 4900: the connection broke before the answer, and nobody can tell what became of the command.
    Unanswered,
    /// 4902: as many commands wait for a connection as may.
    QueueFull,
    /// 4904: the connection could not be opened, or broke, without a code.
    Unreachable,
    /// 4905: what was asked for can never work here.
    Misused,
    /// 4906: there was no connection in time. It was never sent, and is not carried out.
    NotSent,
}

impl ErrorCode {
    /// The number.
    pub fn number(self) -> u16 {
        match self {
            Self::Server(code) => code.number(),
            Self::Unanswered => 4900,
            Self::QueueFull => 4902,
            Self::Unreachable => 4904,
            Self::Misused => 4905,
            Self::NotSent => 4906,
        }
    }

    /// The best reaction; `None` where only the caller knows.
    pub fn advice(self) -> Option<Advice> {
        match self {
            Self::Server(code) => Some(code.advice()),
            Self::Unreachable => Some(Advice::RetryLater),
            Self::Misused => Some(Advice::ChangeFirst),
            Self::Unanswered | Self::QueueFull | Self::NotSent => None,
        }
    }
}

/// Something that was not done: the code, and the three things to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientError {
    /// The stable number.
    pub code: ErrorCode,
    /// The failure, its reason and its remedy.
    pub text: String,
}

impl ClientError {
    /// An error with this code and sentence.
    pub fn new(code: ErrorCode, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }
}

impl From<Refusal> for ClientError {
    fn from(refusal: Refusal) -> Self {
        Self { code: ErrorCode::Server(refusal.code), text: refusal.text }
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (code {})", self.text, self.code.number())
    }
}

impl std::error::Error for ClientError {}
