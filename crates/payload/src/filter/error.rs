//! Why a filter cannot be used, in words that its author understands, and where in it.

use std::fmt;

use cel::ParseErrors;

/// Why a text is no filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterError {
    /// The character that it is about, counted from 0, where it is about one.
    pub at: Option<usize>,
    /// The error, without a full stop.
    pub why: String,
}

/// How a filter is written, for whoever reads why one cannot be used.
const CURE: &str = "write a CEL expression over `data` and `topic`, such as `data.price > 100.0`";

impl FilterError {
    pub(super) fn new(why: impl Into<String>) -> Self {
        Self { at: None, why: why.into() }
    }

    /// The parser's error about `text`, in our words.
    pub(super) fn of_parser(text: &str, errors: &ParseErrors) -> Self {
        let Some(first) = errors.errors.first() else { return Self::new("it does not parse") };
        let (line, column) = first.pos;
        let before: usize = match usize::try_from(line - 1) {
            Ok(lines) => text.split_inclusive('\n').take(lines).map(|it| it.chars().count()).sum(),
            Err(_) => 0,
        };
        let column = usize::try_from(column - 1).unwrap_or(0);
        let at = (before + column).min(text.chars().count());
        Self { at: Some(at), why: in_words(text, at, &first.msg) }
    }

    /// The text with a mark under the place, on two lines; nothing where there is no place.
    pub fn marked(&self, text: &str) -> Option<String> {
        let at = self.at?;
        let chars: Vec<char> = text.chars().collect();
        let start = chars[..at].iter().rposition(|c| *c == '\n').map_or(0, |end| end + 1);
        let line: String = chars[start..].iter().take_while(|c| **c != '\n').collect();
        Some(format!("  {line}\n  {}^", " ".repeat(at - start)))
    }
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot use the filter: ")?;
        if let Some(at) = self.at {
            write!(f, "at character {}, ", at + 1)?;
        }
        write!(f, "{}; {CURE}", self.why)
    }
}

/// The error at a place, by the text there and the parser's message.
fn in_words(text: &str, at: usize, said: &str) -> String {
    let rest: String = text.chars().skip(at).collect();
    let rest = rest.trim_end();
    let word: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    match (word.as_str(), rest.chars().next()) {
        (_, None) => "it ends too early: a value or a bracket is missing".into(),
        ("and" | "AND", _) => "`and` is written `&&`".into(),
        ("or" | "OR", _) => "`or` is written `||`".into(),
        ("not" | "NOT", _) => "`not` is written `!`".into(),
        (_, Some('=')) if !rest.starts_with("==") => "to compare write `==`".into(),
        (_, Some('&')) if !rest.starts_with("&&") => "`and` is written `&&`".into(),
        (_, Some('|')) if !rest.starts_with("||") => "`or` is written `||`".into(),
        (_, Some(quote @ ('"' | '\''))) => format!("the text that {quote} begins has no end"),
        ("", Some(c)) => format!("`{c}` cannot stand there"),
        (word, _) if said.contains("reserved") => format!("`{word}` is a reserved word"),
        (word, _) => format!("`{word}` cannot stand there"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::check;

    #[test]
    fn what_is_wrong_is_said_in_words_and_under_its_place() {
        for (text, why, marked) in [
            (
                "data.price >",
                "it ends too early: a value or a bracket is missing",
                "data.price >\n              ^",
            ),
            ("data.price = 3", "to compare write `==`", "data.price = 3\n             ^"),
            (
                "data.a == 1 and data.b == 2",
                "`and` is written `&&`",
                "data.a == 1 and data.b == 2\n              ^",
            ),
            (
                "data.a == 1 & data.b == 2",
                "`and` is written `&&`",
                "data.a == 1 & data.b == 2\n              ^",
            ),
            (
                "data.a == 1 data.b",
                "`data` cannot stand there",
                "data.a == 1 data.b\n              ^",
            ),
            ("data.a ==\n  * 2", "`*` cannot stand there", "  * 2\n    ^"),
            (
                "(data.a == 1",
                "it ends too early: a value or a bracket is missing",
                "(data.a == 1\n              ^",
            ),
            ("data.a == 'x", "the text that ' begins has no end", "data.a == 'x\n            ^"),
        ] {
            let error = check(text).expect_err(text);
            assert_eq!(error.why, why, "{text}: {error:?}");
            let shown = error.marked(text).unwrap_or_default();
            assert_eq!(shown.trim_start(), marked.trim_start(), "{text}\n{shown}");
        }
        let told = check("data.price >").expect_err("no end").to_string();
        assert_eq!(
            told,
            "cannot use the filter: at character 13, it ends too early: a value or a bracket is missing; \
             write a CEL expression over `data` and `topic`, such as `data.price > 100.0`"
        );
    }

    #[test]
    fn whatever_the_text_is_there_is_a_place_in_it_or_none() {
        for text in [
            "", " ", "\n", "é ==", "a\n\n==", "🙂", "\"", "'é", "a.b.", "[1,", "{", "?", "a ? b",
            "@", "0x", "1e",
        ] {
            let Err(error) = check(text) else { continue };
            assert!(error.at.is_none_or(|at| at <= text.chars().count()), "{text}: {error:?}");
            error.marked(text);
        }
    }
}
