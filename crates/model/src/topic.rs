//! Topic names: `/`-separated levels without wildcards, such as `prices/eur-usd`.

use arcstr::ArcStr;
use std::fmt;

use crate::Limits;

/// A valid topic name. Cloning shares the text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicName(ArcStr);

impl TopicName {
    /// Checks `text` and keeps a copy of it.
    ///
    /// A name has 1 to `topic_levels_max` levels, none of them empty, at most
    /// `topic_bytes_max` bytes, and neither wildcards (`+`, `#`) nor control characters.
    /// Names whose first level starts with `$` are the server's own: they parse, but a client
    /// may not publish to them.
    pub fn parse(text: &str, limits: &Limits) -> Result<Self, TopicNameError> {
        check_levels(text, limits)?;
        match text.bytes().position(|byte| matches!(byte, b'+' | b'#')) {
            Some(at) => Err(TopicNameError::Wildcard { text: text.into(), at }),
            None => Ok(Self(text.into())),
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A name of text that was checked as a selector without wildcards.
    pub(crate) fn from_shared(text: ArcStr) -> Self {
        Self(text)
    }

    /// The text, shared.
    pub(crate) fn shared(&self) -> ArcStr {
        self.0.clone()
    }

    /// Whether the name belongs to the server (`$…`), so that only it publishes there.
    pub fn is_reserved(&self) -> bool {
        self.0.starts_with('$')
    }
}

impl fmt::Display for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::borrow::Borrow<str> for TopicName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// The rules that topic names and selectors share: length, levels, characters.
pub(crate) fn check_levels(text: &str, limits: &Limits) -> Result<(), TopicNameError> {
    if text.is_empty() {
        return Err(TopicNameError::Empty);
    }
    if text.len() > limits.topic_bytes_max {
        return Err(TopicNameError::TooLong {
            bytes: text.len(),
            bytes_max: limits.topic_bytes_max,
        });
    }
    let (mut levels, mut before, mut has_others) = (1, b'/', false);
    for (at, &byte) in text.as_bytes().iter().enumerate() {
        if byte == b'/' {
            if before == b'/' {
                return Err(TopicNameError::EmptyLevel { text: text.into(), at });
            }
            levels += 1;
        }
        has_others |= !(b' '..=b'~').contains(&byte);
        before = byte;
    }
    if before == b'/' {
        return Err(TopicNameError::EmptyLevel { text: text.into(), at: text.len() });
    }
    if levels > limits.topic_levels_max {
        return Err(TopicNameError::TooDeep { levels, levels_max: limits.topic_levels_max });
    }
    if !has_others {
        return Ok(());
    }
    match text.char_indices().find(|(_, character)| character.is_control()) {
        Some((at, _)) => Err(TopicNameError::ControlCharacter { at }),
        None => Ok(()),
    }
}

/// Why a text is no topic name (or no selector, which obeys the same rules on levels).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopicNameError {
    /// Nothing was given.
    Empty,
    /// More bytes than `topic_bytes_max`.
    TooLong {
        /// Bytes given.
        bytes: usize,
        /// Bytes allowed.
        bytes_max: usize,
    },
    /// More levels than `topic_levels_max`.
    TooDeep {
        /// Levels given.
        levels: usize,
        /// Levels allowed.
        levels_max: usize,
    },
    /// Two slashes in a row, or one at an end.
    EmptyLevel {
        /// The text given.
        text: String,
        /// Byte at which the empty level is.
        at: usize,
    },
    /// A control character (U+0000 to U+001F, U+007F to U+009F).
    ControlCharacter {
        /// Byte at which it is.
        at: usize,
    },
    /// `+` or `#` where a plain name is needed.
    Wildcard {
        /// The text given.
        text: String,
        /// Byte at which the wildcard is.
        at: usize,
    },
}

impl fmt::Display for TopicNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(
                f,
                "cannot use an empty topic name: a topic has at least one level; \
                 give a name such as `prices/eur-usd`"
            ),
            Self::TooLong { bytes, bytes_max } => write!(
                f,
                "cannot use this topic name: it has {bytes} bytes and topic_bytes_max is \
                 {bytes_max}; shorten it, or raise the limit in the configuration"
            ),
            Self::TooDeep { levels, levels_max } => write!(
                f,
                "cannot use this topic name: it has {levels} levels and topic_levels_max is \
                 {levels_max}; use fewer slashes, or raise the limit in the configuration"
            ),
            Self::EmptyLevel { text, at } => write!(
                f,
                "cannot use `{text}` as a topic name: the level at byte {at} is empty; \
                 put a word between the slashes, or remove one"
            ),
            Self::ControlCharacter { at } => write!(
                f,
                "cannot use this topic name: there is a control character at byte {at}; \
                 use printable characters"
            ),
            Self::Wildcard { text, at } => write!(
                f,
                "cannot use `{text}` as a topic name: there is a wildcard at byte {at}; \
                 `+` and `#` belong in selectors, so name one topic"
            ),
        }
    }
}

impl std::error::Error for TopicNameError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_refused(text: &str, part: &str) {
        let error = TopicName::parse(text, &Limits::default()).expect_err(text);
        assert!(error.to_string().contains(part), "{text}: {error}");
    }

    #[test]
    fn ordinary_names_parse() {
        for text in ["a", "a/b", "prices/eur-usd", "host/größe/1", "$server/clock", "a b/c\"d"] {
            let name = TopicName::parse(text, &Limits::default()).expect(text);
            assert_eq!(name.as_str(), text);
        }
    }

    #[test]
    fn bad_names_say_where() {
        check_refused("", "empty topic name");
        check_refused("/a", "byte 0 is empty");
        check_refused("a//b", "byte 2 is empty");
        check_refused("a/", "byte 2 is empty");
        check_refused("a/+", "wildcard at byte 2");
        check_refused("a\nb", "control character at byte 1");
        check_refused(&"x".repeat(5000), "topic_bytes_max");
        check_refused(&vec!["x"; 100].join("/"), "topic_levels_max");
    }
}
