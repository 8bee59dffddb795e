//! Headers and principal of a publication in answers: as members of an object, and as fields of a response.

use http::{HeaderMap, HeaderName, HeaderValue};
use model::{Headers, Publication, Refusal};
use protocol::http::{HEADER_FIELD, item_of, push_item};
use protocol::native::json::encode_headers;

/// The members, with a comma before each; nothing where there are none.
pub(crate) fn members_of(publication: &Publication) -> String {
    let mut members = String::new();
    if let Some(headers) = encode_headers(publication.headers().as_ref()) {
        members += ",\"headers\":";
        members += headers.get();
    }
    if let Some(principal) = publication.principal() {
        members += ",\"principal\":";
        members += &serde_json::Value::from(principal).to_string();
    }
    members
}

/// The fields: `Tidegate-Header-NAME`, each one an item. RFC 9651.
pub(crate) fn fields_of(publication: &Publication) -> Vec<(HeaderName, HeaderValue)> {
    let Some(headers) = publication.headers() else { return Vec::new() };
    let field = |(name, value)| {
        let name = HeaderName::try_from(format!("{HEADER_FIELD}{name}")).ok()?;
        Some((name, HeaderValue::try_from(item_of(value)).ok()?))
    };
    headers.iter().filter_map(field).collect()
}

/// The headers that a request's fields give its publication.
///
/// # Errors
/// A rule of headers that one breaks. A field that comes twice is a header that comes twice.
pub(crate) fn headers_of(fields: &HeaderMap) -> Result<Headers<'static>, Refusal> {
    let mut headers = Headers::default();
    for (name, value) in fields {
        let Some(name) = name.as_str().strip_prefix(HEADER_FIELD) else { continue };
        // The engine has read it as UTF-8 already; what is not ASCII is no item.
        push_item(&mut headers, name, value.to_str().unwrap_or("ä"))?;
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use model::{Code, Moment, Payload, PayloadKind, Sequence};

    use super::*;

    #[test]
    fn headers_come_as_fields_and_go_as_fields_and_members() {
        let mut fields = HeaderMap::new();
        for (name, value) in [
            ("Tidegate-Header-Unit", "\"EUR\""),
            ("tidegate-header-n", "1.50"),
            ("tidegate-header-raw", ":AP8=:"),
            ("content-type", "text/plain"),
        ] {
            fields.append(
                HeaderName::try_from(name).expect("a name"),
                HeaderValue::from_str(value).expect("a value"),
            );
        }
        let headers = headers_of(&fields).expect("valid");
        let payload = Payload::with_headers(PayloadKind::Text, &headers, b"x").of_principal("a\"b");
        let now = Moment { elapsed: Duration::ZERO, unix_ms: 7 };
        let publication = Publication::new(payload, Sequence::START.next(), now);
        let told = members_of(&publication);
        let expected =
            r#","headers":{"unit":"EUR","n":1.50,"raw":{"base64":"AP8="}},"principal":"a\"b""#;
        assert_eq!(told, expected);
        let told: HeaderMap = fields_of(&publication).into_iter().collect();
        assert_eq!(headers_of(&told), Ok(headers));
        let plain = Payload::new(PayloadKind::Text, b"x");
        let plain = Publication::new(plain, Sequence::START.next(), now);
        assert_eq!((members_of(&plain), fields_of(&plain)), (String::new(), Vec::new()));
        fields.append("tidegate-header-n", HeaderValue::from_static("2"));
        assert_eq!(headers_of(&fields).map_err(|it| it.code), Err(Code::RepeatedHeader));
        let mut list = HeaderMap::new();
        list.append("tidegate-header-n", HeaderValue::from_static("1, 2"));
        assert_eq!(headers_of(&list).map_err(|it| it.code), Err(Code::BadHeader));
    }
}
