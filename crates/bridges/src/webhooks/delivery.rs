//! A delivery: one publication as the body of a request, and its id.

use std::time::{Duration, UNIX_EPOCH};

use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use model::{PayloadKind, Position, Publication, TopicName};
use protocol::native::json::encode_headers;
use serde::Serialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

/// A publication that is to be posted.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Delivery {
    pub topic: TopicName,
    pub position: Position,
    /// Shared with everybody who keeps it.
    pub publication: Publication,
    /// When it was read, in milliseconds since 1970.
    pub read_ms: u64,
}

impl Delivery {
    /// The same for every attempt, after every restart, and for every webhook: that of the publication.
    pub(crate) fn id(&self) -> String {
        id_of("", &self.topic, &self.position)
    }

    /// The body of the request. Standard Webhooks, "Payload structure".
    pub(crate) fn body(&self) -> Vec<u8> {
        #[derive(Serialize)]
        struct Body<'a> {
            r#type: &'static str,
            timestamp: String,
            data: Data<'a>,
        }
        #[derive(Serialize)]
        struct Data<'a> {
            topic: &'a str,
            epoch: &'a str,
            sequence: u64,
            #[serde(flatten)]
            content: Content<'a>,
        }
        let data = Data {
            topic: self.topic.as_str(),
            epoch: self.position.epoch.as_str(),
            sequence: self.position.sequence.get(),
            content: self.content(),
        };
        let body = Body { r#type: "publication", timestamp: rfc3339(self.read_ms), data };
        serde_json::to_vec(&body).expect("texts and numbers can be written")
    }

    /// The headers, and the payload in the member that the protocol has for its kind.
    pub(crate) fn content(&self) -> Content<'_> {
        let payload = self.publication.payload();
        let text = || String::from_utf8_lossy(payload).into_owned();
        let headers = encode_headers(self.publication.headers().as_ref());
        let mut content = Content { headers, ..Content::default() };
        match (self.publication.kind(), serde_json::from_slice(payload)) {
            (PayloadKind::Json, Ok(data)) => content.data = Some(data),
            // The server lets in no JSON that is none; if it did, nothing would be lost.
            (PayloadKind::Json, Err(_)) | (PayloadKind::Text, _) => content.text = Some(text()),
            (PayloadKind::Bytes, _) => {
                content.base64 = Some(BASE64_STANDARD.encode(payload));
            }
        }
        content
    }
}

/// Headers, and one of the three.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Content<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
}

/// An id of what happened at a position: there is no full stop in it, which delimits what is signed.
pub(crate) fn id_of(what: &str, topic: &TopicName, position: &Position) -> String {
    const ID_BYTES: usize = 24;
    let mut hash = Sha256::new();
    // None of these has a line break in it.
    hash.update(format!("{what}\n{topic}\n{}\n{}", position.epoch, position.sequence));
    format!("msg_{}", BASE64_URL_SAFE_NO_PAD.encode(&hash.finalize()[..ID_BYTES]))
}

/// A moment in words. RFC 3339.
pub(crate) fn rfc3339(unix_ms: u64) -> String {
    humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(unix_ms)).to_string()
}

#[cfg(test)]
pub(crate) mod tests {
    use model::{Epoch, HeaderOrigin, HeaderValue, Headers, Limits, Moment, Payload, Sequence};

    use super::*;

    pub(crate) fn delivery(
        topic: &str,
        sequence: u64,
        kind: PayloadKind,
        payload: &[u8],
    ) -> Delivery {
        let sequence = Sequence::new(sequence).expect("small");
        let now = Moment { elapsed: Duration::ZERO, unix_ms: 0 };
        Delivery {
            topic: TopicName::parse(topic, &Limits::default()).expect("valid"),
            position: Position { epoch: Epoch::new("e1"), sequence },
            publication: Publication::new(Payload::new(kind, payload), sequence, now),
            read_ms: 1_700_000_000_123,
        }
    }

    fn check_body(kind: PayloadKind, payload: &[u8], member: &str) {
        let body = String::from_utf8(delivery("a/b", 7, kind, payload).body()).expect("JSON");
        let expected = format!(
            "{{\"type\":\"publication\",\"timestamp\":\"2023-11-14T22:13:20.123Z\",\"data\":\
             {{\"topic\":\"a/b\",\"epoch\":\"e1\",\"sequence\":7,{member}}}}}"
        );
        assert_eq!(body, expected);
    }

    #[test]
    fn headers_stand_in_the_body_beside_the_payload() {
        let mut headers = Headers::default();
        for (name, value) in [
            ("traceparent", HeaderValue::Text("00-af")),
            ("n", HeaderValue::Number("1.50")),
            ("host", HeaderValue::Bytes(&[0])),
        ] {
            headers.push(name, value, HeaderOrigin::Client).expect("valid");
        }
        let plain = delivery("a/b", 7, PayloadKind::Json, b"1");
        let payload = Payload::with_headers(PayloadKind::Json, &headers, b"1");
        let now = Moment { elapsed: Duration::ZERO, unix_ms: plain.publication.unix_ms() };
        let publication = Publication::new(payload, plain.position.sequence, now);
        let with_headers = Delivery { publication, ..plain };
        let body = String::from_utf8(with_headers.body()).expect("JSON");
        let expected = r#""sequence":7,"headers":{"traceparent":"00-af","n":1.50,"host":{"base64":"AA=="}},"data":1}}"#;
        assert!(body.ends_with(expected), "{body}");
    }

    #[test]
    fn a_body_has_the_payload_as_it_is() {
        check_body(PayloadKind::Json, b"{\"n\": 1.00}", "\"data\":{\"n\": 1.00}");
        check_body(PayloadKind::Json, b"null", "\"data\":null");
        check_body(PayloadKind::Text, b"a \"b\"", "\"text\":\"a \\\"b\\\"\"");
        check_body(PayloadKind::Bytes, &[0, 1, 2], "\"base64\":\"AAEC\"");
    }

    #[test]
    fn ids_tell_publications_apart_and_have_no_full_stop() {
        let id = |topic, sequence| delivery(topic, sequence, PayloadKind::Text, b"x").id();
        assert_eq!(id("a", 1), id("a", 1));
        assert!(id("a", 1) != id("a", 2) && id("a", 1) != id("b", 1));
        assert!(id("a", 1).starts_with("msg_") && !id("a", 1).contains('.'));
        let mut other = delivery("a", 1, PayloadKind::Text, b"x");
        other.position.epoch = Epoch::new("e2");
        assert_ne!(other.id(), id("a", 1));
    }
}
