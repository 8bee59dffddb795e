//! Which entity of its topic a publication is about.

use model::{PayloadKind, Publication};

/// The entity of a publication: the text or number at `pointer` (RFC 6901) of its JSON. `None` for what is not
/// JSON, or has something else there.
pub fn entity(pointer: &str, publication: &Publication) -> Option<Box<str>> {
    if publication.kind() != PayloadKind::Json {
        return None;
    }
    let value: serde_json::Value = serde_json::from_slice(publication.payload()).ok()?;
    match value.pointer(pointer)? {
        serde_json::Value::String(text) => Some(text.as_str().into()),
        serde_json::Value::Number(number) => Some(number.to_string().into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use model::{Moment, Payload, Sequence};

    use super::*;

    fn publication(kind: PayloadKind, bytes: &[u8]) -> Publication {
        let now = Moment { elapsed: Duration::ZERO, unix_ms: 0 };
        Publication::new(Payload::new(kind, bytes), Sequence::START.next(), now)
    }

    #[test]
    fn an_entity_is_a_text_or_number_of_the_payload() {
        let json = publication(PayloadKind::Json, br#"{"a":{"id":"x"},"n":7,"o":[]}"#);
        assert_eq!(entity("/a/id", &json).as_deref(), Some("x"));
        assert_eq!(entity("/n", &json).as_deref(), Some("7"));
        assert_eq!(entity("/o", &json), None);
        assert_eq!(entity("/a/id", &publication(PayloadKind::Text, b"{}")), None);
    }
}
