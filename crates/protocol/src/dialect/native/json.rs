//! The JSON dialect, `tidegate.v1.json`. docs/protocol.md, sections 3 and 4.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use model::{
    AckLevel, Acknowledge, Code, Command, CommandId, Conflation, DeltaKind, Draft, Epoch, Event,
    Gap, GapReason, Hello, HistoryPage, HistoryQuery, HistoryStart, Limits, Moment, Payload,
    PayloadKind, Position, Publication, Publish, Rates, Refusal, Selector, Sequence, Since, Start,
    Subscribe, SubscribeOptions, Subscribed, SubscribedTopic, SubscriberName, TopicName, Unhandle,
    Unsubscribe,
};

use super::requests;
use super::wire::{
    WireCommand, WireEvent, WireFrom, WireKept, WireLimits, WirePosition, WireStart, WireTopic,
};
use super::{
    BadRecord, DeltaRef, SequenceRef, ServerRecord, TopicRef, Undecoded, check_payload_len,
};

const COMMANDS: &str = "hello, subscribe, unsubscribe, publish, history, acknowledge, handle, unhandle, \
                        request, respond, close or ping";

/// Reads one command.
///
/// # Errors
/// What is wrong with it, and its id where that could be read.
pub fn decode_command(
    text: &str,
    limits: &Limits,
) -> Result<(Option<CommandId>, Command), Undecoded> {
    if !text.trim_start().starts_with('{') {
        let why = "it is no JSON object; send one with a `type`, such as \
                   {\"id\":1,\"type\":\"subscribe\",\"topic\":\"a/b\"}";
        return Err(Undecoded { id: None, refusal: bad_command(why.into()) });
    }
    let wire: WireCommand<'_> = serde_json::from_str(text).map_err(|error| Undecoded {
        id: find_id(text),
        refusal: bad_command(format!(
            "{error}; send one JSON object with a `type`, such as \
             {{\"id\":1,\"type\":\"subscribe\",\"topic\":\"a/b\"}}"
        )),
    })?;
    let id = wire.id.map(CommandId);
    command_of(wire, limits)
        .map(|command| (id, command))
        .map_err(|refusal| Undecoded { id, refusal })
}

/// The id of a command whose members are otherwise wrong.
fn find_id(text: &str) -> Option<CommandId> {
    let value: serde_json::Value = serde_json::from_str(text).ok()?;
    value.get("id")?.as_u64().map(CommandId)
}

pub(super) fn bad_command(why: String) -> Refusal {
    Refusal::new(Code::BadCommand, format!("cannot read the command: {why}"))
}

fn command_of(wire: WireCommand<'_>, limits: &Limits) -> Result<Command, Refusal> {
    if wire.id.is_some_and(|id| Sequence::new(id).is_none()) {
        return Err(bad_command("its id is 2^53 or more; count from 1".into()));
    }
    match &*wire.kind {
        "hello" => Ok(Command::Hello(Hello {
            token: wire.token.map(Cow::into_owned),
            client: wire.client.map(Cow::into_owned),
            batch: wire.batch.unwrap_or(false),
            fragments: wire.fragments.unwrap_or(false),
            rates: Rates {
                bytes: rate_of("bytes_per_second", wire.bytes_per_second)?,
                messages: rate_of("messages_per_second", wire.messages_per_second)?,
            },
        })),
        "subscribe" => subscribe_of(wire, limits).map(Command::Subscribe),
        "unsubscribe" => {
            Ok(Command::Unsubscribe(Unsubscribe { selectors: selectors_of(&wire, limits)? }))
        }
        "publish" => publish_of(&wire, limits).map(Command::Publish),
        "history" => history_of(&wire, limits).map(Command::History),
        "acknowledge" => acknowledge_of(&wire, limits).map(Command::Acknowledge),
        "handle" => requests::handle_of(&wire, limits).map(Command::Handle),
        "unhandle" => Ok(Command::Unhandle(Unhandle { selectors: selectors_of(&wire, limits)? })),
        "request" => requests::request_of(&wire, limits).map(Command::Request),
        "respond" => requests::respond_of(&wire, limits).map(Command::Respond),
        "close" => Ok(Command::Close),
        "ping" => Ok(Command::Ping),
        "" => Err(bad_command(format!("it has no `type`; add one of {COMMANDS}"))),
        other => Err(Refusal::new(
            Code::UnknownCommand,
            format!("cannot carry out `{other}`: there is no such command; send {COMMANDS}"),
        )),
    }
}

pub(super) fn selectors_of(
    wire: &WireCommand<'_>,
    limits: &Limits,
) -> Result<Vec<Selector>, Refusal> {
    let one = wire.topic.as_deref().into_iter();
    let many = wire.topics.iter().flatten().map(|topic| &**topic);
    let selectors: Vec<Selector> = one
        .chain(many)
        .map(|text| Selector::parse(text, limits))
        .collect::<Result<_, _>>()
        .map_err(|error| Refusal::new(Code::BadSelector, error.to_string()))?;
    if selectors.is_empty() {
        let why = "it names no topic; add `topic` or a non-empty `topics`";
        return Err(bad_command(why.into()));
    }
    Ok(selectors)
}

pub(super) fn topic_of(text: &str, limits: &Limits) -> Result<TopicName, Refusal> {
    TopicName::parse(text, limits).map_err(|error| Refusal::new(Code::BadTopic, error.to_string()))
}

fn position_of(wire: &WirePosition) -> Result<Position, Refusal> {
    let sequence = Sequence::new(wire.sequence).ok_or_else(|| {
        bad_command(format!("sequence {} is 2^53 or more; give one we told", wire.sequence))
    })?;
    Ok(Position { epoch: Epoch::new(&wire.epoch), sequence })
}

fn subscribe_of(wire: WireCommand<'_>, limits: &Limits) -> Result<Subscribe, Refusal> {
    let selectors = selectors_of(&wire, limits)?;
    let mut positions = positions_of(wire.positions.as_ref(), limits)?;
    let name = wire.name.as_deref().map(subscriber_of).transpose()?;
    let start = match &wire.from {
        None => Start::Snapshot,
        Some(WireStart::Word(word)) if word == "snapshot" => Start::Snapshot,
        Some(WireStart::Word(word)) if word == "now" => Start::Now,
        Some(WireStart::Word(word)) if word == "all" => Start::All,
        Some(WireStart::Last { last }) => Start::Last(*last),
        Some(WireStart::Since { since }) => Start::Since(Since { unix_ms: *since, epochs: None }),
        Some(WireStart::Position(position)) => {
            let [only] = &selectors[..] else {
                let why = "`from` is one position for several topics; use `positions`";
                return Err(bad_command(why.into()));
            };
            let topic = only.to_topic().ok_or_else(|| {
                bad_command("`from` is one position for a pattern; use `positions`".into())
            })?;
            positions.push((topic, position_of(position)?));
            Start::Snapshot
        }
        Some(WireStart::Word(word)) => {
            return Err(bad_command(format!(
                "`from` is `{word}`; say \"snapshot\", \"now\", \"all\", \
                 {{\"last\":10}}, {{\"since\":milliseconds}} or a position"
            )));
        }
    };
    let options = options_of(&wire, limits)?;
    Ok(Subscribe { selectors, start, positions, name, options })
}

fn options_of(wire: &WireCommand<'_>, limits: &Limits) -> Result<SubscribeOptions, Refusal> {
    let conflation = wire.conflation.as_deref().map_or(Ok(Conflation::Off), |name| {
        Conflation::from_name(name).ok_or_else(|| {
            bad_command(format!(
                "`conflation` is `{name}`; say \"off\", \"lagging\", \"always\" or \"unsubscribe\""
            ))
        })
    })?;
    let delta = wire.delta.as_deref().map_or(Ok(DeltaKind::None), |name| {
        DeltaKind::from_name(name).ok_or_else(|| {
            let why = "say \"none\", \"vcdiff\" or \"json-patch\"";
            bad_command(format!("`delta` is `{name}`; {why}"))
        })
    })?;
    let interval_ms_max = limits.interval_ms_max.as_millis() as u64;
    let interval_ms = wire.interval_ms.unwrap_or(0);
    if interval_ms > interval_ms_max {
        return Err(bad_command(format!(
            "`interval_ms` is {interval_ms} and interval_ms_max is {interval_ms_max}; ask for a \
             shorter one, or raise the limit in the configuration"
        )));
    }
    let priority = wire.priority.unwrap_or(0);
    if !(-9..=9).contains(&priority) {
        return Err(bad_command(format!("`priority` is {priority}; give one from -9 to 9")));
    }
    let filter_bytes_max = limits.filter_bytes_max;
    if let Some(filter) = wire.filter.as_deref().filter(|it| it.len() > filter_bytes_max) {
        let text = format!(
            "cannot use the filter: it has {} bytes and filter_bytes_max is {filter_bytes_max}; \
             write a shorter one, or raise the limit in the configuration",
            filter.len()
        );
        return Err(Refusal::new(Code::BadFilter, text));
    }
    Ok(SubscribeOptions {
        conflation,
        interval: Duration::from_millis(interval_ms),
        priority: priority as i8,
        delta,
        filter: wire.filter.as_deref().map(Into::into),
    })
}

fn rate_of(name: &str, rate: Option<u32>) -> Result<Option<NonZeroU32>, Refusal> {
    let bad = || bad_command(format!("`{name}` is 0; leave it out for no bound"));
    rate.map(|rate| NonZeroU32::new(rate).ok_or_else(bad)).transpose()
}

fn positions_of(
    wire: Option<&BTreeMap<String, WirePosition>>,
    limits: &Limits,
) -> Result<Vec<(TopicName, Position)>, Refusal> {
    let each = wire.into_iter().flatten();
    each.map(|(topic, position)| Ok((topic_of(topic, limits)?, position_of(position)?))).collect()
}

fn subscriber_of(text: &str) -> Result<SubscriberName, Refusal> {
    SubscriberName::parse(text).ok_or_else(|| {
        bad_command(format!(
            "`{text}` is no name of a subscriber; use 1 to 64 of A-Z a-z 0-9 . _ -"
        ))
    })
}

fn acknowledge_of(wire: &WireCommand<'_>, limits: &Limits) -> Result<Acknowledge, Refusal> {
    let missing =
        || bad_command("an acknowledgement has the `name` of a subscriber; add it".into());
    let name = subscriber_of(wire.name.as_deref().ok_or_else(missing)?)?;
    let positions = positions_of(wire.positions.as_ref(), limits)?;
    if positions.is_empty() {
        return Err(bad_command("it acknowledges nothing; add `positions`".into()));
    }
    Ok(Acknowledge { name, positions })
}

/// Positions as text, for [`decode_positions`].
pub fn encode_positions(positions: &BTreeMap<TopicName, Position>) -> Vec<u8> {
    let wire: BTreeMap<&str, WirePosition> =
        positions.iter().map(|(topic, at)| (topic.as_str(), wire_position(at))).collect();
    serde_json::to_vec(&wire).expect("positions can be written as JSON")
}

/// The positions that `text` spells out; `None` if it does not.
pub fn decode_positions(text: &[u8], limits: &Limits) -> Option<BTreeMap<TopicName, Position>> {
    let wire: BTreeMap<String, WirePosition> = serde_json::from_slice(text).ok()?;
    Some(positions_of(Some(&wire), limits).ok()?.into_iter().collect())
}

fn wire_position(position: &Position) -> WirePosition {
    let Position { epoch, sequence } = position;
    WirePosition { epoch: epoch.to_string(), sequence: sequence.get() }
}

fn wire_positions(positions: &[(TopicName, Position)]) -> Option<BTreeMap<String, WirePosition>> {
    let wire = positions.iter().map(|(topic, at)| (topic.to_string(), wire_position(at)));
    (!positions.is_empty()).then(|| wire.collect())
}

fn history_of(wire: &WireCommand<'_>, limits: &Limits) -> Result<HistoryQuery, Refusal> {
    const PAGE_LEN: usize = 100;
    let missing = || bad_command("a history is of one `topic`; add it".into());
    let topic = topic_of(wire.topic.as_deref().ok_or_else(missing)?, limits)?;
    let sequence = |number: u64| {
        let why = || bad_command(format!("{number} is no sequence; they are below 2^53"));
        Sequence::new(number).ok_or_else(why)
    };
    let start = match (wire.after, wire.before, wire.last, wire.since) {
        (None, None, None, None) => HistoryStart::After(Sequence::START),
        (Some(after), None, None, None) => HistoryStart::After(sequence(after)?),
        (None, Some(before), None, None) => HistoryStart::Before(sequence(before)?),
        (None, None, Some(last), None) => HistoryStart::Last(last),
        (None, None, None, Some(since)) => HistoryStart::Since(since),
        _ => {
            let why = "it has more than one of `after`, `before`, `last` and `since`; give one";
            return Err(bad_command(why.into()));
        }
    };
    let asked = wire.limit.map_or(PAGE_LEN, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    Ok(HistoryQuery { topic, start, limit: asked.clamp(1, limits.history_page_len_max) })
}

/// The payload of a command.
pub(super) fn payload_of(wire: &WireCommand<'_>, limits: &Limits) -> Result<Payload, Refusal> {
    let check = |len| check_payload_len(len, limits.payload_bytes_max);
    let payload = match (wire.data, &wire.text, &wire.base64) {
        (Some(data), None, None) => {
            check(data.get().len())?;
            Payload::new(PayloadKind::Json, data.get().as_bytes())
        }
        (None, Some(text), None) => {
            check(text.len())?;
            Payload::new(PayloadKind::Text, text.as_bytes())
        }
        (None, None, Some(base64)) => {
            let bytes = STANDARD.decode(base64.as_bytes()).map_err(|error| {
                let why = format!("its base64 does not decode ({error}); mend it");
                Refusal::new(Code::BadPayload, format!("cannot publish the payload: {why}"))
            })?;
            check(bytes.len())?;
            Payload::new(PayloadKind::Bytes, &bytes)
        }
        _ => {
            let why = "it has not exactly one of `data`, `text` and `base64`; give one";
            return Err(bad_command(why.into()));
        }
    };
    Ok(payload)
}

fn publish_of(wire: &WireCommand<'_>, limits: &Limits) -> Result<Publish, Refusal> {
    let name = wire
        .topic
        .as_deref()
        .ok_or_else(|| bad_command("a publish names one `topic`; add it".into()))?;
    let topic = topic_of(name, limits)?;
    let payload = payload_of(wire, limits)?;
    let idempotency_key = wire.key.as_deref().map(Into::into);
    let expected = match wire.expect {
        None => None,
        Some(number) => Some(Sequence::new(number).ok_or_else(|| {
            bad_command(format!("`expect` is {number}; sequences are below 2^53"))
        })?),
    };
    Ok(Publish { draft: Draft { topic, payload, idempotency_key, expected } })
}

/// Appends a command, as a client sends it.
pub fn append_command(id: Option<CommandId>, command: &Command, out: &mut Vec<u8>) {
    let id = id.map(|id| id.0);
    let mut encoded = String::new();
    let wire = match command {
        Command::Hello(hello) => WireCommand {
            token: hello.token.as_deref().map(Cow::Borrowed),
            client: hello.client.as_deref().map(Cow::Borrowed),
            batch: hello.batch.then_some(true),
            fragments: hello.fragments.then_some(true),
            bytes_per_second: hello.rates.bytes.map(NonZeroU32::get),
            messages_per_second: hello.rates.messages.map(NonZeroU32::get),
            ..wire_command(id, "hello")
        },
        Command::Subscribe(subscribe) => wire_subscribe(id, subscribe),
        Command::Unsubscribe(unsubscribe) => WireCommand {
            topics: Some(unsubscribe.selectors.iter().map(|s| s.as_str().into()).collect()),
            ..wire_command(id, "unsubscribe")
        },
        Command::Publish(publish) => wire_publish(id, publish, &mut encoded),
        Command::History(query) => wire_history(id, query),
        Command::Acknowledge(Acknowledge { name, positions }) => WireCommand {
            name: Some(name.as_str().into()),
            positions: wire_positions(positions),
            ..wire_command(id, "acknowledge")
        },
        Command::Handle(handle) => WireCommand {
            topics: Some(handle.selectors.iter().map(|s| s.as_str().into()).collect()),
            concurrency: Some(handle.concurrency as u64),
            ..wire_command(id, "handle")
        },
        Command::Unhandle(unhandle) => WireCommand {
            topics: Some(unhandle.selectors.iter().map(|s| s.as_str().into()).collect()),
            ..wire_command(id, "unhandle")
        },
        Command::Request(request) => requests::wire_request(id, request, &mut encoded),
        Command::Respond(respond) => requests::wire_respond(id, respond, &mut encoded),
        Command::Close => wire_command(id, "close"),
        Command::Ping => wire_command(id, "ping"),
    };
    serde_json::to_writer(out, &wire).expect("a command can be written as JSON");
}

pub(super) fn wire_command(id: Option<u64>, kind: &'static str) -> WireCommand<'static> {
    WireCommand { id, kind: kind.into(), ..WireCommand::default() }
}

fn wire_subscribe(id: Option<u64>, subscribe: &Subscribe) -> WireCommand<'_> {
    let SubscribeOptions { conflation, interval, priority, delta, filter } = &subscribe.options;
    let interval_ms = interval.as_millis() as u64;
    WireCommand {
        topics: Some(subscribe.selectors.iter().map(|s| s.as_str().into()).collect()),
        from: match &subscribe.start {
            Start::Snapshot => None,
            Start::Now => Some(WireStart::Word("now".into())),
            Start::All => Some(WireStart::Word("all".into())),
            Start::Last(last) => Some(WireStart::Last { last: *last }),
            Start::Since(since) => Some(WireStart::Since { since: since.unix_ms }),
        },
        positions: wire_positions(&subscribe.positions),
        name: subscribe.name.as_ref().map(|name| name.as_str().into()),
        conflation: (*conflation != Conflation::Off).then(|| conflation.name().into()),
        interval_ms: (interval_ms > 0).then_some(interval_ms),
        priority: (*priority != 0).then(|| (*priority).into()),
        delta: (*delta != DeltaKind::None).then(|| delta.name().into()),
        filter: filter.as_deref().map(Cow::Borrowed),
        ..wire_command(id, "subscribe")
    }
}

fn wire_history(id: Option<u64>, query: &HistoryQuery) -> WireCommand<'_> {
    let HistoryQuery { topic, start, limit } = query;
    let mut wire = WireCommand {
        topic: Some(topic.as_str().into()),
        limit: Some(*limit as u64),
        ..wire_command(id, "history")
    };
    match start {
        HistoryStart::After(sequence) => wire.after = Some(sequence.get()),
        HistoryStart::Before(sequence) => wire.before = Some(sequence.get()),
        HistoryStart::Last(count) => wire.last = Some(*count),
        HistoryStart::Since(unix_ms) => wire.since = Some(*unix_ms),
    }
    wire
}

fn wire_publish<'a>(
    id: Option<u64>,
    publish: &'a Publish,
    encoded: &'a mut String,
) -> WireCommand<'a> {
    let Draft { topic, payload, idempotency_key, expected } = &publish.draft;
    let mut wire = WireCommand {
        topic: Some(topic.as_str().into()),
        key: idempotency_key.as_deref().map(Cow::Borrowed),
        expect: expected.map(Sequence::get),
        ..wire_command(id, "publish")
    };
    set_payload(&mut wire, payload, encoded);
    wire
}

/// Puts a payload into a command; `encoded` is where base64 of it goes.
pub(super) fn set_payload<'a>(
    wire: &mut WireCommand<'a>,
    payload: &'a Payload,
    encoded: &'a mut String,
) {
    match payload.kind() {
        PayloadKind::Json => wire.data = serde_json::from_slice(payload.bytes()).ok(),
        PayloadKind::Text => wire.text = Some(String::from_utf8_lossy(payload.bytes())),
        PayloadKind::Bytes => {
            STANDARD.encode_string(payload.bytes(), encoded);
            wire.base64 = Some(Cow::Borrowed(encoded));
        }
    }
}

/// Appends an event.
pub fn append_event(event: &Event, out: &mut Vec<u8>) {
    let wire = wire_event(event);
    serde_json::to_writer(out, &wire).expect("an event can be written as JSON");
}

fn wire_event(event: &Event) -> WireEvent<'_> {
    let of = |id: &Option<CommandId>| WireEvent {
        kind: event.name().into(),
        id: id.map(|id| id.0),
        ..WireEvent::default()
    };
    let texts =
        |selectors: &'_ [Selector]| selectors.iter().map(|s| s.to_string().into()).collect();
    match event {
        Event::Welcome {
            id,
            session,
            node,
            version,
            key,
            payload_bytes_max,
            message_bytes_max,
        } => WireEvent {
            session: Some(session.into()),
            node: Some(node.into()),
            version: Some(version.into()),
            key: key.as_deref().map(Cow::Borrowed),
            limits: Some(WireLimits {
                payload_bytes_max: *payload_bytes_max,
                message_bytes_max: *message_bytes_max,
            }),
            ..of(id)
        },
        Event::Subscribed(Subscribed { id, selectors, topics }) => WireEvent {
            selectors: Some(texts(selectors)),
            topics: Some(topics.iter().map(wire_topic).collect()),
            ..of(id)
        },
        Event::Unsubscribed { id, selectors, has_lagged } => WireEvent {
            selectors: Some(texts(selectors)),
            reason: has_lagged.then(|| GapReason::Lagged.name().into()),
            ..of(id)
        },
        Event::Lag { ms } => WireEvent { ms: Some(*ms), ..of(&None) },
        Event::Topic(topic) => WireEvent {
            topic: Some(topic.topic.as_str().into()),
            number: Some(topic.number),
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
            publications: Some(page.publications.iter().map(wire_kept).collect()),
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
        epoch: topic.epoch.as_str().into(),
        head: topic.head.get(),
        start: topic.start.get(),
        recovered: topic.recovered,
    }
}

fn wire_kept(publication: &Publication) -> WireKept<'_> {
    let payload = publication.payload();
    let mut wire = WireKept {
        sequence: publication.sequence().get(),
        time_ms: publication.unix_ms(),
        ..WireKept::default()
    };
    match publication.kind() {
        PayloadKind::Json => wire.data = serde_json::from_slice(payload).ok(),
        PayloadKind::Text => wire.text = Some(String::from_utf8_lossy(payload)),
        PayloadKind::Bytes => wire.base64 = Some(STANDARD.encode(payload).into()),
    }
    wire
}

fn kept_of(wire: &WireKept<'_>) -> Option<Publication> {
    let payload = match (wire.data, &wire.text, &wire.base64) {
        (Some(data), ..) => Payload::new(PayloadKind::Json, data.get().as_bytes()),
        (_, Some(text), _) => Payload::new(PayloadKind::Text, text.as_bytes()),
        (.., Some(base64)) => {
            Payload::new(PayloadKind::Bytes, &STANDARD.decode(base64.as_bytes()).ok()?)
        }
        _ => return None,
    };
    let now = Moment { elapsed: Duration::ZERO, unix_ms: wire.time_ms };
    Some(Publication::new(payload, Sequence::new(wire.sequence)?, now))
}

/// Appends a publication.
pub fn append_publication(topic: &TopicName, publication: &Publication, out: &mut Vec<u8>) {
    out.extend_from_slice(br#"{"type":"publication","topic":"#);
    append_string(topic.as_str(), out);
    out.extend_from_slice(br#","sequence":"#);
    let sequence = publication.sequence().get();
    out.extend_from_slice(itoa::Buffer::new().format(sequence).as_bytes());
    append_payload(publication.kind(), publication.payload(), out);
    out.push(b'}');
}

/// Appends a publication as its difference from an earlier one.
pub fn append_delta(
    topic: &TopicName,
    publication: &Publication,
    delta: &DeltaRef<'_>,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(br#"{"type":"delta","topic":"#);
    append_string(topic.as_str(), out);
    let mut append = |name: &str, number: u64| {
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    };
    append(r#","sequence":"#, publication.sequence().get());
    append(r#","base":"#, delta.base.get());
    append(r#","crc":"#, delta.crc.into());
    append_kind(publication.kind(), out);
    match delta.kind {
        DeltaKind::JsonPatch => {
            out.extend_from_slice(br#","patch":"#);
            out.extend_from_slice(delta.bytes);
        }
        DeltaKind::Vcdiff | DeltaKind::None => append_base64(r#","vcdiff":""#, delta.bytes, out),
    }
    out.push(b'}');
}

/// Appends a piece of a publication's payload.
pub fn append_fragment(
    topic: &TopicName,
    publication: &Publication,
    piece: std::ops::Range<usize>,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(br#"{"type":"fragment","topic":"#);
    append_string(topic.as_str(), out);
    let mut append = |name: &str, number: u64| {
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    };
    append(r#","sequence":"#, publication.sequence().get());
    append(r#","total":"#, publication.payload().len() as u64);
    append(r#","offset":"#, piece.start as u64);
    append_kind(publication.kind(), out);
    append_base64(r#","base64":""#, &publication.payload()[piece], out);
    out.push(b'}');
}

fn append_kind(kind: PayloadKind, out: &mut Vec<u8>) {
    out.extend_from_slice(br#","kind":""#);
    out.extend_from_slice(kind.name().as_bytes());
    out.push(b'"');
}

/// Appends a member whose value is base64; `name` ends with the opening quote.
fn append_base64(name: &str, bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    let start = out.len();
    out.resize(start + bytes.len().div_ceil(3) * 4, 0);
    STANDARD.encode_slice(bytes, &mut out[start..]).expect("the room is exactly enough");
    out.push(b'"');
}

/// Appends the member that holds a payload, with a comma before it.
fn append_payload(kind: PayloadKind, payload: &[u8], out: &mut Vec<u8>) {
    match kind {
        PayloadKind::Json => {
            out.extend_from_slice(br#","data":"#);
            out.extend_from_slice(payload);
        }
        PayloadKind::Text => {
            out.extend_from_slice(br#","text":"#);
            append_string(&String::from_utf8_lossy(payload), out);
        }
        PayloadKind::Bytes => {
            append_base64(r#","base64":""#, payload, out);
        }
    }
}

fn append_string(text: &str, out: &mut Vec<u8>) {
    let is_plain = text.bytes().all(|byte| byte >= 0x20 && byte != b'"' && byte != b'\\');
    if is_plain {
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
    } else {
        serde_json::to_writer(out, text).expect("a text can be written as JSON");
    }
}

/// Reads a server's text message: one record, or an array of them.
///
/// # Errors
/// What is wrong with it.
pub fn decode_server_message<'a>(
    text: &'a str,
    limits: &Limits,
) -> Result<Vec<ServerRecord<'a>>, BadRecord> {
    let bad = |error: serde_json::Error| BadRecord { text: error.to_string() };
    let wires: Vec<WireEvent<'a>> = match text.trim_start().starts_with('[') {
        true => serde_json::from_str(text).map_err(bad)?,
        false => vec![serde_json::from_str(text).map_err(bad)?],
    };
    wires.into_iter().map(|wire| record_of(wire, limits)).collect()
}

fn record_of<'a>(wire: WireEvent<'a>, limits: &Limits) -> Result<ServerRecord<'a>, BadRecord> {
    let kind = wire.kind.clone();
    let bad = || BadRecord { text: format!("`{kind}` lacks a member or is unknown") };
    match &*kind {
        "publication" => publication_of(wire),
        "delta" => delta_of(wire).ok_or_else(bad),
        "fragment" => fragment_of(wire).ok_or_else(bad),
        _ => event_of(wire, limits).map(ServerRecord::Event).ok_or_else(bad),
    }
}

fn delta_of(wire: WireEvent<'_>) -> Option<ServerRecord<'_>> {
    let (delta, bytes) = match (wire.vcdiff, wire.patch) {
        (Some(vcdiff), _) => {
            (DeltaKind::Vcdiff, Cow::Owned(STANDARD.decode(vcdiff.as_bytes()).ok()?))
        }
        (None, patch) => (DeltaKind::JsonPatch, Cow::Borrowed(patch?.get().as_bytes())),
    };
    Some(ServerRecord::Delta {
        topic: TopicRef::Name(wire.topic?),
        sequence: Sequence::new(wire.sequence?)?,
        base: Sequence::new(wire.base?)?,
        kind: wire.payload_kind?.parse().ok()?,
        delta,
        crc: wire.crc?,
        bytes,
    })
}

fn fragment_of(wire: WireEvent<'_>) -> Option<ServerRecord<'_>> {
    Some(ServerRecord::Fragment {
        topic: TopicRef::Name(wire.topic?),
        sequence: Sequence::new(wire.sequence?)?,
        kind: wire.payload_kind?.parse().ok()?,
        total: wire.total?,
        offset: wire.offset?,
        bytes: Cow::Owned(STANDARD.decode(wire.base64?.as_bytes()).ok()?),
    })
}

fn publication_of(wire: WireEvent<'_>) -> Result<ServerRecord<'_>, BadRecord> {
    let bad = |what: &str| BadRecord { text: format!("a publication without {what}") };
    let (kind, payload) = match (wire.data, wire.text, wire.base64) {
        (Some(data), ..) => (PayloadKind::Json, Cow::Borrowed(data.get().as_bytes())),
        (_, Some(text), _) => (PayloadKind::Text, Cow::Owned(text.into_owned().into_bytes())),
        (.., Some(base64)) => {
            let bytes = STANDARD.decode(base64.as_bytes()).map_err(|_| bad("valid base64"))?;
            (PayloadKind::Bytes, Cow::Owned(bytes))
        }
        _ => return Err(bad("payload")),
    };
    let sequence = wire.sequence.and_then(Sequence::new).ok_or_else(|| bad("sequence"))?;
    Ok(ServerRecord::Publication {
        topic: TopicRef::Name(wire.topic.ok_or_else(|| bad("topic"))?),
        sequence: SequenceRef::Full(sequence),
        kind,
        payload,
    })
}

fn event_of(wire: WireEvent<'_>, limits: &Limits) -> Option<Event> {
    let id = wire.id.map(CommandId);
    let name = |text: &str| TopicName::parse(text, limits).ok();
    let selectors = |texts: Option<Vec<Cow<'_, str>>>| -> Option<Vec<Selector>> {
        texts?.iter().map(|text| Selector::parse(text, limits).ok()).collect()
    };
    let refusal = |code: Option<u16>, error: Option<Cow<'_, str>>| {
        Some(Refusal::new(Code::from_number(code?)?, error?))
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
        },
        "subscribed" => Event::Subscribed(Subscribed {
            id,
            selectors: selectors(wire.selectors)?,
            topics: wire
                .topics?
                .into_iter()
                .map(|topic| {
                    Some(SubscribedTopic {
                        topic: name(&topic.topic)?,
                        number: topic.number,
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
            selectors: selectors(wire.selectors)?,
            has_lagged: wire.reason.as_deref() == Some(GapReason::Lagged.name()),
        },
        "handling" => Event::Handling { id, selectors: selectors(wire.selectors)? },
        "unhandled" => Event::Unhandled { id, selectors: selectors(wire.selectors)? },
        "request" => Event::Request(requests::asked_of(wire, limits)?),
        "response" => Event::Response(requests::response_of(wire)?),
        "responded" => Event::Responded { id, count: wire.count?, missing: wire.missing? },
        "lag" => Event::Lag { ms: wire.ms? },
        "topic" => Event::Topic(SubscribedTopic {
            topic: name(&wire.topic?)?,
            number: wire.number?,
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
            reason: GapReason::from_name(&wire.reason?)?,
        }),
        "published" => Event::Published {
            id,
            topic: name(&wire.topic?)?,
            position: Position {
                epoch: Epoch::new(&wire.epoch?),
                sequence: Sequence::new(wire.sequence?)?,
            },
            level: AckLevel::from_name(&wire.level?)?,
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
                publications: wire.publications?.iter().map(kept_of).collect::<Option<_>>()?,
            },
        },
        "refused" => Event::Refused { id, refusal: refusal(wire.code, wire.error)? },
        "acknowledged" => Event::Acknowledged { id },
        "pong" => Event::Pong { id },
        "closing" => Event::Closing {
            refusal: refusal(wire.code, wire.error)?,
            retry_after_ms: wire.retry_after_ms?,
        },
        _ => return None,
    })
}
