//! Payloads on the command line: what they are, and how they are printed.

use model::PayloadKind;
use serde_json::{Value, json};

/// What the user says that a payload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Nothing,
    Text,
    Bytes,
}

/// What a payload is: as the user says, or else what it looks like.
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
