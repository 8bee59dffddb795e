//! The durable backbone over a store of the test's own, that fails when it is told to.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use model::{AckLevel, Code, Draft, Epoch, Limits, Moment, Payload, PayloadKind, TopicName};
use tidegate_backbone::{
    Backbone, BackboneEvent, DiskBackbone, ReadWanted, Record, Store, StoreFault, StoredTopic,
    Ticket, Written,
};

/// A store that takes everything and answers when the test says so.
#[derive(Clone, Default)]
struct Slow(Arc<Mutex<VecDeque<Record>>>);

impl Store for Slow {
    fn write(&mut self, record: Record) -> Result<(), Record> {
        self.0.lock().expect("one thread").push_back(record);
        Ok(())
    }

    fn new_topic_number(&mut self) -> u64 {
        1
    }

    fn read(&mut self, _: u64, _: u64, _: ReadWanted) {}

    fn begin_epoch(&mut self) {}
}

fn backbone(topics: &[StoredTopic], limits: &Limits) -> DiskBackbone<Slow> {
    DiskBackbone::new(Slow::default(), Epoch::new("e1"), topics, limits, moment())
}

fn publish(backbone: &mut DiskBackbone<Slow>, ticket: u64, key: Option<&str>) {
    let draft = Draft {
        topic: TopicName::parse("a", &Limits::default()).expect("valid"),
        payload: Payload::new(PayloadKind::Text, b"x"),
        idempotency_key: key.map(Into::into),
        expected: None,
    };
    backbone.append(Ticket(ticket), draft, AckLevel::Disk, moment());
}

fn moment() -> Moment {
    Moment { elapsed: Duration::from_secs(1), unix_ms: 1_000 }
}

fn written(count: usize) -> Written {
    Written { count, result: Ok(()) }
}

fn failed(count: usize) -> Written {
    Written { count, result: Err(StoreFault { text: "the disk is full".into() }) }
}

#[derive(Debug, PartialEq, Eq)]
enum Told {
    Kept(u64, u64),
    Repeated(u64, u64),
    NotKept(u64, Code),
    Unknown(u64),
}

fn told(backbone: &mut DiskBackbone<Slow>) -> Vec<Told> {
    std::iter::from_fn(|| backbone.poll_event())
        .map(|event| match event {
            BackboneEvent::Kept { ticket: Some(Ticket(ticket)), position, .. } => {
                Told::Kept(ticket, position.sequence.get())
            }
            BackboneEvent::Repeated { ticket: Ticket(ticket), position, .. } => {
                Told::Repeated(ticket, position.sequence.get())
            }
            BackboneEvent::NotKept { ticket: Ticket(ticket), refusal } => {
                Told::NotKept(ticket, refusal.code)
            }
            BackboneEvent::Unknown { ticket: Ticket(ticket), .. } => Told::Unknown(ticket),
            other => panic!("unexpected {other:?}"),
        })
        .collect()
}

#[test]
fn answers_after_the_first_failed_write_change_nothing() {
    let mut backbone = backbone(&[], &Limits::default());
    for ticket in 1..=6 {
        publish(&mut backbone, ticket, None);
    }
    backbone.handle_written(written(2));
    // One batch fails with two more under way: records that the store took before it knew.
    backbone.handle_written(failed(2));
    backbone.handle_written(failed(1));
    backbone.handle_written(failed(1));
    backbone.handle_written(written(1));
    let refused = |ticket| Told::NotKept(ticket, Code::NotKept);
    let kept = [Told::Kept(1, 1), Told::Kept(2, 2)];
    let expected: Vec<_> = kept.into_iter().chain((3..=6).map(Told::Unknown)).collect();
    assert_eq!(told(&mut backbone), expected, "each append has one answer");
    assert!(backbone.fault().is_some());
    publish(&mut backbone, 7, None);
    assert_eq!(told(&mut backbone), [refused(7)]);
}

#[test]
fn a_repeated_key_of_a_failed_write_is_as_unknown_as_the_first() {
    let mut backbone = backbone(&[], &Limits::default());
    publish(&mut backbone, 1, Some("whole"));
    publish(&mut backbone, 2, Some("lost"));
    publish(&mut backbone, 3, Some("lost"));
    publish(&mut backbone, 4, Some("whole"));
    backbone.handle_written(written(1));
    backbone.handle_written(failed(1));
    let expected = [Told::Kept(1, 1), Told::Unknown(2), Told::Unknown(3), Told::Repeated(4, 1)];
    assert_eq!(told(&mut backbone), expected);
    publish(&mut backbone, 5, Some("lost"));
    publish(&mut backbone, 6, Some("whole"));
    assert_eq!(told(&mut backbone), [Told::Unknown(5), Told::Repeated(6, 1)]);
}

#[test]
fn what_waits_for_the_disk_is_bounded_repetitions_too() {
    let limits = Limits { store_records_in_flight_max: 3, ..Limits::default() };
    let mut backbone = backbone(&[], &limits);
    for ticket in 1..=5 {
        publish(&mut backbone, ticket, (ticket % 2 == 0).then_some("k"));
    }
    let busy = |ticket| Told::NotKept(ticket, Code::Busy);
    assert_eq!(told(&mut backbone), [busy(4), busy(5)]);
    backbone.handle_written(written(3));
    assert_eq!(told(&mut backbone), [Told::Kept(1, 1), Told::Kept(2, 2), Told::Kept(3, 3)]);
}
