//! Events in JSON: how they are written, and how a client reads what a server says. docs/protocol.md#events.
//!
//! Not the ids of Server-Sent Events: those are in `native::events`.

use std::borrow::Cow;
use std::num::NonZeroU32;

use model::{
    AckLevel, Code, CommandId, Epoch, Event, Gap, GapReason, HistoryPage, Limits, Position,
    Refusal, Selector, Sequence, Subscribed, SubscribedTopic, SubscriptionId, TopicName,
};

use super::super::wire::{WireEvent, WireFeatures, WireFrom, WireLimits, WireTopic};
use super::super::{BadRecord, ServerRecord};
use super::{publications, requests};

/// Appends an event.
pub fn append_event(event: &Event, out: &mut Vec<u8>) {
    let wire = wire_event(event);
    serde_json::to_writer(out, &wire).expect("an event can be written as JSON");
}

fn texts(selectors: &[Selector]) -> Vec<Cow<'_, str>> {
    selectors.iter().map(|selector| selector.as_str().into()).collect()
}

fn wire_event(event: &Event) -> WireEvent<'_> {
    let of = |id: &Option<CommandId>| WireEvent {
        kind: event.name().into(),
        id: id.map(|id| id.0),
        ..WireEvent::default()
    };
    match event {
        Event::Welcome {
            id,
            session,
            node,
            version,
            key,
            payload_bytes_max,
            message_bytes_max,
            features,
        } => WireEvent {
            session: Some(session.into()),
            node: Some(node.into()),
            version: Some(version.into()),
            key: key.as_deref().map(Cow::Borrowed),
            limits: Some(WireLimits {
                payload_bytes_max: *payload_bytes_max,
                message_bytes_max: *message_bytes_max,
            }),
            features: features.map(WireFeatures),
            ..of(id)
        },
        Event::Subscribed(Subscribed { id, subscription, selectors, topics }) => WireEvent {
            subscription: subscription.map(|it| it.0),
            selectors: Some(texts(selectors)),
            topics: Some(topics.iter().map(wire_topic).collect()),
            ..of(id)
        },
        Event::Unsubscribed { id, subscription, selectors, has_lagged } => WireEvent {
            subscription: subscription.map(|it| it.0),
            selectors: Some(texts(selectors)),
            reason: has_lagged.then(|| GapReason::Lagged.name().into()),
            ..of(id)
        },
        Event::Complete { subscription } => {
            WireEvent { subscription: Some(subscription.0), ..of(&None) }
        }
        Event::Lag { ms } => WireEvent { ms: Some(*ms), ..of(&None) },
        Event::Topic(topic) => WireEvent {
            topic: Some(topic.topic.as_str().into()),
            number: Some(topic.number),
            subscriptions: wire_ids(&topic.subscriptions),
            epoch: Some(topic.epoch.as_str().into()),
            head: Some(topic.head.get()),
            start: Some(topic.start.get()),
            recovered: topic.recovered,
            ..of(&None)
        },
        Event::Gap(gap) => WireEvent {
            topic: Some(gap.topic.as_str().into()),
            number: Some(gap.number),
            epoch: Some(gap.epoch.as_str().into()),
            from: gap.from.map(|from| WireFrom::Sequence(from.get())),
            to: Some(gap.to.get()),
            reason: Some(gap.reason.name().into()),
            ..of(&None)
        },
        Event::Published { id, topic, position, level } => WireEvent {
            topic: Some(topic.as_str().into()),
            epoch: Some(position.epoch.as_str().into()),
            sequence: Some(position.sequence.get()),
            level: Some(level.name().into()),
            ..of(id)
        },
        Event::Refused { id, refusal } => WireEvent {
            code: Some(refusal.code.number()),
            error: Some(refusal.text.as_str().into()),
            ..of(id)
        },
        Event::History { id, topic, page } => WireEvent {
            topic: Some(topic.as_str().into()),
            epoch: Some(page.position.epoch.as_str().into()),
            head: Some(page.position.sequence.get()),
            start: Some(page.after.get()),
            publications: Some(page.publications.iter().map(publications::wire_kept).collect()),
            ..of(id)
        },
        Event::Acknowledged { id } => of(id),
        Event::Handling { id, selectors } | Event::Unhandled { id, selectors } => {
            WireEvent { selectors: Some(texts(selectors)), ..of(id) }
        }
        Event::Request(asked) => {
            let mut wire = WireEvent {
                request: Some(asked.request),
                topic: Some(asked.topic.as_str().into()),
                timeout_ms: Some(asked.timeout.as_millis() as u64),
                from: Some(WireFrom::Session((&*asked.session).into())),
                principal: Some((&*asked.principal).into()),
                ..of(&None)
            };
            requests::tell_payload(&mut wire, &asked.payload);
            wire
        }
        Event::Response(response) => {
            let mut wire = WireEvent {
                from: Some(WireFrom::Session((&*response.session).into())),
                more: response.has_more.then_some(true),
                ..of(&response.id)
            };
            requests::tell_payload(&mut wire, &response.payload);
            wire
        }
        Event::Responded { id, count, missing } => {
            WireEvent { count: Some(*count), missing: Some(*missing), ..of(id) }
        }
        Event::Attached { id, device } => WireEvent { device: Some((&**device).into()), ..of(id) },
        Event::Detached { id, device, refusal } => WireEvent {
            device: Some((&**device).into()),
            code: refusal.as_ref().map(|refusal| refusal.code.number()),
            error: refusal.as_ref().map(|refusal| refusal.text.as_str().into()),
            ..of(id)
        },
        Event::Pong { id } => of(id),
        Event::Closing { refusal, retry_after_ms } => WireEvent {
            code: Some(refusal.code.number()),
            error: Some(refusal.text.as_str().into()),
            retry_after_ms: Some(*retry_after_ms),
            ..of(&None)
        },
    }
}

fn wire_topic(topic: &SubscribedTopic) -> WireTopic<'_> {
    WireTopic {
        topic: topic.topic.as_str().into(),
        number: topic.number,
        subscriptions: wire_ids(&topic.subscriptions),
        epoch: topic.epoch.as_str().into(),
        head: topic.head.get(),
        start: topic.start.get(),
        recovered: topic.recovered,
    }
}

fn wire_ids(subscriptions: &[SubscriptionId]) -> Vec<NonZeroU32> {
    subscriptions.iter().map(|it| it.0).collect()
}

fn ids_of(wire: Vec<NonZeroU32>) -> Vec<SubscriptionId> {
    wire.into_iter().map(SubscriptionId).collect()
}

/// Reads a server's text message: one record, or an array of them. Events of unknown types are left out: a later
/// server may send some.
///
/// # Errors
/// The error.
pub fn decode_server_message<'a>(
    text: &'a str,
    limits: &Limits,
) -> Result<Vec<ServerRecord<'a>>, BadRecord> {
    let is_list = text.trim_start().starts_with('[');
    let wires: Result<Vec<WireEvent<'a>>, _> = match is_list {
        true => serde_json::from_str(text),
        false => serde_json::from_str(text).map(|wire| vec![wire]),
    };
    let wires = match wires {
        Ok(wires) => wires,
        // An unknown event may use members that we know for something else.
        Err(_) => known_events(text, is_list)?,
    };
    let mut records = Vec::with_capacity(wires.len());
    for wire in wires {
        records.extend(record_of(wire, limits)?);
    }
    Ok(records)
}

/// The events of known types in a message, of which some are not as they should be.
fn known_events(text: &str, is_list: bool) -> Result<Vec<WireEvent<'_>>, BadRecord> {
    #[derive(serde::Deserialize)]
    struct Kind<'a> {
        #[serde(rename = "type", borrow)]
        kind: Cow<'a, str>,
    }
    let bad = |error: serde_json::Error| BadRecord { text: error.to_string() };
    let texts: Vec<&serde_json::value::RawValue> = match is_list {
        true => serde_json::from_str(text).map_err(bad)?,
        false => vec![serde_json::from_str(text).map_err(bad)?],
    };
    let mut wires = Vec::with_capacity(texts.len());
    for text in texts {
        match serde_json::from_str(text.get()) {
            Ok(wire) => wires.push(wire),
            Err(error) => {
                let Kind { kind } = serde_json::from_str(text.get()).map_err(bad)?;
                if is_known(&kind) {
                    return Err(bad(error));
                }
            }
        }
    }
    Ok(wires)
}

fn is_known(kind: &str) -> bool {
    matches!(kind, "publication" | "delta" | "fragment") || Event::NAMES.contains(&kind)
}

/// The record that an event is, if its type is known.
fn record_of<'a>(
    wire: WireEvent<'a>,
    limits: &Limits,
) -> Result<Option<ServerRecord<'a>>, BadRecord> {
    let kind = wire.kind.clone();
    let bad = || BadRecord { text: format!("`{kind}` lacks a member or has one of another kind") };
    let record = match &*kind {
        "publication" => publications::publication_of(wire)?,
        "delta" => publications::delta_of(wire).ok_or_else(bad)?,
        "fragment" => publications::fragment_of(wire).ok_or_else(bad)?,
        // Without a type it is none of a later version either.
        _ if !is_known(&kind) && !kind.is_empty() => return Ok(None),
        _ => event_of(wire, limits).map(ServerRecord::Event).ok_or_else(bad)?,
    };
    Ok(Some(record))
}

fn event_of(wire: WireEvent<'_>, limits: &Limits) -> Option<Event> {
    let id = wire.id.map(CommandId);
    let name = |text: &str| TopicName::parse(text, limits).ok();
    let selectors = |texts: Option<Vec<Cow<'_, str>>>| -> Option<Vec<Selector>> {
        texts?.iter().map(|text| Selector::parse(text, limits).ok()).collect()
    };
    Some(match &*wire.kind {
        "welcome" => Event::Welcome {
            id,
            session: wire.session?.into_owned(),
            node: wire.node?.into_owned(),
            version: wire.version?.into_owned(),
            key: wire.key.map(Cow::into_owned),
            message_bytes_max: wire.limits.as_ref().map_or(0, |limits| limits.message_bytes_max),
            payload_bytes_max: wire.limits?.payload_bytes_max,
            features: wire.features.map(|features| features.0),
        },
        "subscribed" => Event::Subscribed(Subscribed {
            id,
            subscription: wire.subscription.map(SubscriptionId),
            selectors: selectors(wire.selectors)?,
            topics: wire
                .topics?
                .into_iter()
                .map(|topic| {
                    Some(SubscribedTopic {
                        topic: name(&topic.topic)?,
                        number: topic.number,
                        subscriptions: ids_of(topic.subscriptions),
                        epoch: Epoch::new(&topic.epoch),
                        head: Sequence::new(topic.head)?,
                        start: Sequence::new(topic.start)?,
                        recovered: topic.recovered,
                    })
                })
                .collect::<Option<_>>()?,
        }),
        "unsubscribed" => Event::Unsubscribed {
            id,
            subscription: wire.subscription.map(SubscriptionId),
            selectors: selectors(wire.selectors)?,
            has_lagged: wire.reason.as_deref() == Some(GapReason::Lagged.name()),
        },
        "complete" => Event::Complete { subscription: SubscriptionId(wire.subscription?) },
        "handling" => Event::Handling { id, selectors: selectors(wire.selectors)? },
        "unhandled" => Event::Unhandled { id, selectors: selectors(wire.selectors)? },
        "request" => Event::Request(requests::asked_of(wire, limits)?),
        "response" => Event::Response(requests::response_of(wire)?),
        "responded" => Event::Responded { id, count: wire.count?, missing: wire.missing? },
        "lag" => Event::Lag { ms: wire.ms? },
        "topic" => Event::Topic(SubscribedTopic {
            topic: name(&wire.topic?)?,
            number: wire.number?,
            subscriptions: ids_of(wire.subscriptions),
            epoch: Epoch::new(&wire.epoch?),
            head: Sequence::new(wire.head?)?,
            start: Sequence::new(wire.start?)?,
            recovered: wire.recovered,
        }),
        "gap" => Event::Gap(Gap {
            topic: name(&wire.topic?)?,
            number: wire.number?,
            epoch: Epoch::new(&wire.epoch?),
            from: match wire.from {
                Some(WireFrom::Sequence(from)) => Some(Sequence::new(from)?),
                Some(WireFrom::Session(_)) => return None,
                None => None,
            },
            to: Sequence::new(wire.to?)?,
            reason: GapReason::from_name(&wire.reason?),
        }),
        "published" => Event::Published {
            id,
            topic: name(&wire.topic?)?,
            position: Position {
                epoch: Epoch::new(&wire.epoch?),
                sequence: Sequence::new(wire.sequence?)?,
            },
            // A level of a later version is no less than that.
            level: AckLevel::from_name(&wire.level?).unwrap_or(AckLevel::Memory),
        },
        "history" => Event::History {
            id,
            topic: name(&wire.topic?)?,
            page: HistoryPage {
                position: Position {
                    epoch: Epoch::new(&wire.epoch?),
                    sequence: Sequence::new(wire.head?)?,
                },
                after: Sequence::new(wire.start?)?,
                publications: wire
                    .publications?
                    .iter()
                    .map(publications::kept_of)
                    .collect::<Option<_>>()?,
            },
        },
        "refused" => Event::Refused { id, refusal: refusal(wire.code, wire.error)? },
        "acknowledged" => Event::Acknowledged { id },
        "attached" => Event::Attached { id, device: wire.device?.as_ref().into() },
        "detached" => Event::Detached {
            id,
            device: wire.device?.as_ref().into(),
            refusal: match wire.code {
                Some(code) => Some(refusal(Some(code), wire.error)?),
                None => None,
            },
        },
        "pong" => Event::Pong { id },
        "closing" => Event::Closing {
            refusal: refusal(wire.code, wire.error)?,
            retry_after_ms: wire.retry_after_ms?,
        },
        _ => return None,
    })
}

fn refusal(code: Option<u16>, error: Option<Cow<'_, str>>) -> Option<Refusal> {
    Some(Refusal::new(Code::from_number(code?), error?))
}

/// The refusal in the body of an HTTP answer, if it has one. docs/protocol.md#http-api.
pub fn decode_refusal(body: &[u8]) -> Option<Refusal> {
    let wire: WireEvent<'_> = serde_json::from_slice(body).ok()?;
    refusal(wire.code, wire.error)
}
