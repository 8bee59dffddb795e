//! A record of the durable log, and how it stands on disk.
//!
//! Key: topic number (8 bytes, big-endian), sequence (8, big-endian): a topic's records lie together,
//! oldest first. Value: form (1), kind (1), sequence before it (8), milliseconds since 1970 (8), length
//! of the idempotency key (2) and the key, payload, and last a CRC-32 of key and all that (4).
//!
//! That is form 1. Form 2, of publications with headers or a recorded principal, has between key and payload: length of the
//! headers (2), headers, length of the principal (2), principal. Each record is written in the lowest form that holds it, so that a
//! store without them is as before, also for an older program.

use model::{
    HeaderOrigin, Headers, Moment, Payload, PayloadKind, Publication, Sequence, TopicName,
};

use self::Unreadable::Damaged;

/// A publication on its way to the disk.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Its topic.
    pub topic: TopicName,
    /// The topic's number in the store.
    pub topic_number: u64,
    /// The publication; it carries the sequence.
    pub publication: Publication,
    /// The key that it counts once under, if any.
    pub idempotency_key: Option<Box<str>>,
}

/// A record read back.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stored {
    pub publication: Publication,
    pub idempotency_key: Option<Box<str>>,
}

/// Why bytes on disk are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// They are not what was written.
    Damaged,
    /// They are whole, in a form that a newer program wrote.
    Newer(u8),
}

/// The newest form that this program reads and writes.
pub(crate) const FORM: u8 = 2;
/// The form without headers and principal.
const FORM_PLAIN: u8 = 1;
const HEAD: usize = 1 + 1 + 8 + 8 + 2;
const CRC: usize = 4;
pub(crate) const KEY: usize = 16;

/// The place of a record.
pub(crate) fn key_of(topic_number: u64, sequence: Sequence) -> [u8; KEY] {
    let mut key = [0; KEY];
    key[..8].copy_from_slice(&topic_number.to_be_bytes());
    key[8..].copy_from_slice(&sequence.get().to_be_bytes());
    key
}

/// The topic number and sequence of a place.
pub(crate) fn parse_key(key: &[u8]) -> Option<(u64, Sequence)> {
    let key: &[u8; KEY] = key.try_into().ok()?;
    let (topic, sequence) = key.split_first_chunk::<8>()?;
    let sequence = u64::from_be_bytes(sequence.try_into().ok()?);
    Some((u64::from_be_bytes(*topic), Sequence::new(sequence)?))
}

impl Record {
    pub(crate) fn key(&self) -> [u8; KEY] {
        key_of(self.topic_number, self.publication.sequence())
    }

    pub(crate) fn value(&self) -> Vec<u8> {
        let publication = &self.publication;
        let key = self.idempotency_key.as_deref().unwrap_or_default().as_bytes();
        let headers = publication.headers().unwrap_or_default();
        let principal = publication.principal().unwrap_or_default().as_bytes();
        let is_plain = headers.is_empty() && principal.is_empty();
        let mut value = Vec::with_capacity(HEAD + key.len() + 4 + publication.kept_bytes() + CRC);
        value.push(if is_plain { FORM_PLAIN } else { FORM });
        value.push(kind_number(publication.kind()));
        let previous = publication.previous().get();
        value.extend_from_slice(&previous.to_be_bytes());
        value.extend_from_slice(&publication.unix_ms().to_be_bytes());
        value.extend_from_slice(&(key.len() as u16).to_be_bytes());
        value.extend_from_slice(key);
        if !is_plain {
            for part in [headers.bytes(), principal] {
                value.extend_from_slice(&(part.len() as u16).to_be_bytes());
                value.extend_from_slice(part);
            }
        }
        value.extend_from_slice(publication.payload());
        let sum = checksum(&self.key(), &value);
        value.extend_from_slice(&sum.to_be_bytes());
        value
    }
}

/// Reads what stands at `key`.
pub(crate) fn read(key: &[u8], value: &[u8]) -> Result<Stored, Unreadable> {
    let (_, sequence) = parse_key(key).ok_or(Damaged)?;
    let (body, sum) = value.split_last_chunk::<CRC>().ok_or(Damaged)?;
    if checksum(key, body) != u32::from_be_bytes(*sum) || body.is_empty() {
        return Err(Damaged);
    }
    let form = body[0];
    match form {
        FORM_PLAIN | FORM if body.len() >= HEAD => {}
        newer if newer > FORM => return Err(Unreadable::Newer(newer)),
        _ => return Err(Damaged),
    }
    let number = |at: usize| -> Option<u64> {
        Some(u64::from_be_bytes(body.get(at..at + 8)?.try_into().ok()?))
    };
    let previous = number(2).and_then(Sequence::new).filter(|it| *it < sequence).ok_or(Damaged)?;
    let unix_ms = number(10).ok_or(Damaged)?;
    let key_len = usize::from(u16::from_be_bytes([body[18], body[19]]));
    let (text, mut rest) = body[HEAD..].split_at_checked(key_len).ok_or(Damaged)?;
    let text = std::str::from_utf8(text).map_err(|_| Damaged)?;
    let (mut headers, mut principal) = (Headers::default(), "");
    if form != FORM_PLAIN {
        let part = take_part(&mut rest).ok_or(Damaged)?;
        if !part.is_empty() {
            headers = Headers::read(part, HeaderOrigin::Server).map_err(|_| Damaged)?;
        }
        let part = take_part(&mut rest).ok_or(Damaged)?;
        principal = std::str::from_utf8(part).map_err(|_| Damaged)?;
    }
    let mut payload = Payload::with_headers(kind_of(body[1]).ok_or(Damaged)?, &headers, rest);
    if !principal.is_empty() {
        payload = payload.of_principal(principal);
    }
    let moment = Moment { elapsed: std::time::Duration::ZERO, unix_ms };
    Ok(Stored {
        publication: Publication::after(previous, payload, sequence, moment),
        idempotency_key: (!text.is_empty()).then(|| text.into()),
    })
}

/// Takes a length (2 bytes) and so many bytes.
fn take_part<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (len, after) = rest.split_first_chunk::<2>()?;
    let (part, after) = after.split_at_checked(u16::from_be_bytes(*len).into())?;
    *rest = after;
    Some(part)
}

/// The CRC-32 of a place and what stands there.
pub(crate) fn checksum(key: &[u8], value: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(key);
    sum.update(value);
    sum.finalize()
}

fn kind_number(kind: PayloadKind) -> u8 {
    match kind {
        PayloadKind::Json => 1,
        PayloadKind::Text => 2,
        PayloadKind::Bytes => 3,
    }
}

fn kind_of(number: u8) -> Option<PayloadKind> {
    match number {
        1 => Some(PayloadKind::Json),
        2 => Some(PayloadKind::Text),
        3 => Some(PayloadKind::Bytes),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use model::Limits;

    use super::*;

    fn headers() -> Headers<'static> {
        let mut headers = Headers::default();
        let value = model::HeaderValue::Text("EUR");
        headers.push("unit", value, HeaderOrigin::Client).expect("valid");
        headers
    }

    #[test]
    fn a_record_comes_back_and_every_flipped_bit_shows() {
        let plain = || Payload::new(PayloadKind::Json, b"{\"x\":1}");
        let with_headers = Payload::with_headers(PayloadKind::Json, &headers(), b"{\"x\":1}");
        check_record(plain(), FORM_PLAIN);
        check_record(plain().of_principal("ada"), FORM);
        check_record(with_headers.of_principal("ada"), FORM);
        check_record(with_headers, FORM);
    }

    fn check_record(payload: Payload, form: u8) {
        let sequence = Sequence::new(7).expect("small");
        let now = Moment { elapsed: std::time::Duration::ZERO, unix_ms: 1_234 };
        let previous = Sequence::new(3).expect("small");
        let publication = Publication::after(previous, payload, sequence, now);
        let record = Record {
            topic: TopicName::parse("a/b", &Limits::default()).expect("valid"),
            topic_number: 5,
            publication: publication.clone(),
            idempotency_key: Some("k".into()),
        };
        let (key, value) = (record.key(), record.value());
        assert_eq!(value[0], form);
        let stored = read(&key, &value).expect("whole");
        assert_eq!(stored.publication, publication);
        let (previous, key_of_it) = (stored.publication.previous(), &stored.idempotency_key);
        assert_eq!((previous.get(), key_of_it.as_deref()), (3, Some("k")), "holes are kept");
        assert_eq!(parse_key(&key), Some((5, sequence)));
        for bit in 0..value.len() * 8 {
            let mut damaged = value.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read(&key, &damaged), Err(Damaged), "bit {bit}");
        }
        assert_eq!(read(&key_of(5, sequence.next()), &value), Err(Damaged), "moved");
        let mut newer = value[..value.len() - CRC].to_vec();
        newer[0] = FORM + 1;
        newer.extend(checksum(&key, &newer).to_be_bytes());
        assert_eq!(read(&key, &newer), Err(Unreadable::Newer(FORM + 1)));
    }
}
