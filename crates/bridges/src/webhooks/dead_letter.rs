//! Dead letters: what could not be delivered, or not even be had, as a publication of its own.

use std::sync::Arc;

use model::{GapReason, Position, Sequence, TopicName};
use serde::Serialize;

use super::delivery::{Content, Delivery, id_of, rfc3339};

/// How the attempts to deliver something went so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Failures {
    pub attempts: u32,
    /// When the first and the last of them failed, in milliseconds since 1970.
    pub first_ms: u64,
    pub last_ms: u64,
    /// The last answer of the endpoint, if there was one.
    pub status: Option<u16>,
    pub error: String,
}

/// Publications that the webhook could not have any more.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Missed {
    pub topic: TopicName,
    /// The last that is missing.
    pub position: Position,
    /// The first; not known where the numbering began anew.
    pub from: Option<Sequence>,
    pub reason: GapReason,
    pub read_ms: u64,
}

impl Missed {
    /// How many they are at least.
    pub(crate) fn count(&self) -> u64 {
        self.from.map_or(1, |from| self.position.sequence.count_after(from) + 1)
    }
}

/// Something to be recorded.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum DeadLetter {
    /// A publication that was tried as often as it may be.
    Undelivered(Arc<Delivery>, Failures),
    /// Publications that could not be had any more.
    Missed(Missed),
}

/// Whether the payload goes into a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum With {
    Payload,
    /// Only its size: the whole would be larger than a payload may be.
    Size,
}

impl DeadLetter {
    /// The publication that it is about.
    pub(crate) fn topic(&self) -> &TopicName {
        match self {
            Self::Undelivered(delivery, _) => &delivery.topic,
            Self::Missed(missed) => &missed.topic,
        }
    }

    /// Names it: the id that the endpoint saw, if it saw one.
    pub(crate) fn id(&self) -> String {
        match self {
            Self::Undelivered(delivery, _) => delivery.id(),
            Self::Missed(missed) => id_of("missed", &missed.topic, &missed.position),
        }
    }

    /// The dead letter as JSON.
    pub(crate) fn json(&self, webhook: &str, with: With) -> Vec<u8> {
        let id = self.id();
        let written = match self {
            Self::Undelivered(delivery, failures) => {
                serde_json::to_vec(&undelivered(webhook, id, delivery, failures, with))
            }
            Self::Missed(missed) => serde_json::to_vec(&MissedRecord {
                r#type: "missed",
                webhook,
                id,
                topic: missed.topic.as_str(),
                epoch: missed.position.epoch.as_str(),
                from: missed.from.map(Sequence::get),
                to: missed.position.sequence.get(),
                reason: missed.reason.name(),
                at: rfc3339(missed.read_ms),
            }),
        };
        written.expect("texts and numbers can be written")
    }
}

#[derive(Serialize)]
struct UndeliveredRecord<'a> {
    r#type: &'static str,
    webhook: &'a str,
    id: String,
    topic: &'a str,
    epoch: &'a str,
    sequence: u64,
    attempts: u32,
    first_at: String,
    last_at: String,
    status: Option<u16>,
    error: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_bytes: Option<usize>,
    #[serde(flatten)]
    content: Content<'a>,
}

#[derive(Serialize)]
struct MissedRecord<'a> {
    r#type: &'static str,
    webhook: &'a str,
    id: String,
    topic: &'a str,
    epoch: &'a str,
    from: Option<u64>,
    to: u64,
    reason: &'static str,
    at: String,
}

fn undelivered<'a>(
    webhook: &'a str,
    id: String,
    delivery: &'a Delivery,
    failures: &'a Failures,
    with: With,
) -> UndeliveredRecord<'a> {
    let (content, payload_bytes) = match with {
        With::Payload => (delivery.content(), None),
        With::Size => (Content::default(), Some(delivery.publication.payload().len())),
    };
    UndeliveredRecord {
        r#type: "undelivered",
        webhook,
        id,
        topic: delivery.topic.as_str(),
        epoch: delivery.position.epoch.as_str(),
        sequence: delivery.position.sequence.get(),
        attempts: failures.attempts,
        first_at: rfc3339(failures.first_ms),
        last_at: rfc3339(failures.last_ms),
        status: failures.status,
        error: &failures.error,
        payload_bytes,
        content,
    }
}

#[cfg(test)]
mod tests {
    use model::PayloadKind;

    use super::*;
    use crate::webhooks::delivery::tests::delivery;

    #[test]
    fn a_letter_says_what_became_of_it() {
        let delivery = Arc::new(delivery("a", 7, PayloadKind::Json, b"{\"n\":1}"));
        let id = delivery.id();
        let (first_ms, last_ms) = (1_700_000_000_000, 1_700_000_001_000);
        let error = "503 Service Unavailable".to_owned();
        let failures = Failures { attempts: 3, first_ms, last_ms, status: Some(503), error };
        let dead_letter = DeadLetter::Undelivered(delivery, failures);
        let head = format!(
            "{{\"type\":\"undelivered\",\"webhook\":\"erp\",\"id\":\"{id}\",\"topic\":\"a\",\"epoch\":\"e1\",\
             \"sequence\":7,\"attempts\":3,\"first_at\":\"2023-11-14T22:13:20.000Z\",\"last_at\":\
             \"2023-11-14T22:13:21.000Z\",\"status\":503,\"error\":\"503 Service Unavailable\","
        );
        let text = |with| String::from_utf8(dead_letter.json("erp", with)).expect("JSON");
        assert_eq!(text(With::Payload), format!("{head}\"data\":{{\"n\":1}}}}"));
        assert_eq!(text(With::Size), format!("{head}\"payload_bytes\":7}}"));
    }

    #[test]
    fn what_is_missed_is_told_from_where_to_where() {
        let known = delivery("a", 9, PayloadKind::Text, b"");
        let missed = Missed {
            topic: known.topic.clone(),
            position: known.position.clone(),
            from: Sequence::new(5),
            reason: GapReason::History,
            read_ms: 1_700_000_000_000,
        };
        assert_eq!(missed.count(), 5);
        let dead_letter = DeadLetter::Missed(missed);
        assert_ne!(dead_letter.id(), known.id(), "they are not the publication");
        let text = String::from_utf8(dead_letter.json("erp", With::Payload)).expect("JSON");
        assert!(text.contains("\"from\":5,\"to\":9,\"reason\":\"history\""), "{text}");
    }
}
