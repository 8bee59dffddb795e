//! Headers: names and values that a publication has beside its payload. docs/protocol.md#headers.
//!
//! They are kept as they stand in a binary record, checked once where they come from:
//!
//! ```text
//! count, and for each: name length (1 byte), name, kind (1), value length (varint), value
//! ```
//!
//! The kinds are 0 text, 1 a number as its decimal text, 2 false, 3 true and 4 bytes; 2 and 3 have no value.

use std::borrow::Cow;
use std::fmt;

use crate::{Code, Refusal};

/// The value of a header.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum HeaderValue<'a> {
    /// Text without CR, LF and NUL.
    Text(&'a str),
    /// A JSON number, kept byte for byte.
    Number(&'a str),
    /// True or false.
    Boolean(bool),
    /// Anything.
    Bytes(&'a [u8]),
}

/// The headers of one publication, in the order in which they were given. Whatever they hold keeps the rules.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Headers<'a>(Cow<'a, [u8]>);

/// The side that gives a header: names that begin with `$` are the server's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderOrigin {
    /// A client.
    Client,
    /// The server, or what it kept.
    Server,
}

impl<'a> Headers<'a> {
    /// Headers of one publication.
    pub const LEN_MAX: usize = 32;
    /// Bytes of a name.
    pub const NAME_BYTES_MAX: usize = 64;
    /// Bytes of all of them, in the form above.
    pub const BYTES_MAX: usize = 4_096;

    /// Reads the form above.
    ///
    /// # Errors
    /// A rule that it breaks.
    pub fn read(bytes: &'a [u8], origin: HeaderOrigin) -> Result<Self, HeaderError> {
        if bytes.len() > Self::BYTES_MAX {
            return Err(HeaderError::TooLarge);
        }
        let (&count, mut rest) = bytes.split_first().ok_or(HeaderError::Malformed)?;
        if usize::from(count) > Self::LEN_MAX {
            return Err(HeaderError::TooMany);
        }
        let mut names = Vec::with_capacity(count.into());
        for _ in 0..count {
            let (name, value) = take(&mut rest).ok_or(HeaderError::Malformed)?;
            check_name(name, origin)?;
            check_value(name, value)?;
            if names.contains(&name) {
                return Err(HeaderError::Repeated { name: name.into() });
            }
            names.push(name);
        }
        match rest {
            [] if count > 0 => Ok(Self(bytes.into())),
            [] => Ok(Self::default()),
            _ => Err(HeaderError::Malformed),
        }
    }

    /// Those that stand in memory already.
    pub(crate) fn known(bytes: &'a [u8]) -> Self {
        Self(bytes.into())
    }

    /// Adds a header.
    ///
    /// # Errors
    /// A rule that it breaks; then nothing is added.
    pub fn push(
        &mut self,
        name: &str,
        value: HeaderValue<'_>,
        origin: HeaderOrigin,
    ) -> Result<(), HeaderError> {
        check_name(name, origin)?;
        check_value(name, value)?;
        if self.len() == Self::LEN_MAX {
            return Err(HeaderError::TooMany);
        }
        if self.get(name).is_some() {
            return Err(HeaderError::Repeated { name: name.into() });
        }
        let (kind, bytes) = match value {
            HeaderValue::Text(text) => (0, text.as_bytes()),
            HeaderValue::Number(text) => (1, text.as_bytes()),
            HeaderValue::Boolean(is_true) => (2 + u8::from(is_true), &[][..]),
            HeaderValue::Bytes(bytes) => (4, bytes),
        };
        // A count, a length, a kind and a varint.
        if self.0.len() + name.len() + bytes.len() + 5 > Self::BYTES_MAX {
            return Err(HeaderError::TooLarge);
        }
        let all = self.0.to_mut();
        match all.first_mut() {
            Some(count) => *count += 1,
            None => all.push(1),
        }
        all.push(name.len() as u8);
        all.extend_from_slice(name.as_bytes());
        all.push(kind);
        if !matches!(value, HeaderValue::Boolean(_)) {
            append_len(bytes.len(), all);
            all.extend_from_slice(bytes);
        }
        Ok(())
    }

    /// The form above; nothing where there are none.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.first().copied().map_or(0, usize::from)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The headers, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, HeaderValue<'_>)> {
        let mut rest = self.0.get(1..).unwrap_or_default();
        std::iter::from_fn(move || take(&mut rest))
    }

    /// The value under a name.
    pub fn get(&self, name: &str) -> Option<HeaderValue<'_>> {
        self.iter().find_map(|(known, value)| (known == name).then_some(value))
    }

    /// The same, owning its bytes.
    pub fn into_owned(self) -> Headers<'static> {
        Headers(Cow::Owned(self.0.into_owned()))
    }
}

impl fmt::Debug for Headers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// Takes a header from the front of `rest`.
fn take<'a>(rest: &mut &'a [u8]) -> Option<(&'a str, HeaderValue<'a>)> {
    let (&len, after) = rest.split_first()?;
    let (name, after) = after.split_at_checked(len.into())?;
    let (&kind, mut after) = after.split_first()?;
    let value = match kind {
        2 => HeaderValue::Boolean(false),
        3 => HeaderValue::Boolean(true),
        0 | 1 | 4 => {
            let len = take_len(&mut after)?;
            let (value, behind) = after.split_at_checked(len)?;
            after = behind;
            match kind {
                0 => HeaderValue::Text(std::str::from_utf8(value).ok()?),
                1 => HeaderValue::Number(std::str::from_utf8(value).ok()?),
                _ => HeaderValue::Bytes(value),
            }
        }
        _ => return None,
    };
    *rest = after;
    Some((std::str::from_utf8(name).ok()?, value))
}

/// Takes a length of at most two bytes (LEB128): none is longer.
fn take_len(rest: &mut &[u8]) -> Option<usize> {
    let (len, taken) = match rest {
        [low, ..] if low & 0x80 == 0 => (usize::from(*low), 1),
        [low, high, ..] if high & 0x80 == 0 => {
            (usize::from(low & 0x7F) | usize::from(*high) << 7, 2)
        }
        _ => return None,
    };
    *rest = &rest[taken..];
    Some(len)
}

fn append_len(len: usize, out: &mut Vec<u8>) {
    match len {
        0..0x80 => out.push(len as u8),
        _ => out.extend_from_slice(&[len as u8 | 0x80, (len >> 7) as u8]),
    }
}

fn check_name(name: &str, origin: HeaderOrigin) -> Result<(), HeaderError> {
    let bad =
        || HeaderError::BadName { name: name.chars().take(Headers::NAME_BYTES_MAX).collect() };
    let rest = match name.strip_prefix('$') {
        Some(_) if origin == HeaderOrigin::Client => {
            return Err(HeaderError::Reserved { name: name.into() });
        }
        Some(rest) => rest,
        None => name,
    };
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let is_name = !rest.is_empty() && name.len() <= Headers::NAME_BYTES_MAX;
    if is_name && rest.bytes().all(is_part) { Ok(()) } else { Err(bad()) }
}

fn check_value(name: &str, value: HeaderValue<'_>) -> Result<(), HeaderError> {
    match value {
        HeaderValue::Text(text) if text.bytes().any(|it| matches!(it, b'\r' | b'\n' | 0)) => {
            Err(HeaderError::LineBreak { name: name.into() })
        }
        HeaderValue::Number(text) if !is_number(text) => {
            Err(HeaderError::BadValue { name: name.into() })
        }
        _ => Ok(()),
    }
}

/// Whether `text` is a JSON number. RFC 8259, section 6.
pub fn is_number(text: &str) -> bool {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let rest = text.strip_prefix('-').unwrap_or(text);
    let whole = digits(rest);
    if whole == 0 || (whole > 1 && rest.starts_with('0')) {
        return false;
    }
    let mut rest = &rest[whole..];
    if let Some(after) = rest.strip_prefix('.') {
        let count = digits(after);
        if count == 0 {
            return false;
        }
        rest = &after[count..];
    }
    if let Some(after) = rest.strip_prefix(['e', 'E']) {
        let after = after.strip_prefix(['+', '-']).unwrap_or(after);
        let count = digits(after);
        return count > 0 && count == after.len();
    }
    rest.is_empty()
}

/// Why headers are refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// A name has other characters, or is too long or empty.
    BadName {
        /// The name, or its beginning.
        name: String,
    },
    /// The name is one of the server's.
    Reserved {
        /// The name.
        name: String,
    },
    /// The value is neither text, number, boolean nor bytes.
    BadValue {
        /// Of which header.
        name: String,
    },
    /// A text has CR, LF or NUL.
    LineBreak {
        /// Of which header.
        name: String,
    },
    /// A name comes twice.
    Repeated {
        /// The name.
        name: String,
    },
    /// There are too many.
    TooMany,
    /// They have too many bytes.
    TooLarge,
    /// They are not a list of headers.
    Malformed,
}

impl HeaderError {
    /// The code of the refusal.
    pub fn code(&self) -> Code {
        match self {
            Self::BadName { .. } | Self::BadValue { .. } | Self::LineBreak { .. } => {
                Code::BadHeader
            }
            Self::Malformed => Code::BadHeader,
            Self::Repeated { .. } => Code::RepeatedHeader,
            Self::Reserved { .. } => Code::ReservedHeader,
            Self::TooMany | Self::TooLarge => Code::HeadersTooLarge,
        }
    }
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot publish the headers: ")?;
        match self {
            Self::BadName { name } => write!(
                f,
                "`{name}` is not the name of a header; use 1 to {} of A-Z a-z 0-9 . _ -",
                Headers::NAME_BYTES_MAX
            ),
            Self::Reserved { name } => write!(
                f,
                "`{name}` is the server's, as all names that begin with $ are; use another name"
            ),
            Self::BadValue { name } => write!(
                f,
                "the value of `{name}` is neither text, number, boolean nor {{\"base64\":…}}; send one of these"
            ),
            Self::LineBreak { name } => {
                write!(f, "the text of `{name}` has CR, LF or NUL; leave them out, or send bytes")
            }
            Self::Repeated { name } => write!(f, "`{name}` comes twice; send it once"),
            Self::TooMany => {
                write!(f, "there are more than {}; send fewer", Headers::LEN_MAX)
            }
            Self::TooLarge => {
                write!(f, "they have more than {} bytes; send less", Headers::BYTES_MAX)
            }
            Self::Malformed => f.write_str("they are not an object; send name and value of each"),
        }
    }
}

impl std::error::Error for HeaderError {}

impl From<HeaderError> for Refusal {
    fn from(error: HeaderError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(name: &str, value: HeaderValue<'_>) -> Result<(), Code> {
        let mut headers = Headers::default();
        headers.push(name, value, HeaderOrigin::Client).map_err(|error| error.code())
    }

    #[test]
    fn headers_come_back_in_order() {
        let long = "x".repeat(300);
        let all = [
            ("content-type", HeaderValue::Text("text/plain")),
            ("n", HeaderValue::Number("1.50e+3")),
            ("no", HeaderValue::Boolean(false)),
            ("yes", HeaderValue::Boolean(true)),
            ("raw", HeaderValue::Bytes(&[0, 13, 255])),
            ("long", HeaderValue::Text(&long)),
            ("empty", HeaderValue::Text("")),
        ];
        let mut headers = Headers::default();
        assert_eq!((headers.len(), headers.iter().count(), headers.bytes()), (0, 0, &[][..]));
        for (name, value) in all {
            headers.push(name, value, HeaderOrigin::Client).expect(name);
        }
        let read = Headers::read(headers.bytes(), HeaderOrigin::Client).expect("its own form");
        assert_eq!((read.iter().collect::<Vec<_>>(), read.len()), (all.to_vec(), all.len()));
        assert_eq!(read.get("long"), Some(HeaderValue::Text(&long)));
        assert_eq!(read.get("other"), None);
        for cut in 1..headers.bytes().len() {
            let read = Headers::read(&headers.bytes()[..cut], HeaderOrigin::Client);
            assert_eq!(read, Err(HeaderError::Malformed), "{cut}");
        }
        let none = Headers::read(&[0], HeaderOrigin::Client).expect("no headers");
        assert!(none.is_empty());
    }

    #[test]
    fn each_rule_has_its_code() {
        let text = HeaderValue::Text;
        assert_eq!(client(&"n".repeat(64), text("x")), Ok(()));
        for name in ["", "a b", "a:b", "ä", "a/b", "a$", &"n".repeat(65)] {
            assert_eq!(client(name, text("x")), Err(Code::BadHeader), "{name}");
        }
        assert_eq!(client("$principal", text("x")), Err(Code::ReservedHeader));
        for bad in ["a\rb", "a\nb", "a\0b"] {
            assert_eq!(client("a", text(bad)), Err(Code::BadHeader), "{bad:?}");
        }
        let long = HeaderValue::Bytes(&[0; 4_096]);
        assert_eq!(client("a", long), Err(Code::HeadersTooLarge));
        let mut headers = Headers::default();
        let server = headers.push("$source", text("x"), HeaderOrigin::Server);
        assert_eq!(
            (server, headers.push("$", text("x"), HeaderOrigin::Server).is_err()),
            (Ok(()), true)
        );
        let refused =
            Headers::read(headers.bytes(), HeaderOrigin::Client).expect_err("the server's");
        assert_eq!(refused.code(), Code::ReservedHeader);
        let again = headers.push("$source", text("y"), HeaderOrigin::Server).expect_err("twice");
        assert_eq!(again.code(), Code::RepeatedHeader);
        for number in 1..32 {
            headers.push(&number.to_string(), text("x"), HeaderOrigin::Client).expect("room");
        }
        let many = headers.push("more", text("x"), HeaderOrigin::Client).expect_err("33");
        assert_eq!((many.code(), headers.len()), (Code::HeadersTooLarge, 32));
    }

    #[test]
    fn what_a_peer_encodes_keeps_the_same_rules() {
        let read = |bytes: &[u8]| match Headers::read(bytes, HeaderOrigin::Client) {
            Ok(_) => Ok(()),
            Err(error) => Err(error.code()),
        };
        assert!(read(&[1, 1, b'a', 0, 1, b'x']).is_ok());
        for (bytes, code) in [
            (&[][..], Code::BadHeader),
            (&[2, 1, b'a', 2, 1, b'a', 3], Code::RepeatedHeader),
            (&[33], Code::HeadersTooLarge),
            (&[1, 1, b'a', 5], Code::BadHeader),
            (&[1, 1, b'a', 0, 1, b'\n'], Code::BadHeader),
            (&[1, 1, b'a', 0, 1, 0xFF], Code::BadHeader),
            (&[1, 1, b'a', 1, 2, b'0', b'1'], Code::BadHeader),
            (&[1, 1, b'a', 2, 0], Code::BadHeader),
            (&[0, 0], Code::BadHeader),
            (&[1, 1, b'a', 0, 0x80, 0x80, 0], Code::BadHeader),
            (&[1; 4_097], Code::HeadersTooLarge),
        ] {
            assert_eq!(read(bytes).err(), Some(code), "{bytes:?}");
        }
    }

    #[test]
    fn numbers_are_those_of_json() {
        for number in
            ["0", "-0", "10", "1.50", "-1.5e9", "1E+400", "123456789012345678901234567890"]
        {
            assert!(is_number(number), "{number}");
        }
        for text in ["", "-", "01", "1.", ".5", "+1", "1e", "1e+", "0x1", "NaN", "1 ", "1e5.0"] {
            assert!(!is_number(text), "{text}");
        }
    }
}
