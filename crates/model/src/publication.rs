//! Publications and drafts: one allocation for header and payload, shared by all that keep it.

use std::fmt;

use triomphe::{Arc, ThinArc};

use crate::{Moment, Sequence, TopicName};

/// What a payload's bytes are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PayloadKind {
    /// Valid JSON text, kept byte for byte.
    #[default]
    Json,
    /// Valid UTF-8 text.
    Text,
    /// Anything.
    Bytes,
}

impl PayloadKind {
    /// The name used on the wire and in configuration: `json`, `text` or `bytes`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Text => "text",
            Self::Bytes => "bytes",
        }
    }
}

impl std::str::FromStr for PayloadKind {
    type Err = PayloadKindError;

    fn from_str(text: &str) -> Result<Self, PayloadKindError> {
        match text {
            "json" => Ok(Self::Json),
            "text" => Ok(Self::Text),
            "bytes" => Ok(Self::Bytes),
            other => Err(PayloadKindError { text: other.into() }),
        }
    }
}

/// A word that names no payload kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PayloadKindError {
    /// The word given.
    pub text: String,
}

impl fmt::Display for PayloadKindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cannot use `{}` as a payload kind: there is no such kind; say json, text or bytes",
            self.text
        )
    }
}

impl std::error::Error for PayloadKindError {}

/// The part of a publication that is not its payload. 24 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    sequence: Sequence,
    unix_ms: u64,
    kind: PayloadKind,
}

/// A payload with its kind, owned by nobody else yet.
///
/// The bytes are copied once, here, from where they arrived; a publication made of it shares them.
pub struct Payload(ThinArc<Header, u8>);

impl Payload {
    /// Copies `bytes`. Whether they are what `kind` says is the caller's to have checked.
    pub fn new(kind: PayloadKind, bytes: &[u8]) -> Self {
        let header = Header { sequence: Sequence::START, unix_ms: 0, kind };
        Self(ThinArc::from_header_and_slice(header, bytes))
    }

    /// What the bytes are.
    pub fn kind(&self) -> PayloadKind {
        self.0.header.header.kind
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0.slice
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({}, {} bytes)", self.kind().name(), self.bytes().len())
    }
}

impl PartialEq for Payload {
    fn eq(&self, other: &Self) -> bool {
        self.kind() == other.kind() && self.bytes() == other.bytes()
    }
}

/// A publication not yet kept, so without a position.
#[derive(Debug, PartialEq)]
pub struct Draft {
    /// Where it goes.
    pub topic: TopicName,
    /// What it says.
    pub payload: Payload,
    /// Makes a repeated draft answer with the first one's position.
    pub idempotency_key: Option<Box<str>>,
    /// Refuses it unless this is the topic's newest sequence (0: nothing was published yet).
    pub expected: Option<Sequence>,
}

/// One immutable message with its place in its topic. 8 bytes; cloning shares the allocation.
#[derive(Clone)]
pub struct Publication(ThinArc<Header, u8>);

impl Publication {
    /// Gives `payload` its place: `sequence` in its topic, published at `now`. Copies nothing.
    pub fn new(payload: Payload, sequence: Sequence, now: Moment) -> Self {
        let mut shared = payload.0;
        shared.with_arc_mut(|arc| {
            let inner = Arc::get_mut(arc).expect("a payload is owned by nobody else");
            inner.header_mut().sequence = sequence;
            inner.header_mut().unix_ms = now.unix_ms;
        });
        Self(shared)
    }

    /// Its place in its topic.
    pub fn sequence(&self) -> Sequence {
        self.0.header.header.sequence
    }

    /// When it was kept, in milliseconds since the Unix epoch.
    pub fn unix_ms(&self) -> u64 {
        self.0.header.header.unix_ms
    }

    /// What the payload's bytes are.
    pub fn kind(&self) -> PayloadKind {
        self.0.header.header.kind
    }

    /// The payload.
    pub fn payload(&self) -> &[u8] {
        &self.0.slice
    }
}

impl fmt::Debug for Publication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sequence, kind) = (self.sequence(), self.kind().name());
        write!(f, "Publication({sequence}, {kind}, {} bytes)", self.payload().len())
    }
}

impl PartialEq for Publication {
    fn eq(&self, other: &Self) -> bool {
        self.sequence() == other.sequence()
            && self.kind() == other.kind()
            && self.payload() == other.payload()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_publication_shares_the_bytes_of_its_payload() {
        let payload = Payload::new(PayloadKind::Text, b"hello");
        let at = payload.bytes().as_ptr();
        let now = Moment { elapsed: Duration::ZERO, unix_ms: 7 };
        let publication = Publication::new(payload, Sequence::START.next(), now);
        assert_eq!(publication.payload().as_ptr(), at);
        assert_eq!(publication.payload(), b"hello");
        assert_eq!((publication.unix_ms(), publication.sequence().get()), (7, 1));
        assert_eq!(size_of::<Publication>(), 8);
    }
}
