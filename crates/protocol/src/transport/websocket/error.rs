//! Why frames cannot be read, and what the peer is told of it.

use model::{Code, Refusal};

/// Why frames cannot be read any further. The connection is of no more use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// A reserved bit is set, though no extension was agreed.
    ReservedBit,
    /// A compressed message that does not decompress.
    BadDeflate,
    /// The opcode means nothing.
    UnknownOpcode(u8),
    /// A client's frame is not masked, or a server's is.
    WrongMask,
    /// A control frame is fragmented or longer than 125 bytes.
    BadControlFrame,
    /// A message starts within another, or goes on though none was begun.
    BadContinuation,
    /// A close frame's payload breaks section 5.5.1.
    BadClose,
    /// Text that is not UTF-8.
    BadUtf8,
    /// A message of more bytes than the limit.
    TooLarge {
        /// The limit.
        bytes_max: usize,
    },
}

impl FrameError {
    /// The close code that tells the peer. RFC 6455, section 7.4.1.
    pub fn close_code(self) -> u16 {
        match self {
            Self::BadUtf8 | Self::BadDeflate => 1007,
            Self::TooLarge { .. } => 1009,
            _ => 1002,
        }
    }

    /// The same in our words.
    pub fn refusal(self) -> Refusal {
        let (code, why) = match self {
            Self::ReservedBit => {
                (Code::BadFrame, "a reserved bit is set; agree on extensions first".to_owned())
            }
            Self::BadDeflate => (
                Code::BadFrame,
                "a compressed message is not a deflate stream; send raw deflate without its last 4 bytes"
                    .to_owned(),
            ),
            Self::UnknownOpcode(opcode) => {
                (Code::BadFrame, format!("opcode {opcode} means nothing; send 0, 1, 2, 8, 9 or 10"))
            }
            Self::WrongMask => {
                (Code::BadFrame, "clients mask their frames and servers do not; mend it".to_owned())
            }
            Self::BadControlFrame => (
                Code::BadFrame,
                "a control frame is fragmented or longer than 125 bytes; send it whole".to_owned(),
            ),
            Self::BadContinuation => (
                Code::BadFrame,
                "fragments of two messages are mixed up; end one message first".to_owned(),
            ),
            Self::BadClose => (
                Code::BadFrame,
                "a close frame has a bad code or reason; send a valid one".to_owned(),
            ),
            Self::BadUtf8 => {
                (Code::BadUtf8, "text is not UTF-8; send UTF-8, or a binary message".to_owned())
            }
            Self::TooLarge { bytes_max } => (
                Code::MessageTooLarge,
                format!(
                    "a message is larger than message_bytes_max, {bytes_max}; send smaller ones, \
                     or raise the limit in the configuration"
                ),
            ),
        };
        Refusal::new(code, format!("cannot read the WebSocket frame: {why}"))
    }
}
