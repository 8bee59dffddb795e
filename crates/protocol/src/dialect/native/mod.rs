//! The native dialect: one set of commands and events, as JSON and as binary records.
//!
//! docs/protocol.md is normative. The tests run its vectors and hold its tables of fields against the code.

pub mod binary;
mod conversation;
mod encode;
mod events;
mod extras;
pub mod json;
mod opening;
#[cfg(test)]
mod tables;
mod varint;
mod wire;

pub use conversation::Conversation;
pub use encode::{Encoding, Framing, MessageBuilder, Told};
pub use events::{EventId, EventPlace, join_epochs};
pub use extras::{DeliveryRef, Extras, PreviousRef};
pub use json::requests::timeout_of;
pub use opening::{Batch, Opening, decode_opening};

use model::{CommandId, DeltaKind, Event, PayloadKind, Refusal, Sequence};

/// A command that could not be read, and its id if that could.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undecoded {
    /// Which command.
    pub id: Option<CommandId>,
    /// The error.
    pub refusal: Refusal,
}

/// A record from a server.
#[derive(Clone, Debug, PartialEq)]
pub enum ServerRecord<'a> {
    /// Anything but a publication.
    Event(Event),
    /// The answer to a binary `publish`.
    Published {
        /// Which command.
        id: CommandId,
        /// The place it was given.
        sequence: Sequence,
        /// The life of the numbering.
        epoch: String,
    },
    /// A publication.
    Publication {
        /// Which topic.
        topic: TopicRef<'a>,
        /// Which place in it.
        sequence: SequenceRef,
        /// The kind of the payload.
        kind: PayloadKind,
        /// The payload.
        payload: std::borrow::Cow<'a, [u8]>,
        /// Its optional members.
        extras: Extras<'a>,
    },
    /// A publication, told as its difference from an earlier one.
    Delta {
        /// Which topic.
        topic: TopicRef<'a>,
        /// Which place in it.
        sequence: Sequence,
        /// The place of the earlier one.
        base: Sequence,
        /// The kind of the payload.
        kind: PayloadKind,
        /// How the difference is told.
        delta: DeltaKind,
        /// The check of the result, as `payload::delta` has it.
        crc: u32,
        /// The difference.
        bytes: std::borrow::Cow<'a, [u8]>,
        /// The publication's optional members.
        extras: Extras<'a>,
    },
    /// A piece of a publication's payload.
    Fragment {
        /// Which topic.
        topic: TopicRef<'a>,
        /// Which place in it.
        sequence: Sequence,
        /// The kind of the payload.
        kind: PayloadKind,
        /// Bytes in the whole payload.
        total: u64,
        /// Where in it the piece belongs.
        offset: u64,
        /// The piece.
        bytes: std::borrow::Cow<'a, [u8]>,
        /// The publication's optional members, in its first piece.
        extras: Extras<'a>,
    },
}

/// A difference to be written.
#[derive(Clone, Copy, Debug)]
pub struct DeltaRef<'a> {
    /// The place of the earlier publication.
    pub base: Sequence,
    /// How the difference is told.
    pub kind: DeltaKind,
    /// The check of the result.
    pub crc: u32,
    /// The difference.
    pub bytes: &'a [u8],
}

/// How a record names its topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopicRef<'a> {
    /// By name (JSON).
    Name(std::borrow::Cow<'a, str>),
    /// By number (binary).
    Number(u32),
}

/// How a record tells its sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SequenceRef {
    /// Whole.
    Full(Sequence),
    /// By its low 16 bits.
    Low(u16),
}

impl SequenceRef {
    /// The sequence, for a client whose last one in that topic was `last`: the smallest greater
    /// one with these low bits.
    pub fn resolve(self, last: Sequence) -> Option<Sequence> {
        match self {
            Self::Full(sequence) => Some(sequence),
            Self::Low(low) => {
                let next = last.get() + 1;
                let ahead = u64::from(low.wrapping_sub(next as u16));
                Sequence::new(next + ahead)
            }
        }
    }
}

/// A server's message that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRecord {
    /// The error.
    pub text: String,
}

impl std::fmt::Display for BadRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cannot read the server's message: {}", self.text)
    }
}

impl std::error::Error for BadRecord {}

/// Whether a payload is what its kind says.
///
/// # Errors
/// The error.
pub fn check_payload(kind: PayloadKind, bytes: &[u8]) -> Result<(), Refusal> {
    let why = match kind {
        PayloadKind::Bytes => return Ok(()),
        PayloadKind::Text => match simdutf8::basic::from_utf8(bytes) {
            Ok(_) => return Ok(()),
            Err(_) => "it is said to be text and is not UTF-8; send it as bytes".to_owned(),
        },
        PayloadKind::Json => match serde_json::from_slice::<serde::de::IgnoredAny>(bytes) {
            Ok(_) if simdutf8::basic::from_utf8(bytes).is_ok() => return Ok(()),
            Ok(_) => "it is said to be JSON and is not UTF-8; mend it".to_owned(),
            Err(error) => format!("it is said to be JSON and does not parse ({error}); mend it"),
        },
    };
    Err(Refusal::bad_payload(why))
}

pub(crate) fn check_payload_len(len: usize, bytes_max: usize) -> Result<(), Refusal> {
    if len <= bytes_max {
        return Ok(());
    }
    Err(Refusal::payload_too_large(len, bytes_max))
}
