//! Optional members of a publication's record, beside its topic, its sequence and its payload. docs/protocol.md#binary-dialect.
//!
//! In JSON these are members; in binary they stand behind a varint of flags, in the order of its bits.

use std::borrow::Cow;

use model::{HeaderOrigin, Headers, Publication, Sequence, Stamps};

use super::varint;

/// Optional members of a publication, whole, as a delta, or as its first piece.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Extras<'a> {
    /// The publication before it in its topic.
    pub previous: PreviousRef,
    /// Its headers.
    pub headers: Option<Headers<'a>>,
    /// Its entity within the topic.
    pub entity: Option<Cow<'a, str>>,
    /// When it was published, in milliseconds since 1970.
    pub time_ms: Option<u64>,
    /// The principal that published it.
    pub principal: Option<Cow<'a, str>>,
    /// As what it is handed to one of several readers.
    pub delivery: Option<DeliveryRef>,
}

/// The publication before a record's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PreviousRef {
    /// Its sequence is one less.
    #[default]
    OneBefore,
    /// It is the last one that was told in this topic on this connection.
    LastTold,
    /// Its sequence; [`Sequence::START`] if there was none, or nobody knows.
    At(Sequence),
}

impl PreviousRef {
    /// The sequence before `sequence`, for a client whose last one in that topic was `last`.
    pub fn resolve(self, sequence: Sequence, last: Sequence) -> Sequence {
        match self {
            Self::OneBefore => sequence.back(1),
            Self::LastTold => last,
            Self::At(previous) => previous,
        }
    }
}

/// One handing over of a publication to one of several readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeliveryRef {
    /// Its number.
    pub delivery: u64,
    /// Which attempt it is, from 1.
    pub attempt: u64,
}

const PREVIOUS: u64 = 1;
const HEADERS: u64 = 1 << 1;
const ENTITY: u64 = 1 << 2;
const TIME: u64 = 1 << 3;
const PRINCIPAL: u64 = 1 << 4;
const DELIVERY: u64 = 1 << 5;
const KNOWN: u64 = (1 << 6) - 1;

impl<'a> Extras<'a> {
    /// The extras of `publication` for a reader that asked for `stamps`.
    pub fn of(publication: &'a Publication, stamps: Stamps) -> Self {
        let (previous, sequence) = (publication.previous(), publication.sequence());
        let principal = || publication.principal().map(Cow::Borrowed);
        Self {
            previous: match previous == sequence.back(1) {
                true => PreviousRef::OneBefore,
                false => PreviousRef::At(previous),
            },
            headers: publication.headers(),
            entity: None,
            time_ms: stamps.time.then(|| publication.unix_ms()),
            principal: if stamps.principal { principal() } else { None },
            delivery: None,
        }
    }

    /// Whether there is nothing that a record of the older forms could not say.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a short record says all of it to who was told what is before the publication last: that it follows that, so near that the
    /// low 16 bits of its sequence tell which one it is.
    pub(super) fn is_short(&self, publication: &Publication) -> bool {
        let distance = publication.sequence().count_after(publication.previous());
        distance <= u64::from(u16::MAX)
            && *self == Self { previous: self.previous, ..Self::default() }
    }

    fn flags(&self) -> u64 {
        let flag = |is_there: bool, flag| if is_there { flag } else { 0 };
        flag(matches!(self.previous, PreviousRef::At(_)), PREVIOUS)
            | flag(self.headers.is_some(), HEADERS)
            | flag(self.entity.is_some(), ENTITY)
            | flag(self.time_ms.is_some(), TIME)
            | flag(self.principal.is_some(), PRINCIPAL)
            | flag(self.delivery.is_some(), DELIVERY)
    }

    /// Appends the flags, and what is flagged.
    pub(super) fn append(&self, sequence: Sequence, out: &mut Vec<u8>) {
        varint::append(self.flags(), out);
        if let PreviousRef::At(previous) = self.previous {
            let distance = match previous {
                Sequence::START => 0,
                known => sequence.get().saturating_sub(known.get()),
            };
            varint::append(distance, out);
        }
        if let Some(headers) = &self.headers {
            append_bytes(headers.bytes(), out);
        }
        if let Some(entity) = &self.entity {
            append_bytes(entity.as_bytes(), out);
        }
        if let Some(time_ms) = self.time_ms {
            varint::append(time_ms, out);
        }
        if let Some(principal) = &self.principal {
            append_bytes(principal.as_bytes(), out);
        }
        if let Some(DeliveryRef { delivery, attempt }) = self.delivery {
            varint::append(delivery, out);
            varint::append(attempt, out);
        }
    }

    /// Takes the flags, and what is flagged, from the front of `rest`.
    pub(super) fn take(sequence: Sequence, rest: &mut &'a [u8]) -> Option<Self> {
        let flags = varint::take(rest)?;
        if flags & !KNOWN != 0 {
            return None;
        }
        let mut extras = Self::default();
        if flags & PREVIOUS != 0 {
            extras.previous = PreviousRef::At(match varint::take(rest)? {
                0 => Sequence::START,
                distance => Sequence::new(sequence.get().checked_sub(distance)?)?,
            });
        }
        if flags & HEADERS != 0 {
            let headers = Headers::read(varint::take_bytes(rest)?, HeaderOrigin::Server).ok()?;
            extras.headers = (!headers.is_empty()).then_some(headers);
        }
        if flags & ENTITY != 0 {
            extras.entity = Some(take_text(rest)?);
        }
        if flags & TIME != 0 {
            extras.time_ms = Some(varint::take(rest)?);
        }
        if flags & PRINCIPAL != 0 {
            extras.principal = Some(take_text(rest)?);
        }
        if flags & DELIVERY != 0 {
            let (delivery, attempt) = (varint::take(rest)?, varint::take(rest)?);
            extras.delivery = Some(DeliveryRef { delivery, attempt });
        }
        Some(extras)
    }
}

fn append_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    varint::append(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn take_text<'a>(rest: &mut &'a [u8]) -> Option<Cow<'a, str>> {
    simdutf8::basic::from_utf8(varint::take_bytes(rest)?).ok().map(Cow::Borrowed)
}
