//! Publications and drafts: one allocation for header and payload, shared by all that keep it.

use std::fmt;
use std::time::Duration;

use triomphe::{Arc, ThinArc};

use crate::{Code, Epoch, HeaderValue, Headers, Limits, Moment, Refusal, Sequence, TopicName};

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
///
/// Behind it stands the payload, unless several publications share that; before it, where there are any, the extras:
/// the lengths of the headers and of the principal (4 bytes each), the headers, and the principal.
struct Header {
    sequence: Sequence,
    previous: Sequence,
    unix_ms_and_kind: u64,
    /// The payload, where several publications share it.
    shared: Option<ThinArc<(), u8>>,
}

/// Bits of `unix_ms_and_kind` that hold the time: enough for 70 million years.
const UNIX_MS_BITS: u32 = 61;
const UNIX_MS_MASK: u64 = (1 << UNIX_MS_BITS) - 1;
/// Set where there are extras.
const EXTRAS: u64 = 1 << UNIX_MS_BITS;
const KIND_SHIFT: u32 = UNIX_MS_BITS + 1;
/// Bytes of the two lengths of the extras.
const LENGTHS: usize = 8;

impl Header {
    fn new(kind: PayloadKind, shared: Option<ThinArc<(), u8>>) -> Self {
        let unix_ms_and_kind = (kind as u64) << KIND_SHIFT;
        let (sequence, previous) = (Sequence::START, Sequence::START);
        Self { sequence, previous, unix_ms_and_kind, shared }
    }

    fn unix_ms(&self) -> u64 {
        self.unix_ms_and_kind & UNIX_MS_MASK
    }

    fn set_unix_ms(&mut self, unix_ms: u64) {
        let others = self.unix_ms_and_kind & !UNIX_MS_MASK;
        self.unix_ms_and_kind = others | unix_ms.min(UNIX_MS_MASK);
    }

    fn has_extras(&self) -> bool {
        self.unix_ms_and_kind & EXTRAS != 0
    }

    fn kind(&self) -> PayloadKind {
        match self.unix_ms_and_kind >> KIND_SHIFT {
            0 => PayloadKind::Json,
            1 => PayloadKind::Text,
            _ => PayloadKind::Bytes,
        }
    }
}

fn bytes_of(it: &ThinArc<Header, u8>) -> &[u8] {
    match &it.header.header.shared {
        Some(shared) => &shared.slice,
        None if it.header.header.has_extras() => extras_of(it).2,
        None => &it.slice,
    }
}

/// The headers, the principal, and what stands behind them.
fn extras_of(it: &ThinArc<Header, u8>) -> (&[u8], &[u8], &[u8]) {
    let none = (&[][..], &[][..], &it.slice);
    if !it.header.header.has_extras() {
        return none;
    }
    let split = || {
        let (headers_len, rest) = it.slice.split_first_chunk()?;
        let (principal_len, rest) = rest.split_first_chunk()?;
        let (headers, rest) = rest.split_at_checked(u32::from_le_bytes(*headers_len) as usize)?;
        let (principal, rest) =
            rest.split_at_checked(u32::from_le_bytes(*principal_len) as usize)?;
        Some((headers, principal, rest))
    };
    split().unwrap_or(none)
}

/// One allocation of all that a payload has; `shared` are its bytes, if others have them too.
fn allocate(
    kind: PayloadKind,
    headers: &Headers<'_>,
    principal: Option<&str>,
    bytes: Result<&[u8], ThinArc<(), u8>>,
) -> ThinArc<Header, u8> {
    let (own, shared) = match bytes {
        Ok(own) => (own, None),
        Err(shared) => (&[][..], Some(shared)),
    };
    let mut header = Header::new(kind, shared);
    if headers.is_empty() && principal.is_none() {
        return ThinArc::from_header_and_slice(header, own);
    }
    header.unix_ms_and_kind |= EXTRAS;
    let principal = principal.unwrap_or_default().as_bytes();
    let mut slice =
        Vec::with_capacity(LENGTHS + headers.bytes().len() + principal.len() + own.len());
    slice.extend_from_slice(&(headers.bytes().len() as u32).to_le_bytes());
    slice.extend_from_slice(&(principal.len() as u32).to_le_bytes());
    slice.extend_from_slice(headers.bytes());
    slice.extend_from_slice(principal);
    slice.extend_from_slice(own);
    ThinArc::from_header_and_slice(header, &slice)
}

fn headers_of(it: &ThinArc<Header, u8>) -> Option<Headers<'_>> {
    let (headers, ..) = extras_of(it);
    (!headers.is_empty()).then(|| Headers::known(headers))
}

fn principal_of(it: &ThinArc<Header, u8>) -> Option<&str> {
    let (_, principal, _) = extras_of(it);
    std::str::from_utf8(principal).ok().filter(|name| !name.is_empty())
}

/// Bytes of headers and principal.
fn extra_bytes(it: &ThinArc<Header, u8>) -> usize {
    let (headers, principal, _) = extras_of(it);
    headers.len() + principal.len()
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

    /// The same with headers. Without any it takes no byte more.
    pub fn with_headers(kind: PayloadKind, headers: &Headers<'_>, bytes: &[u8]) -> Self {
        Self(allocate(kind, headers, None, Ok(bytes)))
    }

    /// The same of `principal`, who published it. Copies it.
    #[must_use]
    pub fn of_principal(&self, principal: &str) -> Self {
        let headers = self.headers().unwrap_or_default();
        let bytes = self.0.header.header.shared.clone().map_or(Ok(self.bytes()), Err);
        Self(allocate(self.kind(), &headers, Some(principal), bytes))
    }

    /// Its headers, if it has any.
    pub fn headers(&self) -> Option<Headers<'_>> {
        headers_of(&self.0)
    }

    /// The principal that published it, if that is recorded.
    pub fn principal(&self) -> Option<&str> {
        principal_of(&self.0)
    }

    /// Bytes of payload and headers, as limits count them.
    pub fn size(&self) -> usize {
        self.bytes().len() + extra_bytes(&self.0)
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
        self.kind() == other.kind()
            && self.bytes() == other.bytes()
            && self.headers() == other.headers()
            && self.principal() == other.principal()
    }
}

/// Bytes of one message to many topics: the payloads made of it share them.
#[derive(Clone)]
pub struct SharedPayload {
    kind: PayloadKind,
    headers: Headers<'static>,
    bytes: ThinArc<(), u8>,
}

impl SharedPayload {
    /// Copies `bytes`, as [`Payload::new`] does.
    pub fn new(kind: PayloadKind, bytes: &[u8]) -> Self {
        Self::with_headers(kind, &Headers::default(), bytes)
    }

    /// The same with headers.
    pub fn with_headers(kind: PayloadKind, headers: &Headers<'_>, bytes: &[u8]) -> Self {
        let headers = headers.clone().into_owned();
        Self { kind, headers, bytes: ThinArc::from_header_and_slice((), bytes) }
    }

    /// A payload of these bytes.
    pub fn payload(&self) -> Payload {
        /// Up to here a copy is as small as sharing, and nearer to its header.
        const COPIED_BYTES_MAX: usize = 64;
        if self.bytes.slice.len() <= COPIED_BYTES_MAX {
            return Payload::with_headers(self.kind, &self.headers, &self.bytes.slice);
        }
        Payload(allocate(self.kind, &self.headers, None, Err(self.bytes.clone())))
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
        let shared = self.0.header.header.shared.clone().map_or(Ok(self.payload()), Err);
        let headers = self.headers().unwrap_or_default();
        let payload = allocate(self.kind(), &headers, self.principal(), shared);
        let now = Moment { elapsed: Duration::ZERO, unix_ms: self.unix_ms() };
        Self::after(previous, Payload(payload), self.sequence(), now)
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

    /// Its headers, if it has any.
    pub fn headers(&self) -> Option<Headers<'_>> {
        headers_of(&self.0)
    }

    /// The principal that published it, if that is recorded.
    pub fn principal(&self) -> Option<&str> {
        principal_of(&self.0)
    }

    /// Bytes of payload, headers and principal: what histories and budgets count.
    pub fn kept_bytes(&self) -> usize {
        self.payload().len() + extra_bytes(&self.0)
    }

    /// Bytes that all of it has in JSON at most: the payload as a value, and the headers as an object.
    pub fn told_bytes(&self) -> usize {
        self.json_bytes() + self.headers().map_or(0, |headers| headers_json_bytes(&headers))
    }

    /// Bytes that the payload has as a JSON value: text with its escapes, other bytes in base64. No encoding takes more.
    pub fn json_bytes(&self) -> usize {
        let payload = self.payload();
        match self.kind() {
            PayloadKind::Json => payload.len(),
            PayloadKind::Text => text_bytes(payload),
            PayloadKind::Bytes => base64_bytes(payload),
        }
    }
}

fn text_bytes(text: &[u8]) -> usize {
    2 + text.iter().map(|byte| escaped_bytes(*byte)).sum::<usize>()
}

fn base64_bytes(bytes: &[u8]) -> usize {
    2 + bytes.len().div_ceil(3) * 4
}

/// Bytes of headers as a member `,"headers":{…}`.
fn headers_json_bytes(headers: &Headers<'_>) -> usize {
    let value = |value| match value {
        HeaderValue::Text(text) => text_bytes(text.as_bytes()),
        HeaderValue::Number(text) => text.len(),
        HeaderValue::Boolean(is_true) => {
            if is_true {
                4
            } else {
                5
            }
        }
        HeaderValue::Bytes(bytes) => r#"{"base64":}"#.len() + base64_bytes(bytes),
    };
    let one = |(name, it): (&str, _)| r#""":,"#.len() + name.len() + value(it);
    r#","headers":{}"#.len() - 1 + headers.iter().map(one).sum::<usize>()
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
            && self.headers() == other.headers()
            && self.principal() == other.principal()
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

    fn headers() -> Headers<'static> {
        let mut headers = Headers::default();
        let own = crate::HeaderOrigin::Client;
        headers.push("a", HeaderValue::Text("x\"y"), own).expect("valid");
        headers.push("b", HeaderValue::Bytes(&[1, 2]), own).expect("valid");
        headers
    }

    #[test]
    fn headers_and_principal_stand_beside_the_payload_and_cost_nothing_where_there_are_none() {
        let now = Moment { elapsed: Duration::ZERO, unix_ms: u64::MAX };
        let headers = headers();
        for bytes in [&b"hello"[..], &[7; 1000]] {
            let shared = SharedPayload::with_headers(PayloadKind::Bytes, &headers, bytes);
            let alone = Payload::with_headers(PayloadKind::Bytes, &headers, bytes);
            assert_eq!(
                (alone.size(), &alone),
                (bytes.len() + headers.bytes().len(), &shared.payload())
            );
            for payload in [shared.payload(), alone] {
                let payload = payload.of_principal("ada");
                assert_eq!((payload.bytes(), payload.principal()), (bytes, Some("ada")));
                let publication = Publication::new(payload, Sequence::START.next(), now);
                assert_eq!(
                    (publication.payload(), publication.kind()),
                    (bytes, PayloadKind::Bytes)
                );
                assert_eq!(publication.headers().as_ref(), Some(&headers));
                assert_eq!(publication.principal(), Some("ada"));
                assert_eq!(publication.kept_bytes(), bytes.len() + headers.bytes().len() + 3);
            }
        }
        let plain = Payload::with_headers(PayloadKind::Json, &Headers::default(), b"1");
        assert_eq!((plain.0.slice.len(), plain.size()), (1, 1), "not a byte more");
        let plain = Publication::new(plain, Sequence::START.next(), now);
        assert_eq!((plain.headers(), plain.principal(), plain.kept_bytes()), (None, None, 1));
        let of_somebody = Payload::new(PayloadKind::Json, b"1").of_principal("ada");
        assert_eq!((of_somebody.headers(), of_somebody.bytes()), (None, &b"1"[..]));
        assert_ne!(of_somebody, Payload::new(PayloadKind::Json, b"1"));
    }

    #[test]
    fn what_headers_take_in_json_is_known() {
        let payload = Payload::with_headers(PayloadKind::Text, &headers(), b"hi");
        let now = Moment { elapsed: Duration::ZERO, unix_ms: 7 };
        let publication = Publication::new(payload, Sequence::START.next(), now);
        let told = r#""hi","headers":{"a":"x\"y","b":{"base64":"AQI="}}"#;
        assert_eq!(publication.told_bytes(), told.len());
    }
}
