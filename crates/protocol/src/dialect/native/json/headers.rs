//! Headers in JSON: an object of texts, numbers, booleans and `{"base64":…}`. docs/protocol.md#headers.

use std::borrow::Cow;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use model::{HeaderError, HeaderOrigin, HeaderValue, Headers, Refusal};
use serde::Deserialize;
use serde::de::{Deserializer as _, Error, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::fields::bad_command;
use super::publications::{append_base64, append_string};

/// Appends the object.
pub(super) fn append_headers(headers: &Headers<'_>, out: &mut Vec<u8>) {
    out.push(b'{');
    for (index, (name, value)) in headers.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        // A name has nothing that JSON escapes.
        append_string(name, out);
        out.push(b':');
        match value {
            HeaderValue::Text(text) => append_string(text, out),
            HeaderValue::Number(text) => out.extend_from_slice(text.as_bytes()),
            HeaderValue::Boolean(true) => out.extend_from_slice(b"true"),
            HeaderValue::Boolean(false) => out.extend_from_slice(b"false"),
            HeaderValue::Bytes(bytes) => {
                append_base64(r#"{"base64":""#, bytes, out);
                out.push(b'}');
            }
        }
    }
    out.push(b'}');
}

/// The same as a value of its own; nothing where there are no headers.
pub fn encode_headers(headers: Option<&Headers<'_>>) -> Option<Box<RawValue>> {
    let mut out = Vec::new();
    append_headers(headers?, &mut out);
    RawValue::from_string(String::from_utf8(out).ok()?).ok()
}

/// Reads the object, up to the first header that breaks a rule.
///
/// # Errors
/// A rule that a header breaks.
pub fn decode_headers(text: &str, origin: HeaderOrigin) -> Result<Headers<'static>, Refusal> {
    let mut reader = HeaderReader { origin, headers: Headers::default(), error: None };
    let mut json = serde_json::Deserializer::from_str(text);
    let read = json.deserialize_map(&mut reader);
    match (reader.error, read) {
        (Some(error), _) => Err(error.into()),
        (None, Ok(())) => Ok(reader.headers),
        (None, Err(error)) => {
            Err(bad_command(format!("its `headers` are not an object of values: {error}")))
        }
    }
}

struct HeaderReader {
    origin: HeaderOrigin,
    headers: Headers<'static>,
    error: Option<HeaderError>,
}

impl HeaderReader {
    fn push(&mut self, name: &str, value: &str) -> Result<(), HeaderError> {
        let bad =
            || HeaderError::BadValue { name: name.chars().take(Headers::NAME_BYTES_MAX).collect() };
        let (text, bytes);
        let value = match value.as_bytes() {
            b"true" => HeaderValue::Boolean(true),
            b"false" => HeaderValue::Boolean(false),
            [b'"', ..] => {
                text = serde_json::from_str::<Cow<'_, str>>(value).map_err(|_| bad())?;
                HeaderValue::Text(&text)
            }
            [b'{', ..] => {
                let wire: WireBytes<'_> = serde_json::from_str(value).map_err(|_| bad())?;
                bytes = STANDARD.decode(wire.base64.as_bytes()).map_err(|_| bad())?;
                HeaderValue::Bytes(&bytes)
            }
            [b'-' | b'0'..=b'9', ..] => HeaderValue::Number(value),
            _ => return Err(bad()),
        };
        self.headers.push(name, value, self.origin)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireBytes<'a> {
    #[serde(borrow)]
    base64: Cow<'a, str>,
}

#[derive(Deserialize)]
#[serde(transparent)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> Visitor<'de> for &mut HeaderReader {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of headers")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some((Name(name), value)) = map.next_entry::<_, &RawValue>()? {
            if let Err(error) = self.push(&name, value.get()) {
                self.error = Some(error);
                return Err(A::Error::custom("a header is refused"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use model::Code;

    use super::*;

    fn decode(text: &str) -> Result<Headers<'static>, Code> {
        decode_headers(text, HeaderOrigin::Client).map_err(|refusal| refusal.code)
    }

    #[test]
    fn headers_come_back_and_numbers_byte_for_byte() {
        let text = r#"{"a":"x\"y\u00e9","n":1.50E+3,"big":123456789012345678901234567890,"t":true,"f":false,"b":{"base64":"AP8="}}"#;
        let headers = decode(text).expect("valid");
        assert_eq!(headers.get("n"), Some(HeaderValue::Number("1.50E+3")));
        assert_eq!(headers.get("b"), Some(HeaderValue::Bytes(&[0, 255])));
        let again = encode_headers(Some(&headers)).expect("some");
        assert_eq!(again.get(), text.replace("\\u00e9", "é"));
        assert!(decode(" { } ").expect("none").is_empty());
    }

    #[test]
    fn what_is_no_flat_value_is_refused_with_its_code() {
        for (text, code) in [
            (r#"{"a":null}"#, Code::BadHeader),
            (r#"{"a":[]}"#, Code::BadHeader),
            (r#"{"a":{"b":1}}"#, Code::BadHeader),
            (r#"{"a":{"base64":"?"}}"#, Code::BadHeader),
            (r#"{"a":{"base64":"","b":1}}"#, Code::BadHeader),
            (r#"{"a":"x\n"}"#, Code::BadHeader),
            (r#"{"":"x"}"#, Code::BadHeader),
            (r#"{"a":1,"a":2}"#, Code::RepeatedHeader),
            (r#"{"a":1,"\u0061":2}"#, Code::RepeatedHeader),
            (r#"{"$reason":"x"}"#, Code::ReservedHeader),
            ("[]", Code::BadCommand),
            ("7", Code::BadCommand),
        ] {
            assert_eq!(decode(text).err(), Some(code), "{text}");
        }
        let many: Vec<String> = (0..100_000).map(|number| format!(r#""{number}":1"#)).collect();
        assert_eq!(decode(&format!("{{{}}}", many.join(","))).err(), Some(Code::HeadersTooLarge));
    }
}
