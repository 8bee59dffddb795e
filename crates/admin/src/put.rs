//! `PUT /v1/topics/{topic}`: publishes its body.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderMap, header};
use model::{Code, Draft, Headers, Limits, Payload, PayloadKind, Refusal, Wish, check_key};
use serde_json::value::RawValue;

use crate::asked::{TopicOf, principal_of};
use crate::conditions::{etag, expected};
use crate::error::{ApiError, json_header};
use crate::members::headers_of;
use crate::publish::{ask, body_of, check_payload_len};
use crate::question::Shards;

const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// The default content type of curl.
const FORM: &str = "application/x-www-form-urlencoded";

pub(crate) async fn put(
    State(shards): State<Arc<dyn Shards>>,
    TopicOf(topic): TopicOf,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, ApiError> {
    let limits = shards.limits();
    let principal = principal_of(&*shards, &headers)?;
    principal.check(Wish::Publish(&topic))?;
    shards.work().note_bytes(body.len());
    let given = headers_of(&headers)?;
    check_payload_len(body.len() + given.bytes().len(), limits)?;
    shards.check_memory(body.len(), "publish")?;
    let idempotency_key = key_of(&headers, limits)?;
    let expected = expected(&headers)?;
    let payload = payload_of(&headers, &given, &body)?;
    let draft = Draft { topic, payload, idempotency_key, expected };
    let published = ask(&*shards, &principal, Ok(draft))?.await.map_err(in_terms_of_http)?;
    let mut response = (json_header(), body_of(&published).to_string()).into_response();
    if let Some(tag) = etag(&published.position) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    Ok(response)
}

/// Here, a refusal because of `expect` is a failed condition. RFC 9110, section 13.1.1.
fn in_terms_of_http(refusal: Refusal) -> Refusal {
    match refusal.code {
        Code::SequenceMismatch => Refusal { code: Code::PreconditionFailed, ..refusal },
        _ => refusal,
    }
}

/// A field that a request may have once.
fn single<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, Refusal> {
    let mut lines = headers.get_all(name).iter();
    match (lines.next(), lines.next()) {
        (Some(_), Some(_)) => Err(bad(&format!("it has several fields {name}; send one"))),
        // The engine has read it as UTF-8 already.
        (line, _) => Ok(line.map(|line| line.to_str().unwrap_or("").trim())),
    }
}

fn bad(why: &str) -> Refusal {
    Refusal::new(Code::BadRequest, format!("cannot publish the body: {why}"))
}

/// The key as it stands there, or the text in quotes that the field's draft asks for
/// (draft-ietf-httpapi-idempotency-key-header): both are the same key.
fn key_of(headers: &HeaderMap, limits: &Limits) -> Result<Option<Box<str>>, Refusal> {
    let Some(said) = single(headers, IDEMPOTENCY_KEY)? else { return Ok(None) };
    let broken =
        || bad("its Idempotency-Key is empty, or opens quotes and does not close them; mend it");
    let key = match said.strip_prefix('"') {
        None => said.to_owned(),
        Some(rest) => unquoted(rest).ok_or_else(broken)?,
    };
    if key.is_empty() {
        return Err(broken());
    }
    check_key(Some(&key), limits)
}

/// The text of a quoted string after its first quote. RFC 9651, section 4.2.5.
fn unquoted(rest: &str) -> Option<String> {
    let (mut text, mut chars) = (String::new(), rest.chars());
    loop {
        match chars.next()? {
            '"' => return chars.next().is_none().then_some(text),
            '\\' => match chars.next()? {
                escaped @ ('"' | '\\') => text.push(escaped),
                _ => return None,
            },
            other => text.push(other),
        }
    }
}

/// The kind of a body with this `Content-Type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DeclaredKind {
    Json,
    Text,
    Bytes,
    /// No kind: text if the body is UTF-8, else bytes.
    None,
}

/// The payload with the headers `given` by fields.
fn payload_of(headers: &HeaderMap, given: &Headers<'_>, body: &[u8]) -> Result<Payload, Refusal> {
    for name in [header::CONTENT_RANGE, header::CONTENT_ENCODING] {
        match single(headers, name.as_str())? {
            None => {}
            Some(coding) if name == header::CONTENT_ENCODING => check_coding(coding)?,
            // RFC 9110, section 14.5.
            Some(_) => return Err(bad("a part of a value cannot be put; send the whole of it")),
        }
    }
    match declared_kind(single(headers, header::CONTENT_TYPE.as_str())?.unwrap_or(""))? {
        DeclaredKind::Json => {
            // Without the spaces around it, as everywhere.
            let json: &RawValue = serde_json::from_slice(body).map_err(|error| {
                bad_payload(&format!("it is not JSON ({error}); mend it, or send text/plain"))
            })?;
            Ok(Payload::with_headers(PayloadKind::Json, given, json.get().as_bytes()))
        }
        DeclaredKind::Text if std::str::from_utf8(body).is_err() => {
            Err(bad_payload("it is not UTF-8; mend it, or send application/octet-stream"))
        }
        DeclaredKind::Text => Ok(Payload::with_headers(PayloadKind::Text, given, body)),
        DeclaredKind::None if std::str::from_utf8(body).is_ok() => {
            Ok(Payload::with_headers(PayloadKind::Text, given, body))
        }
        DeclaredKind::Bytes | DeclaredKind::None => {
            Ok(Payload::with_headers(PayloadKind::Bytes, given, body))
        }
    }
}

fn bad_payload(why: &str) -> Refusal {
    Refusal::new(Code::BadPayload, format!("cannot publish the body: {why}"))
}

fn unsupported(why: &str) -> Refusal {
    Refusal::new(Code::UnsupportedMediaType, format!("cannot publish the body: {why}"))
}

fn check_coding(coding: &str) -> Result<(), Refusal> {
    if coding.is_empty() || coding.eq_ignore_ascii_case("identity") {
        return Ok(());
    }
    Err(unsupported(&format!("its Content-Encoding is {coding}; send it as it is")))
}

fn declared_kind(content_type: &str) -> Result<DeclaredKind, Refusal> {
    let mut parts = content_type.split(';').map(str::trim);
    let media = parts.next().unwrap_or("").to_ascii_lowercase();
    let declared = match media.as_str() {
        "" | FORM => DeclaredKind::None,
        "application/json" => DeclaredKind::Json,
        media if media.ends_with("+json") => DeclaredKind::Json,
        media if media.starts_with("text/") => DeclaredKind::Text,
        _ => DeclaredKind::Bytes,
    };
    let charset = parts.filter_map(|part| part.split_once('=')).find_map(|(name, value)| {
        let is_charset = name.trim().eq_ignore_ascii_case("charset");
        is_charset.then(|| value.trim().trim_matches('"'))
    });
    let is_utf8 = |name: &str| ["utf-8", "utf8", "us-ascii"].contains(&&*name.to_ascii_lowercase());
    match charset {
        // Bytes are passed on as they are, whatever they mean.
        Some(name) if declared != DeclaredKind::Bytes && !is_utf8(name) => Err(unsupported(
            &format!("its charset is {name}; send UTF-8, or application/octet-stream"),
        )),
        _ => Ok(declared),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_str(value).expect("a field"));
        }
        headers
    }

    #[test]
    fn what_a_body_is_follows_from_its_type() {
        use PayloadKind::{Bytes, Json, Text};
        let (form, octets) = (FORM, "application/octet-stream");
        type Row<'a> = (&'a str, &'a [u8], Result<(PayloadKind, &'a [u8]), Code>);
        let rows: [Row<'_>; 26] = [
            ("application/json", b"{\"a\": 1.10}", Ok((Json, b"{\"a\": 1.10}"))),
            ("Application/JSON; charset=UTF-8", b" 1\r\n", Ok((Json, b"1"))),
            ("application/problem+json", b"[]", Ok((Json, b"[]"))),
            ("application/json", b"", Err(Code::BadPayload)),
            ("application/json", b"{\"a\"", Err(Code::BadPayload)),
            ("application/json", b"1 2", Err(Code::BadPayload)),
            ("application/json", b"\"\xff\"", Err(Code::BadPayload)),
            ("application/json; charset=latin1", b"1", Err(Code::UnsupportedMediaType)),
            ("text/plain", b"hi\n", Ok((Text, b"hi\n"))),
            ("text/html", b"<b>", Ok((Text, b"<b>"))),
            ("text/plain", b"", Ok((Text, b""))),
            ("text/plain; charset=\"utf-8\"", b"\xc3\xa4", Ok((Text, b"\xc3\xa4"))),
            ("text/plain", b"\xe4", Err(Code::BadPayload)),
            (
                "text/plain; format=flowed; charset=iso-8859-1",
                b"a",
                Err(Code::UnsupportedMediaType),
            ),
            ("text/csv+json", b"1", Ok((Json, b"1"))),
            (octets, b"hi", Ok((Bytes, b"hi"))),
            ("application/x-thing; charset=latin1", b"\xe4", Ok((Bytes, b"\xe4"))),
            ("image/png", b"", Ok((Bytes, b""))),
            ("json", b"1", Ok((Bytes, b"1"))),
            ("application/jsonp", b"1", Ok((Bytes, b"1"))),
            ("multipart/form-data; boundary=x", b"--x", Ok((Bytes, b"--x"))),
            (form, b"a=1", Ok((Text, b"a=1"))),
            (form, b"\xff", Ok((Bytes, b"\xff"))),
            ("", b"hi", Ok((Text, b"hi"))),
            ("", b"\xff", Ok((Bytes, b"\xff"))),
            ("", b"", Ok((Text, b""))),
        ];
        for (media, body, wanted) in rows {
            let fields = [("content-type", media)];
            for fields in [&fields[..], &[]] {
                // Without the field it is as if nothing is said.
                if fields.is_empty() && !media.is_empty() {
                    continue;
                }
                let payload = payload_of(&headers(fields), &Headers::default(), body);
                let payload = payload.map_err(|refusal| refusal.code);
                let found = payload.as_ref().map(|it| (it.kind(), it.bytes())).map_err(|it| *it);
                assert_eq!(found, wanted, "{media}, {body:?}");
            }
        }
    }

    #[test]
    fn what_cannot_be_taken_as_it_stands_is_refused() {
        let refused = |fields: &[(&'static str, &str)]| {
            payload_of(&headers(fields), &Headers::default(), b"1")
                .map(|_| ())
                .map_err(|refusal| refusal.code)
        };
        assert_eq!(refused(&[("content-encoding", "gzip")]), Err(Code::UnsupportedMediaType));
        assert_eq!(refused(&[("content-encoding", "identity")]), Ok(()));
        assert_eq!(refused(&[("content-range", "bytes 0-0/2")]), Err(Code::BadRequest));
        let twice = [("content-type", "text/plain"), ("content-type", "application/json")];
        assert_eq!(refused(&twice), Err(Code::BadRequest));
    }

    #[test]
    fn a_key_is_the_same_with_and_without_quotes() {
        let limits = Limits { idempotency_key_bytes_max: 5, ..Limits::default() };
        for (said, wanted) in [
            ("abc", Ok("abc")),
            ("\"abc\"", Ok("abc")),
            ("\"a\\\"b\\\\\"", Ok("a\"b\\")),
            ("\"abc", Err(Code::BadRequest)),
            ("\"a\"b", Err(Code::BadRequest)),
            ("\"a\\b\"", Err(Code::BadRequest)),
            ("", Err(Code::BadRequest)),
            ("\"\"", Err(Code::BadRequest)),
            ("abcdef", Err(Code::KeyTooLong)),
        ] {
            let key = key_of(&headers(&[("idempotency-key", said)]), &limits);
            let key = key.map_err(|refusal| refusal.code);
            assert_eq!(
                key.as_ref().map(|key| key.as_deref()),
                wanted.as_ref().map(|it| Some(*it)),
                "{said}"
            );
        }
        assert_eq!(key_of(&headers(&[]), &limits), Ok(None));
    }
}
