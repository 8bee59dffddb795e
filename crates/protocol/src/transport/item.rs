//! Headers of publications as HTTP fields: each value is one item. RFC 9651, section 3.3.
//!
//! Text in ASCII is a string, other text a display string, bytes are a byte sequence, and a number that RFC 9651 has no form
//! for is a string with the parameter `number`. A token is read as text.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use model::{HeaderError, HeaderOrigin, HeaderValue, Headers, is_number};

/// The field of the header `NAME` is this and the name.
pub const HEADER_FIELD: &str = "tidegate-header-";

/// The parameter of a string that is a number.
const NUMBER: &str = ";number";

/// Adds the header `name` with the value that `item` spells out, as a client sent it.
///
/// # Errors
/// It is not one item of a known kind, or breaks a rule of headers.
pub fn push_item(headers: &mut Headers<'_>, name: &str, item: &str) -> Result<(), HeaderError> {
    let item = item.trim_matches(' ');
    let bad =
        || HeaderError::BadValue { name: name.chars().take(Headers::NAME_BYTES_MAX).collect() };
    let mut push = |value| headers.push(name, value, HeaderOrigin::Client);
    match item.as_bytes() {
        b"?0" => push(HeaderValue::Boolean(false)),
        b"?1" => push(HeaderValue::Boolean(true)),
        [b'"', ..] => {
            let (text, rest) = string(&item[1..]).ok_or_else(bad)?;
            match rest {
                "" => push(HeaderValue::Text(&text)),
                NUMBER => push(HeaderValue::Number(&text)),
                _ => Err(bad()),
            }
        }
        [b'%', b'"', ..] => {
            let text = display_string(&item[2..]).ok_or_else(bad)?;
            push(HeaderValue::Text(&text))
        }
        [b':', ..] => {
            let encoded = item[1..].strip_suffix(':').ok_or_else(bad)?;
            let bytes = STANDARD.decode(encoded).map_err(|_| bad())?;
            push(HeaderValue::Bytes(&bytes))
        }
        [b'-' | b'0'..=b'9', ..] => push(HeaderValue::Number(&number(item).ok_or_else(bad)?)),
        [b'A'..=b'Z' | b'a'..=b'z' | b'*', ..] if item.bytes().all(is_of_token) => {
            push(HeaderValue::Text(item))
        }
        _ => Err(bad()),
    }
}

/// The item of a value.
pub fn item_of(value: HeaderValue<'_>) -> String {
    match value {
        HeaderValue::Boolean(is_true) => if is_true { "?1" } else { "?0" }.into(),
        HeaderValue::Bytes(bytes) => format!(":{}:", STANDARD.encode(bytes)),
        HeaderValue::Number(text) if is_item_number(text) => text.into(),
        HeaderValue::Number(text) => format!("\"{text}\"{NUMBER}"),
        HeaderValue::Text(text) if text.bytes().all(is_printable) => {
            format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
        }
        HeaderValue::Text(text) => {
            let mut item = String::from("%\"");
            for byte in text.bytes() {
                match byte {
                    b'%' | b'"' => {}
                    byte if is_printable(byte) => {
                        item.push(byte.into());
                        continue;
                    }
                    _ => {}
                }
                write!(item, "%{byte:02x}").expect("a string takes all");
            }
            item.push('"');
            item
        }
    }
}

fn is_printable(byte: u8) -> bool {
    (0x20..0x7F).contains(&byte)
}

fn is_of_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&byte)
}

/// The text up to the closing quote, and what follows that. RFC 9651, section 4.2.5.
fn string(rest: &str) -> Option<(String, &str)> {
    let (mut text, mut chars) = (String::new(), rest.char_indices());
    loop {
        match chars.next()? {
            (at, '"') => return Some((text, &rest[at + 1..])),
            (_, '\\') => match chars.next()?.1 {
                escaped @ ('"' | '\\') => text.push(escaped),
                _ => return None,
            },
            (_, other) if other.is_ascii() && is_printable(other as u8) => text.push(other),
            _ => return None,
        }
    }
}

/// RFC 9651, section 4.2.10.
fn display_string(rest: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::new(), rest.as_bytes());
    loop {
        let (&byte, after) = rest.split_first()?;
        rest = after;
        match byte {
            b'"' => return if rest.is_empty() { String::from_utf8(bytes).ok() } else { None },
            b'%' => {
                let (digits, after) = rest.split_first_chunk::<2>()?;
                let is_lower = |digit: &u8| digit.is_ascii_digit() || (b'a'..=b'f').contains(digit);
                if !digits.iter().all(is_lower) {
                    return None;
                }
                let digits = std::str::from_utf8(digits).ok()?;
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
                rest = after;
            }
            byte if is_printable(byte) => bytes.push(byte),
            _ => return None,
        }
    }
}

/// The number as JSON has it: without leading zeros. RFC 9651, section 4.2.4.
fn number(item: &str) -> Option<String> {
    let (sign, digits) = item.strip_prefix('-').map_or(("", item), |digits| ("-", digits));
    let (whole, fraction) = digits.split_once('.').map_or((digits, None), |(a, b)| (a, Some(b)));
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    let whole_max = if fraction.is_some() { 12 } else { 15 };
    let is_number = is_digits(whole)
        && whole.len() <= whole_max
        && fraction.is_none_or(|fraction| is_digits(fraction) && fraction.len() <= 3);
    let kept = match whole.trim_start_matches('0') {
        "" => "0",
        kept => kept,
    };
    let fraction = fraction.map_or_else(String::new, |fraction| format!(".{fraction}"));
    is_number.then(|| format!("{sign}{kept}{fraction}"))
}

/// Whether a number in JSON is one as it stands.
fn is_item_number(text: &str) -> bool {
    is_number(text) && number(text).is_some_and(|number| number == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(item: &str) -> Option<String> {
        let mut headers = Headers::default();
        push_item(&mut headers, "a", item).ok()?;
        Some(format!("{:?}", headers.get("a")?))
    }

    #[test]
    fn items_are_read() {
        for (item, value) in [
            ("?1", "Boolean(true)"),
            (" ?0 ", "Boolean(false)"),
            ("7", "Number(\"7\")"),
            ("-007", "Number(\"-7\")"),
            ("0001.50", "Number(\"1.50\")"),
            ("999999999999999", "Number(\"999999999999999\")"),
            ("\"1e400\";number", "Number(\"1e400\")"),
            ("\"a \\\"b\\\\\"", r#"Text("a \"b\\")"#),
            ("%\"f%c3%bcr\"", "Text(\"für\")"),
            ("token/x", "Text(\"token/x\")"),
            (":AP8=:", "Bytes([0, 255])"),
            ("::", "Bytes([])"),
        ] {
            assert_eq!(read(item).as_deref(), Some(value), "{item}");
        }
    }

    #[test]
    fn other_fields_are_refused() {
        for item in [
            "",
            "?2",
            "\"a",
            "\"a\\b\"",
            "\"ä\"",
            "a b",
            "a, b",
            "(a)",
            "1.",
            ".5",
            "1e5",
            "-",
            "1;a",
            "\"a\";b",
            "1234567890123456",
            "1.2345",
            "%\"%C3%BC\"",
            "%\"%ff\"",
            "%\"a",
            ":?:",
            ":AP8=",
            "@17",
            "\"x\";number",
            "%\"%0a\"",
        ] {
            assert_eq!(read(item), None, "{item}");
        }
        let mut headers = Headers::default();
        let error = push_item(&mut headers, "$source", "1").expect_err("the server's");
        assert_eq!(error.code(), model::Code::ReservedHeader);
    }

    proptest::proptest! {
        #[test]
        fn any_value_comes_back_and_no_text_panics(
            text in "[^\r\n\0]{0,20}",
            number in "-?(0|[1-9][0-9]{0,20})(\\.[0-9]{1,5})?([eE][+-]?[0-9]{1,3})?",
            bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..20),
            wild in "[\"%:?;\\\\a-f0-9 .é\u{0}-]{0,12}",
        ) {
            let values = [HeaderValue::Text(&text), HeaderValue::Number(&number), HeaderValue::Bytes(&bytes)];
            for value in values {
                let (item, mut headers) = (item_of(value), Headers::default());
                proptest::prop_assert!(item.bytes().all(is_printable), "{item:?}");
                push_item(&mut headers, "a", &item).expect("it is one");
                proptest::prop_assert_eq!(headers.get("a"), Some(value));
            }
            let _ = read(&wild);
        }
    }
}
