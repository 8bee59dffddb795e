//! What every backbone promises, as checks that each implementation's tests call.

use std::time::Duration;

use model::{
    AckLevel, Code, Draft, Epoch, Expected, Limits, Moment, Payload, PayloadKind, Position,
    Sequence, TopicName,
};

use crate::{Backbone, BackboneEvent, Ticket};

/// Runs all checks, each on a fresh backbone.
///
/// # Panics
/// With the promise that was broken.
pub fn check<B: Backbone>(mut fresh: impl FnMut() -> B) {
    check_order(&mut fresh());
    check_identity(&mut fresh());
    check_head(&mut fresh());
    check_tickets(&mut fresh());
    check_expected(&mut fresh());
    check_times(&mut fresh());
}

/// A draft that expects another newest sequence than the topic has is refused, and changes nothing.
fn check_expected<B: Backbone>(backbone: &mut B) {
    let expecting = |sequence: u64| {
        let expected = Sequence::new(sequence).map(Expected::sequence);
        Draft { expected, ..draft("a", None) }
    };
    let first = kept_at(backbone, expecting(0));
    assert_eq!(first.sequence.get(), 1);
    let of_epoch = |epoch: &Epoch| {
        let expected = Expected { epoch: Some(epoch.clone()), sequence: first.sequence };
        Draft { expected: Some(expected), ..draft("a", None) }
    };
    for wrong in [expecting(0), of_epoch(&Epoch::new("another"))] {
        backbone.append(Ticket(3), wrong, AckLevel::Memory, moment());
        match next_event(backbone) {
            BackboneEvent::NotKept { ticket, refusal } => {
                assert_eq!((ticket, refusal.code), (Ticket(3), Code::SequenceMismatch));
            }
            other => panic!("a wrong expectation was answered with {other:?}"),
        }
    }
    assert_eq!(kept_at(backbone, of_epoch(&first.epoch)).sequence.get(), 2);
    assert_eq!(kept_at(backbone, expecting(2)).sequence.get(), 3);
}

/// Sequences of one topic grow from 1 without holes, whatever happens to other topics.
fn check_order<B: Backbone>(backbone: &mut B) {
    for round in 1..=3 {
        for topic in ["a", "b/c"] {
            let position = kept_at(backbone, draft(topic, None));
            assert_eq!(position.sequence.get(), round, "sequences of {topic} have no holes");
        }
    }
}

/// A repeated key is answered with the first position; other topics and keys are not affected.
fn check_identity<B: Backbone>(backbone: &mut B) {
    let first = kept_at(backbone, draft("a", Some("k1")));
    backbone.append(Ticket(7), draft("a", Some("k1")), AckLevel::Memory, moment());
    match next_event(backbone) {
        BackboneEvent::Repeated { ticket, position, .. } => {
            assert_eq!((ticket, position), (Ticket(7), first.clone()));
        }
        other => panic!("a repeated key was answered with {other:?}"),
    }
    assert_eq!(kept_at(backbone, draft("b", Some("k1"))).sequence.get(), 1);
    assert_eq!(kept_at(backbone, draft("a", Some("k2"))).sequence, first.sequence.next());
}

/// `head` and `follow` tell the newest position, also of a topic that never was.
fn check_head<B: Backbone>(backbone: &mut B) {
    let name = topic("a");
    backbone.head(&name);
    assert_eq!(head_in(next_event(backbone)).sequence, Sequence::START);
    let kept = kept_at(backbone, draft("a", None));
    backbone.follow(&name);
    assert_eq!(head_in(next_event(backbone)), kept);
    backbone.unfollow(&name);
}

/// Later publications have no earlier times, in any topic, also if the clock is set back.
fn check_times<B: Backbone>(backbone: &mut B) {
    let mut newest = 0;
    for (topic, unix_ms) in [("a", 5_000), ("b", 2_000), ("a", 1_000), ("c", 6_000), ("b", 0)] {
        let now = Moment { unix_ms, ..moment() };
        backbone.append(Ticket(1), draft(topic, None), AckLevel::Memory, now);
        let BackboneEvent::Kept { publication, .. } = next_event(backbone) else {
            panic!("not kept");
        };
        newest = unix_ms.max(newest);
        assert_eq!(publication.unix_ms(), newest, "times of {topic}");
    }
}

/// Every append is answered exactly once, with its own ticket and its own payload.
fn check_tickets<B: Backbone>(backbone: &mut B) {
    for number in 0..10 {
        backbone.append(Ticket(number), draft("a", None), AckLevel::Memory, moment());
    }
    for number in 0..10 {
        match next_event(backbone) {
            BackboneEvent::Kept { ticket, publication, position, .. } => {
                assert_eq!(ticket, Some(Ticket(number)));
                assert_eq!(publication.sequence(), position.sequence);
                assert_eq!(publication.payload(), b"payload of a");
            }
            other => panic!("an append was answered with {other:?}"),
        }
    }
    assert_eq!(backbone.poll_event(), None, "one answer each");
}

fn kept_at<B: Backbone>(backbone: &mut B, draft: Draft) -> Position {
    backbone.append(Ticket(1), draft, AckLevel::Memory, moment());
    match next_event(backbone) {
        BackboneEvent::Kept { position, .. } => position,
        other => panic!("an append was answered with {other:?}"),
    }
}

fn head_in(event: BackboneEvent) -> Position {
    match event {
        BackboneEvent::Head { position, .. } => position,
        other => panic!("asked for the head, answered with {other:?}"),
    }
}

fn next_event<B: Backbone>(backbone: &mut B) -> BackboneEvent {
    backbone.poll_event().expect("the backbone answers")
}

fn topic(name: &str) -> TopicName {
    TopicName::parse(name, &Limits::default()).expect("a valid name")
}

fn draft(name: &str, key: Option<&str>) -> Draft {
    Draft {
        topic: topic(name),
        payload: Payload::new(PayloadKind::Text, format!("payload of {name}").as_bytes()),
        idempotency_key: key.map(Into::into),
        expected: None,
    }
}

fn moment() -> Moment {
    Moment { elapsed: Duration::from_secs(1), unix_ms: 1_000 }
}
