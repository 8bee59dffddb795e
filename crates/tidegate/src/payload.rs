//! Payloads on the command line: what they are, and how they are printed.

use model::{Headers, PayloadKind};
use protocol::native::json::encode_headers;
use serde_json::{Value, json};

use crate::Failure;
use crate::usage::wrong;

/// The payload kind that the user gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PayloadHint {
    None,
    Text,
    Bytes,
}

/// The kind of a payload: as the user says, or else by its content.
pub(crate) fn kind_of(hint: PayloadHint, bytes: &[u8]) -> PayloadKind {
    let is_json = || serde_json::from_slice::<Value>(bytes).is_ok();
    match hint {
        PayloadHint::Bytes => PayloadKind::Bytes,
        PayloadHint::Text => PayloadKind::Text,
        PayloadHint::None if is_json() => PayloadKind::Json,
        PayloadHint::None if std::str::from_utf8(bytes).is_ok() => PayloadKind::Text,
        PayloadHint::None => PayloadKind::Bytes,
    }
}

/// Refuses what begins like JSON and is none, unless the user says that it is text: it is a slip, as a rule.
pub(crate) fn check_hint(
    hint: PayloadHint,
    text: &str,
    verb: &str,
) -> Result<(), (Failure, String)> {
    if hint != PayloadHint::None || !text.trim_start().starts_with(['{', '[', '"']) {
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

/// Headers as `--json` prints them; nothing where there are none.
pub(crate) fn json_of_headers(headers: Option<&Headers<'_>>) -> Option<Value> {
    let told = encode_headers(headers.filter(|headers| !headers.is_empty()))?;
    serde_json::from_str(told.get()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_begins_like_json_has_to_be_json_or_be_called_text() {
        for text in ["{bad", "[1,", "\"open", " {\"a\":1}}", "{a: 1}"] {
            let (failure, told) = check_hint(PayloadHint::None, text, "publish").expect_err(text);
            assert!(failure == Failure::Usage && told.contains("--text"), "{told}");
            assert_eq!(check_hint(PayloadHint::Text, text, "publish"), Ok(()));
            assert_eq!(check_hint(PayloadHint::Bytes, text, "publish"), Ok(()));
        }
        for text in ["{\"a\":1}", "[]", "\"x\"", "hello", "12 apples", "", "true"] {
            assert_eq!(check_hint(PayloadHint::None, text, "publish"), Ok(()), "{text}");
        }
    }
}
