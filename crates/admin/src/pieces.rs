//! Answers of any length, made piece by piece as they are taken: in memory are what they tell of, which the histories of
//! topics hold as well, and one piece.

use std::borrow::Cow;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use model::{PayloadKind, Publication};
use serde::Serialize;

use crate::error::json_header;
use crate::work::ApiWork;

/// Bytes of a piece, about.
pub(crate) const PIECE_BYTES: usize = 16 << 10;
/// Bytes that a character takes as an escape, at most.
const ESCAPE_BYTES: usize = 6;

/// A part of an answer.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    /// A short text.
    Text(Cow<'static, str>),
    /// A payload as a further member of an object, under the name that goes with its kind. JSON is passed on byte for byte.
    Payload(Publication),
}

impl Part {
    fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Payload(publication) => {
                member_of(publication.kind()).len() + publication.json_bytes()
            }
        }
    }
}

fn member_of(kind: PayloadKind) -> &'static str {
    match kind {
        PayloadKind::Json => ",\"data\":",
        PayloadKind::Text => ",\"text\":",
        PayloadKind::Bytes => ",\"base64\":",
    }
}

/// A JSON answer of these parts.
pub(crate) fn json_of<I>(work: &ApiWork, parts: I) -> Response
where
    I: Iterator<Item = Part> + Clone + Send + Unpin + 'static,
{
    (json_header(), Body::new(Pieces::new(work.clone(), parts))).into_response()
}

/// An object as JSON that more members can follow.
pub(crate) fn opened(members: &impl Serialize) -> String {
    let mut text =
        serde_json::to_string(members).expect("texts and numbers can be written as JSON");
    text.pop();
    text
}

/// An answer that is made as it is taken. Its length is known before.
struct Pieces<I> {
    parts: I,
    /// The payload that is being told, and how much of it is.
    open: Option<(Publication, usize)>,
    bytes_left: u64,
    work: ApiWork,
}

impl<I: Iterator<Item = Part> + Clone> Pieces<I> {
    fn new(work: ApiWork, parts: I) -> Self {
        let bytes = parts.clone().map(|part| {
            work.note(1);
            part.bytes() as u64
        });
        Self { bytes_left: bytes.sum(), parts, open: None, work }
    }
}

impl<I: Iterator<Item = Part>> Iterator for Pieces<I> {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let mut piece = Vec::new();
        while piece.len() < PIECE_BYTES {
            if let Some((publication, told)) = &mut self.open {
                *told += append(publication, *told, &mut piece);
                if *told == publication.payload().len() {
                    end(publication.kind(), &mut piece);
                    self.open = None;
                }
                continue;
            }
            self.work.note(1);
            match self.parts.next() {
                None => break,
                Some(Part::Text(text)) => piece.extend_from_slice(text.as_bytes()),
                Some(Part::Payload(publication)) => {
                    begin(publication.kind(), &mut piece);
                    self.open = Some((publication, 0));
                }
            }
        }
        self.work.note_bytes(piece.len());
        self.bytes_left = self.bytes_left.saturating_sub(piece.len() as u64);
        (!piece.is_empty()).then(|| piece.into())
    }
}

fn begin(kind: PayloadKind, out: &mut Vec<u8>) {
    out.extend_from_slice(member_of(kind).as_bytes());
    if kind != PayloadKind::Json {
        out.push(b'"');
    }
}

fn end(kind: PayloadKind, out: &mut Vec<u8>) {
    if kind != PayloadKind::Json {
        out.push(b'"');
    }
}

/// Appends some of a payload after what is told of it; answers how many of its bytes.
fn append(publication: &Publication, told: usize, out: &mut Vec<u8>) -> usize {
    let rest = &publication.payload()[told..];
    let room = PIECE_BYTES.saturating_sub(out.len());
    match publication.kind() {
        PayloadKind::Json => {
            let some = &rest[..rest.len().min(room)];
            out.extend_from_slice(some);
            some.len()
        }
        PayloadKind::Text => {
            let is_boundary = |at: &usize| rest.get(*at).is_none_or(|byte| byte & 0xC0 != 0x80);
            let least = (room / ESCAPE_BYTES).max(1).min(rest.len());
            let len = (least..).find(is_boundary).unwrap_or(rest.len());
            let text = serde_json::Value::from(String::from_utf8_lossy(&rest[..len])).to_string();
            out.extend_from_slice(&text.as_bytes()[1..text.len() - 1]);
            len
        }
        PayloadKind::Bytes => {
            // Whole groups of three bytes are four characters.
            let some = &rest[..rest.len().min((room / 4).max(1) * 3)];
            out.extend_from_slice(STANDARD.encode(some).as_bytes());
            some.len()
        }
    }
}

impl<I: Iterator<Item = Part> + Unpin> http_body::Body for Pieces<I> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.next().map(|piece| Ok(Frame::data(piece))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes_left)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use model::{Moment, Payload, Sequence};
    use serde_json::{Value, json};

    use super::*;

    fn publication(kind: PayloadKind, bytes: &[u8]) -> Publication {
        let now = Moment { elapsed: Duration::ZERO, unix_ms: 7 };
        Publication::new(Payload::new(kind, bytes), Sequence::START.next(), now)
    }

    /// An object with this payload, and the sizes of the pieces that it is sent in.
    fn told(kind: PayloadKind, bytes: &[u8]) -> (Value, Vec<usize>) {
        let parts = [
            Part::Text("{\"a\":1".into()),
            Part::Payload(publication(kind, bytes)),
            Part::Text("}".into()),
        ];
        let pieces = Pieces::new(ApiWork::default(), parts.into_iter());
        let announced = pieces.bytes_left;
        let pieces: Vec<Bytes> = pieces.collect();
        let whole = pieces.concat();
        assert_eq!(whole.len() as u64, announced, "{kind:?} of {} bytes", bytes.len());
        let value = serde_json::from_slice(&whole).expect("JSON");
        (value, pieces.iter().map(Bytes::len).collect())
    }

    #[test]
    fn payloads_of_every_kind_and_size_are_told_whole_in_pieces() {
        let text = "a\u{1}\"\\\n\u{7f}äß€😀\u{0}";
        for count in [0, 1, 2, 100, 1_638, 1_639, 4_000, 20_000] {
            let text = text.repeat(count);
            for (kind, bytes, expected) in [
                (PayloadKind::Text, text.as_bytes(), json!({"a": 1, "text": text})),
                (
                    PayloadKind::Bytes,
                    text.as_bytes(),
                    json!({"a": 1, "base64": STANDARD.encode(&text)}),
                ),
                (
                    PayloadKind::Json,
                    json!([text]).to_string().as_bytes(),
                    json!({"a": 1, "data": [text]}),
                ),
            ] {
                let (value, pieces) = told(kind, bytes);
                assert_eq!(value, expected);
                let longest = pieces.iter().max().expect("there is one");
                assert!(*longest < PIECE_BYTES + 64, "{kind:?}: a piece of {longest} bytes");
                let full = pieces.len() - 1;
                let is_full = |len: &usize| *len >= PIECE_BYTES;
                assert!(pieces[..full].iter().all(is_full), "{kind:?}: {pieces:?}");
            }
        }
    }
}
