//! Publications in JSON: whole, as deltas, in pieces, and in pages of history. docs/protocol.md#events, docs/protocol.md#deltas,
//! docs/protocol.md#fragments.
//!
//! The `append_*` functions are hot: they write straight into the message, without a `WireEvent` in between.

use std::borrow::Cow;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use model::{
    DeltaKind, HeaderOrigin, Headers, Moment, Payload, PayloadKind, Publication, Sequence, Stamps,
    TopicName,
};
use serde_json::value::RawValue;

use super::super::wire::{WireEvent, WireKept};
use super::super::{BadRecord, DeltaRef, Extras, PreviousRef, SequenceRef, ServerRecord, TopicRef};
use super::headers::{append_headers, decode_headers, encode_headers};

/// Appends a publication.
pub fn append_publication(
    topic: &TopicName,
    number: Option<u32>,
    publication: &Publication,
    extras: &Extras<'_>,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(br#"{"type":"publication","topic":"#);
    append_string(topic.as_str(), out);
    append_number(r#","sequence":"#, publication.sequence().get(), out);
    append_extras(extras, out);
    append_reading(number, out);
    append_payload(publication.kind(), publication.payload(), out);
    out.push(b'}');
}

/// Appends a publication as its difference from an earlier one.
pub fn append_delta(
    topic: &TopicName,
    number: Option<u32>,
    publication: &Publication,
    delta: &DeltaRef<'_>,
    extras: &Extras<'_>,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(br#"{"type":"delta","topic":"#);
    append_string(topic.as_str(), out);
    append_number(r#","sequence":"#, publication.sequence().get(), out);
    append_extras(extras, out);
    append_number(r#","base":"#, delta.base.get(), out);
    append_number(r#","crc":"#, delta.crc.into(), out);
    append_reading(number, out);
    append_kind(publication.kind(), out);
    match delta.kind {
        DeltaKind::JsonPatch => {
            out.extend_from_slice(br#","patch":"#);
            out.extend_from_slice(delta.bytes);
        }
        DeltaKind::Vcdiff | DeltaKind::None => append_base64(r#","vcdiff":""#, delta.bytes, out),
    }
    out.push(b'}');
}

/// Appends a piece of a publication's payload. The first one says what there is beside the payload.
pub fn append_fragment(
    topic: &TopicName,
    number: Option<u32>,
    publication: &Publication,
    piece: std::ops::Range<usize>,
    extras: &Extras<'_>,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(br#"{"type":"fragment","topic":"#);
    append_string(topic.as_str(), out);
    append_number(r#","sequence":"#, publication.sequence().get(), out);
    if piece.start == 0 {
        append_extras(extras, out);
    }
    append_number(r#","total":"#, publication.payload().len() as u64, out);
    append_number(r#","offset":"#, piece.start as u64, out);
    append_reading(number, out);
    append_kind(publication.kind(), out);
    append_base64(r#","base64":""#, &publication.payload()[piece], out);
    out.push(b'}');
}

/// Appends a member whose value is a number; `name` begins with the comma before it.
fn append_number(name: &str, number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Appends the number of what a session reads, in sessions that may read a topic in several readings.
fn append_reading(number: Option<u32>, out: &mut Vec<u8>) {
    if let Some(number) = number {
        append_number(r#","number":"#, number.into(), out);
    }
}

fn append_extras(extras: &Extras<'_>, out: &mut Vec<u8>) {
    if let PreviousRef::At(previous) = extras.previous {
        append_number(r#","previous":"#, previous.get(), out);
    }
    if let Some(headers) = &extras.headers {
        out.extend_from_slice(br#","headers":"#);
        append_headers(headers, out);
    }
    if let Some(time_ms) = extras.time_ms {
        append_number(r#","time_ms":"#, time_ms, out);
    }
    if let Some(principal) = &extras.principal {
        out.extend_from_slice(br#","principal":"#);
        append_string(principal, out);
    }
}

/// The optional members of an event about a publication.
fn extras_of<'a>(wire: &mut WireEvent<'a>) -> Option<Extras<'a>> {
    Some(Extras {
        previous: match wire.previous {
            None => PreviousRef::OneBefore,
            Some(previous) => PreviousRef::At(Sequence::new(previous)?),
        },
        headers: headers_of(wire.headers.take())?,
        time_ms: wire.time_ms,
        principal: wire.principal.take(),
        ..Extras::default()
    })
}

/// The headers that are there, if any; `None` if they break a rule.
fn headers_of(wire: Option<Box<RawValue>>) -> Option<Option<Headers<'static>>> {
    let Some(wire) = wire else { return Some(None) };
    let headers = decode_headers(wire.get(), HeaderOrigin::Server).ok()?;
    Some((!headers.is_empty()).then_some(headers))
}

fn append_kind(kind: PayloadKind, out: &mut Vec<u8>) {
    out.extend_from_slice(br#","kind":""#);
    out.extend_from_slice(kind.name().as_bytes());
    out.push(b'"');
}

/// Appends a member whose value is base64; `name` ends with the opening quote.
pub(super) fn append_base64(name: &str, bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    let start = out.len();
    out.resize(start + bytes.len().div_ceil(3) * 4, 0);
    STANDARD.encode_slice(bytes, &mut out[start..]).expect("the room is exactly enough");
    out.push(b'"');
}

/// Appends the member that holds a payload, with a comma before it.
fn append_payload(kind: PayloadKind, payload: &[u8], out: &mut Vec<u8>) {
    match kind {
        PayloadKind::Json => {
            out.extend_from_slice(br#","data":"#);
            out.extend_from_slice(payload);
        }
        PayloadKind::Text => {
            out.extend_from_slice(br#","text":"#);
            append_string(&String::from_utf8_lossy(payload), out);
        }
        PayloadKind::Bytes => {
            append_base64(r#","base64":""#, payload, out);
        }
    }
}

pub(super) fn append_string(text: &str, out: &mut Vec<u8>) {
    let is_plain = text.bytes().all(|byte| byte >= 0x20 && byte != b'"' && byte != b'\\');
    if is_plain {
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
    } else {
        serde_json::to_writer(out, text).expect("a text can be written as JSON");
    }
}

pub(super) fn wire_kept(publication: &Publication) -> WireKept<'_> {
    let payload = publication.payload();
    let mut wire = WireKept {
        sequence: publication.sequence().get(),
        previous: match Extras::of(publication, Stamps::default()).previous {
            PreviousRef::At(previous) => Some(previous.get()),
            _ => None,
        },
        headers: encode_headers(publication.headers().as_ref()),
        time_ms: publication.unix_ms(),
        principal: publication.principal().map(Cow::Borrowed),
        ..WireKept::default()
    };
    match publication.kind() {
        PayloadKind::Json => wire.data = serde_json::from_slice(payload).ok(),
        PayloadKind::Text => wire.text = Some(String::from_utf8_lossy(payload)),
        PayloadKind::Bytes => wire.base64 = Some(STANDARD.encode(payload).into()),
    }
    wire
}

pub(super) fn kept_of(wire: &WireKept<'_>) -> Option<Publication> {
    let headers = headers_of(wire.headers.clone())?.unwrap_or_default();
    let with_headers = |kind, bytes: &[u8]| Payload::with_headers(kind, &headers, bytes);
    let mut payload = match (wire.data, &wire.text, &wire.base64) {
        (Some(data), ..) => with_headers(PayloadKind::Json, data.get().as_bytes()),
        (_, Some(text), _) => with_headers(PayloadKind::Text, text.as_bytes()),
        (.., Some(base64)) => {
            with_headers(PayloadKind::Bytes, &STANDARD.decode(base64.as_bytes()).ok()?)
        }
        _ => return None,
    };
    if let Some(principal) = &wire.principal {
        payload = payload.of_principal(principal);
    }
    let now = Moment { elapsed: Duration::ZERO, unix_ms: wire.time_ms };
    let sequence = Sequence::new(wire.sequence)?;
    let previous = wire.previous.map_or(Some(sequence.back(1)), Sequence::new)?;
    (previous < sequence).then(|| Publication::after(previous, payload, sequence, now))
}

/// How a record names its topic: by its number, where it tells one.
fn topic_of<'a>(number: Option<u32>, name: Option<Cow<'a, str>>) -> Option<TopicRef<'a>> {
    number.map(TopicRef::Number).or_else(|| name.map(TopicRef::Name))
}

pub(super) fn delta_of(mut wire: WireEvent<'_>) -> Option<ServerRecord<'_>> {
    let extras = extras_of(&mut wire)?;
    let (delta, bytes) = match (wire.vcdiff, wire.patch) {
        (Some(vcdiff), _) => {
            (DeltaKind::Vcdiff, Cow::Owned(STANDARD.decode(vcdiff.as_bytes()).ok()?))
        }
        (None, patch) => (DeltaKind::JsonPatch, Cow::Borrowed(patch?.get().as_bytes())),
    };
    Some(ServerRecord::Delta {
        topic: topic_of(wire.number, wire.topic)?,
        sequence: Sequence::new(wire.sequence?)?,
        base: Sequence::new(wire.base?)?,
        kind: wire.payload_kind?.parse().ok()?,
        delta,
        crc: wire.crc?,
        bytes,
        extras,
    })
}

pub(super) fn fragment_of(mut wire: WireEvent<'_>) -> Option<ServerRecord<'_>> {
    let extras = extras_of(&mut wire)?;
    Some(ServerRecord::Fragment {
        topic: topic_of(wire.number, wire.topic)?,
        sequence: Sequence::new(wire.sequence?)?,
        kind: wire.payload_kind?.parse().ok()?,
        total: wire.total?,
        offset: wire.offset?,
        bytes: Cow::Owned(STANDARD.decode(wire.base64?.as_bytes()).ok()?),
        extras,
    })
}

pub(super) fn publication_of(mut wire: WireEvent<'_>) -> Result<ServerRecord<'_>, BadRecord> {
    let bad = |what: &str| BadRecord { text: format!("a publication without {what}") };
    let extras = extras_of(&mut wire).ok_or_else(|| bad("valid headers"))?;
    let (kind, payload) = match (wire.data, wire.text, wire.base64) {
        (Some(data), ..) => (PayloadKind::Json, Cow::Borrowed(data.get().as_bytes())),
        (_, Some(text), _) => (PayloadKind::Text, Cow::Owned(text.into_owned().into_bytes())),
        (.., Some(base64)) => {
            let bytes = STANDARD.decode(base64.as_bytes()).map_err(|_| bad("valid base64"))?;
            (PayloadKind::Bytes, Cow::Owned(bytes))
        }
        _ => return Err(bad("payload")),
    };
    let sequence = wire.sequence.and_then(Sequence::new).ok_or_else(|| bad("sequence"))?;
    Ok(ServerRecord::Publication {
        topic: topic_of(wire.number, wire.topic).ok_or_else(|| bad("topic"))?,
        sequence: SequenceRef::Full(sequence),
        kind,
        payload,
        extras,
    })
}
