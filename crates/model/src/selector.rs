//! Selectors: patterns over topic names, in MQTT's own notation so that all dialects agree.

use arcstr::ArcStr;
use std::fmt;

use crate::topic::check_levels;
use crate::{Limits, TopicName, TopicNameError};

/// A pattern over topic names. `+` stands for one level, a final `#` for the rest.
///
/// As in MQTT (5.0, section 4.7): `a/#` also selects `a` itself, and a wildcard in the first
/// level never selects the server's own `$…` topics. A selector without wildcards is one topic.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Selector(ArcStr);

impl Selector {
    /// Checks `text` and keeps a copy of it. Levels obey the rules of topic names.
    pub fn parse(text: &str, limits: &Limits) -> Result<Self, SelectorError> {
        check_levels(text, limits).map_err(SelectorError::Levels)?;
        let mut at = 0;
        for level in text.split('/') {
            if level.len() > 1 && level.contains(['+', '#']) {
                return Err(SelectorError::PartialWildcard { text: text.into(), at });
            }
            if level == "#" && at + 1 != text.len() {
                return Err(SelectorError::RestNotLast { text: text.into(), at });
            }
            at += level.len() + 1;
        }
        Ok(Self(text.into()))
    }

    /// The selector of exactly this topic.
    pub fn of_topic(topic: &TopicName) -> Self {
        Self(topic.shared())
    }

    /// The one topic it selects, sharing its text, or `None` if it has a wildcard.
    pub fn to_topic(&self) -> Option<TopicName> {
        (!self.has_wildcard()).then(|| TopicName::from_shared(self.0.clone()))
    }

    /// The selector as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The one topic it selects, or `None` if it has a wildcard.
    pub fn as_topic(&self) -> Option<&str> {
        (!self.has_wildcard()).then_some(&*self.0)
    }

    /// Whether it has a `+` or `#`.
    pub fn has_wildcard(&self) -> bool {
        self.0.contains(['+', '#'])
    }

    /// The text before the first wildcard level, with its slash; the whole text without one.
    pub fn literal_prefix(&self) -> &str {
        match self.0.find(['+', '#']) {
            Some(at) => &self.0[..at],
            None => &self.0,
        }
    }

    /// Whether the topic named `topic` is selected.
    pub fn matches(&self, topic: &str) -> bool {
        if topic.starts_with('$') && self.0.starts_with(['+', '#']) {
            return false;
        }
        let mut levels = topic.split('/');
        for wanted in self.0.split('/') {
            match (wanted, levels.next()) {
                ("#", _) => return true,
                (_, None) => return false,
                ("+", Some(_)) => {}
                (wanted, Some(level)) if wanted == level => {}
                _ => return false,
            }
        }
        levels.next().is_none()
    }

    /// Whether every topic that `narrow` selects is selected by this one too.
    pub fn covers(&self, narrow: &Self) -> bool {
        if narrow.0.starts_with('$') && self.0.starts_with(['+', '#']) {
            return false;
        }
        let mut narrow_levels = narrow.0.split('/');
        for wide in self.0.split('/') {
            match (wide, narrow_levels.next()) {
                ("#", _) => return true,
                (_, None | Some("#")) => return false,
                ("+", Some(_)) => {}
                (wide, Some(level)) if wide == level => {}
                _ => return false,
            }
        }
        narrow_levels.next().is_none()
    }

    /// Whether some topic name could be selected by both `self` and `other`.
    pub fn overlaps(&self, other: &Self) -> bool {
        if !self.has_wildcard() && !other.has_wildcard() {
            return self == other;
        }
        let starts_wild = |selector: &Self| selector.0.starts_with(['+', '#']);
        if (starts_wild(self) && other.0.starts_with('$'))
            || (starts_wild(other) && self.0.starts_with('$'))
        {
            return false;
        }
        let (mut mine, mut theirs) = (self.0.split('/'), other.0.split('/'));
        loop {
            match (mine.next(), theirs.next()) {
                (Some("#"), _) | (_, Some("#")) | (None, None) => return true,
                (None, _) | (_, None) => return false,
                (Some("+"), Some(_)) | (Some(_), Some("+")) => {}
                (Some(a), Some(b)) if a == b => {}
                _ => return false,
            }
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Why a text is no selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SelectorError {
    /// It breaks a rule that topic names have too.
    Levels(TopicNameError),
    /// A wildcard shares its level with other characters, as in `a/b+`.
    PartialWildcard {
        /// The text given.
        text: String,
        /// Byte at which the level starts.
        at: usize,
    },
    /// `#` somewhere else than at the end.
    RestNotLast {
        /// The text given.
        text: String,
        /// Byte at which the `#` is.
        at: usize,
    },
}

impl fmt::Display for SelectorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Levels(error) => error.fmt(f),
            Self::PartialWildcard { text, at } => write!(
                f,
                "cannot use `{text}` as a selector: the level at byte {at} mixes a wildcard with \
                 other characters; let `+` or `#` stand alone between slashes"
            ),
            Self::RestNotLast { text, at } => write!(
                f,
                "cannot use `{text}` as a selector: the `#` at byte {at} is not the last level; \
                 use `+` for one level in the middle"
            ),
        }
    }
}

impl std::error::Error for SelectorError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn selector(text: &str) -> Selector {
        Selector::parse(text, &Limits::default()).expect(text)
    }

    #[test]
    fn matching_follows_mqtt() {
        let cases = [
            ("a/b", "a/b", true),
            ("a/b", "a/b/c", false),
            ("a/+", "a/b", true),
            ("a/+", "a", false),
            ("a/+", "a/b/c", false),
            ("a/#", "a", true),
            ("a/#", "a/b/c", true),
            ("a/#", "ab", false),
            ("+/b", "a/b", true),
            ("#", "a/b", true),
            ("#", "$server/clock", false),
            ("+/clock", "$server/clock", false),
            ("$server/#", "$server/clock", true),
        ];
        for (pattern, topic, selected) in cases {
            assert_eq!(selector(pattern).matches(topic), selected, "{pattern} on {topic}");
        }
    }

    #[test]
    fn overlap_means_a_common_topic() {
        let cases = [
            ("a/b", "a/b", true),
            ("a/b", "a/c", false),
            ("a/+", "a/b", true),
            ("a/+", "+/b", true),
            ("a/+", "a/b/c", false),
            ("a/#", "a", true),
            ("a/#", "+/b/c", true),
            ("#", "$server/a", false),
            ("a/+/c", "a/#", true),
        ];
        for (one, other, overlap) in cases {
            assert_eq!(selector(one).overlaps(&selector(other)), overlap, "{one} and {other}");
            assert_eq!(selector(other).overlaps(&selector(one)), overlap, "{other} and {one}");
        }
    }

    #[test]
    fn covering_means_no_topic_is_left_out() {
        let cases = [
            ("#", "a/#", true),
            ("#", "$server/a", false),
            ("a/#", "a", true),
            ("a/#", "a/+/c", true),
            ("a/+", "a/b", true),
            ("a/+", "a/#", false),
            ("a/b", "a/+", false),
            ("a/b", "a/b", true),
        ];
        for (wide, narrow, covered) in cases {
            assert_eq!(selector(wide).covers(&selector(narrow)), covered, "{wide} over {narrow}");
        }
    }

    #[test]
    fn bad_selectors_say_where() {
        for (text, part) in [
            ("a/b+", "byte 2 mixes"),
            ("a/#/b", "byte 2 is not the last"),
            ("a//b", "byte 2 is empty"),
        ] {
            let error = Selector::parse(text, &Limits::default()).expect_err(text);
            assert!(error.to_string().contains(part), "{text}: {error}");
        }
    }
}
