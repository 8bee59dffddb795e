//! Payloads on the command line: what they are, and how they are printed.

use model::PayloadKind;
use serde_json::{Value, json};

use crate::Failure;
use crate::usage::wrong;

/// The payload kind that the user gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Nothing,
    Text,
    Bytes,
}

/// The kind of a payload: as the user says, or else by its content.
pub(crate) fn kind_of(said: Said, bytes: &[u8]) -> PayloadKind {
    let is_json = || serde_json::from_slice::<Value>(bytes).is_ok();
    match said {
        Said::Bytes => PayloadKind::Bytes,
        Said::Text => PayloadKind::Text,
        Said::Nothing if is_json() => PayloadKind::Json,
        Said::Nothing if std::str::from_utf8(bytes).is_ok() => PayloadKind::Text,
        Said::Nothing => PayloadKind::Bytes,
    }
}

/// Refuses what begins like JSON and is none, unless the user says that it is text: it is a slip, as a rule.
pub(crate) fn check_said(said: Said, text: &str, verb: &str) -> Result<(), (Failure, String)> {
    if said != Said::Nothing || !text.trim_start().starts_with(['{', '[', '"']) {
        return Ok(());
    }
    let Err(error) = serde_json::from_str::<Value>(text) else { return Ok(()) };
    let shown: String = text.chars().take(60).collect();
    let more = if shown.len() < text.len() { "…" } else { "" };
    Err(wrong(format!(
        "cannot {verb} `{shown}{more}`: it begins like JSON and is none ({error}); mend it, or say --text if it is text"
    )))
}

/// A payload as `--json` prints it: a member `data`, `text` or `bytes`.
pub(crate) fn json_of(kind: PayloadKind, bytes: &[u8]) -> Value {
    match kind {
        PayloadKind::Json => {
            let data: Value = serde_json::from_slice(bytes).unwrap_or(Value::Null);
            json!({ "data": data })
        }
        PayloadKind::Text => json!({ "text": String::from_utf8_lossy(bytes) }),
        PayloadKind::Bytes => json!({ "bytes": bytes }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_begins_like_json_has_to_be_json_or_be_called_text() {
        for text in ["{bad", "[1,", "\"open", " {\"a\":1}}", "{a: 1}"] {
            let (failure, told) = check_said(Said::Nothing, text, "publish").expect_err(text);
            assert!(failure == Failure::Usage && told.contains("--text"), "{told}");
            assert_eq!(check_said(Said::Text, text, "publish"), Ok(()));
            assert_eq!(check_said(Said::Bytes, text, "publish"), Ok(()));
        }
        for text in ["{\"a\":1}", "[]", "\"x\"", "hello", "12 apples", "", "true"] {
            assert_eq!(check_said(Said::Nothing, text, "publish"), Ok(()), "{text}");
        }
    }
}
