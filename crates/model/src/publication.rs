//! Publications and drafts: one allocation for header and payload, shared by all that keep it.

use std::fmt;
use std::time::Duration;

use triomphe::{Arc, ThinArc};

use crate::{Code, Epoch, Limits, Moment, Refusal, Sequence, TopicName};

/// The kind of a payload.
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

/// The part of a publication that is not its payload. 32 bytes.
struct Header {
    sequence: Sequence,
    previous: Sequence,
    unix_ms_and_kind: u64,
    /// The bytes, where several publications share them; otherwise they stand behind the header.
    shared: Option<ThinArc<(), u8>>,
}

/// Bits of `unix_ms_and_kind` that hold the time: enough for 100 million years.
const UNIX_MS_BITS: u32 = 62;
const UNIX_MS_MASK: u64 = (1 << UNIX_MS_BITS) - 1;

impl Header {
    fn new(kind: PayloadKind, shared: Option<ThinArc<(), u8>>) -> Self {
        let unix_ms_and_kind = (kind as u64) << UNIX_MS_BITS;
        let (sequence, previous) = (Sequence::START, Sequence::START);
        Self { sequence, previous, unix_ms_and_kind, shared }
    }

    fn unix_ms(&self) -> u64 {
        self.unix_ms_and_kind & UNIX_MS_MASK
    }

    fn set_unix_ms(&mut self, unix_ms: u64) {
        let kind = self.unix_ms_and_kind & !UNIX_MS_MASK;
        self.unix_ms_and_kind = kind | unix_ms.min(UNIX_MS_MASK);
    }

    fn kind(&self) -> PayloadKind {
        match self.unix_ms_and_kind >> UNIX_MS_BITS {
            0 => PayloadKind::Json,
            1 => PayloadKind::Text,
            _ => PayloadKind::Bytes,
        }
    }
}

fn bytes_of(it: &ThinArc<Header, u8>) -> &[u8] {
    it.header.header.shared.as_ref().map_or(&it.slice, |shared| &shared.slice)
}

/// A payload with its kind, owned by nobody else yet.
///
/// The bytes are copied once, here, from where they arrived; a publication made of it shares them.
pub struct Payload(ThinArc<Header, u8>);

impl Payload {
    /// Copies `bytes`. Whether they are what `kind` says is the caller's to have checked.
    pub fn new(kind: PayloadKind, bytes: &[u8]) -> Self {
        Self(ThinArc::from_header_and_slice(Header::new(kind, None), bytes))
    }

    /// The kind of the payload.
    pub fn kind(&self) -> PayloadKind {
        self.0.header.header.kind()
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        bytes_of(&self.0)
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

/// Bytes of one message to many topics: the payloads made of it share them.
#[derive(Clone)]
pub struct SharedPayload {
    kind: PayloadKind,
    bytes: ThinArc<(), u8>,
}

impl SharedPayload {
    /// Copies `bytes`, as [`Payload::new`] does.
    pub fn new(kind: PayloadKind, bytes: &[u8]) -> Self {
        Self { kind, bytes: ThinArc::from_header_and_slice((), bytes) }
    }

    /// A payload of these bytes.
    pub fn payload(&self) -> Payload {
        /// Up to here a copy is as small as sharing, and nearer to its header.
        const COPIED_BYTES_MAX: usize = 64;
        if self.bytes.slice.len() <= COPIED_BYTES_MAX {
            return Payload::new(self.kind, &self.bytes.slice);
        }
        let header = Header::new(self.kind, Some(self.bytes.clone()));
        Payload(ThinArc::from_header_and_slice(header, &[]))
    }
}

impl fmt::Debug for SharedPayload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedPayload({}, {} bytes)", self.kind.name(), self.bytes.slice.len())
    }
}

/// A publication not yet kept, so without a position.
#[derive(Debug, PartialEq)]
pub struct Draft {
    /// Where it goes.
    pub topic: TopicName,
    /// The payload.
    pub payload: Payload,
    /// Makes a repeated draft answer with the first one's position.
    pub idempotency_key: Option<Box<str>>,
    /// Refuses it unless the topic stands there.
    pub expected: Option<Expected>,
}

/// Where a publisher expects a topic to stand.
#[derive(Clone, Debug, PartialEq)]
pub struct Expected {
    /// Its newest sequence (0: nothing was published yet).
    pub sequence: Sequence,
    /// The life of the numbering, where that counts as well. `expect` in a command does not say it.
    pub epoch: Option<Epoch>,
}

impl Expected {
    /// A sequence of whatever epoch.
    pub fn sequence(sequence: Sequence) -> Self {
        Self { sequence, epoch: None }
    }
}

/// One immutable message with its place in its topic. 8 bytes; cloning shares the allocation.
#[derive(Clone)]
pub struct Publication(ThinArc<Header, u8>);

impl Publication {
    /// Gives `payload` its place in a topic whose sequences grow by one: `sequence`, published at `now`. Copies nothing.
    pub fn new(payload: Payload, sequence: Sequence, now: Moment) -> Self {
        Self::after(sequence.back(1), payload, sequence, now)
    }

    /// The same in a topic whose sequences may have holes: the publication before it there has the sequence `previous`, which
    /// is [`Sequence::START`] if there was none or nobody knows.
    pub fn after(previous: Sequence, payload: Payload, sequence: Sequence, now: Moment) -> Self {
        debug_assert!(previous < sequence || sequence == Sequence::START, "sequences grow");
        let mut shared = payload.0;
        shared.with_arc_mut(|arc| {
            let inner = Arc::get_mut(arc).expect("a payload is owned by nobody else");
            inner.header_mut().sequence = sequence;
            inner.header_mut().previous = previous;
            inner.header_mut().set_unix_ms(now.unix_ms);
        });
        Self(shared)
    }

    /// The same, as if `previous` were before it: a copy.
    #[must_use]
    pub fn moved_after(&self, previous: Sequence) -> Self {
        let payload = Payload::new(self.kind(), self.payload());
        let now = Moment { elapsed: Duration::ZERO, unix_ms: self.unix_ms() };
        Self::after(previous, payload, self.sequence(), now)
    }

    /// Its place in its topic.
    pub fn sequence(&self) -> Sequence {
        self.0.header.header.sequence
    }

    /// The sequence of the publication before it in its topic; [`Sequence::START`] if there was none, or nobody knows.
    pub fn previous(&self) -> Sequence {
        self.0.header.header.previous
    }

    /// Whether nothing of the topic lies between this and `taken`, up to which a reader has everything.
    ///
    /// A reader's position need not be a publication's: it may lie in a hole of the numbering. Where nobody knows what was
    /// before, only who has taken nothing yet may go on with this.
    pub fn follows(&self, taken: Sequence) -> bool {
        match self.previous() {
            Sequence::START => taken == Sequence::START,
            previous => previous <= taken && taken < self.sequence(),
        }
    }

    /// When it was kept, in milliseconds since the Unix epoch.
    pub fn unix_ms(&self) -> u64 {
        self.0.header.header.unix_ms()
    }

    /// The kind of the payload.
    pub fn kind(&self) -> PayloadKind {
        self.0.header.header.kind()
    }

    /// The payload.
    pub fn payload(&self) -> &[u8] {
        bytes_of(&self.0)
    }

    /// Bytes that the payload has as a JSON value: text with its escapes, other bytes in base64. No encoding takes more.
    pub fn json_bytes(&self) -> usize {
        let payload = self.payload();
        match self.kind() {
            PayloadKind::Json => payload.len(),
            PayloadKind::Text => 2 + payload.iter().map(|byte| escaped_bytes(*byte)).sum::<usize>(),
            PayloadKind::Bytes => 2 + payload.len().div_ceil(3) * 4,
        }
    }
}

/// Bytes that one of a text takes within JSON. RFC 8259, section 7.
fn escaped_bytes(byte: u8) -> usize {
    match byte {
        b'"' | b'\\' | 0x08 | b'\t' | b'\n' | 0x0C | b'\r' => 2,
        0x00..0x20 => 6,
        _ => 1,
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
            && self.previous() == other.previous()
            && self.kind() == other.kind()
            && self.payload() == other.payload()
    }
}

/// A key that something counts once under, as a peer gave it.
///
/// # Errors
/// It is longer than `idempotency_key_bytes_max`.
pub fn check_key(key: Option<&str>, limits: &Limits) -> Result<Option<Box<str>>, Refusal> {
    let (len, len_max) = (key.map_or(0, str::len), limits.idempotency_key_bytes_max);
    if len <= len_max {
        return Ok(key.map(Into::into));
    }
    let text = format!(
        "cannot take the `key`: it has {len} bytes and idempotency_key_bytes_max is {len_max}; use a \
         shorter one, such as a hash of it"
    );
    Err(Refusal::new(Code::KeyTooLong, text))
}

#[cfg(test)]
mod tests {
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
        assert_eq!((size_of::<Publication>(), size_of::<Header>()), (8, 32));
    }

    #[test]
    fn it_follows_what_has_everything_before_it() {
        let sequence = |number| Sequence::new(number).expect("small");
        let place = |previous, number| {
            let now = Moment { elapsed: Duration::ZERO, unix_ms: 7 };
            let payload = Payload::new(PayloadKind::Text, b"x");
            Publication::after(sequence(previous), payload, sequence(number), now)
        };
        // What was before, its own place, what the reader has; whether it follows.
        let cases = [
            (4, 5, 4, true),
            (4, 5, 3, false),
            (4, 5, 5, false),
            (4, 9, 4, true),
            (4, 9, 6, true),
            (4, 9, 9, false),
            (4, 9, 3, false),
            (0, 9, 0, true),
            (0, 9, 1, false),
        ];
        for (previous, number, taken, follows) in cases {
            let publication = place(previous, number);
            assert_eq!(publication.previous().get(), previous);
            assert_eq!(publication.follows(sequence(taken)), follows, "{publication:?} {taken}");
        }
        let now = Moment { elapsed: Duration::ZERO, unix_ms: 7 };
        let dense = Publication::new(Payload::new(PayloadKind::Text, b"x"), sequence(5), now);
        assert_eq!(dense, place(4, 5));
        assert_ne!(dense, place(3, 5));
    }

    #[test]
    fn publications_of_one_shared_payload_share_its_bytes_and_differ_in_place() {
        let shared = SharedPayload::new(PayloadKind::Bytes, &[7; 1000]);
        let now = |unix_ms| Moment { elapsed: Duration::ZERO, unix_ms };
        let one = Publication::new(shared.payload(), Sequence::START.next(), now(5));
        let other = Publication::new(shared.payload(), Sequence::MAX, now(u64::MAX));
        assert_eq!(one.payload().as_ptr(), other.payload().as_ptr());
        assert_eq!((one.payload(), one.kind()), (&[7; 1000][..], PayloadKind::Bytes));
        assert_eq!((one.sequence().get(), one.unix_ms()), (1, 5));
        assert_eq!((other.sequence(), other.kind()), (Sequence::MAX, PayloadKind::Bytes));
    }
}
