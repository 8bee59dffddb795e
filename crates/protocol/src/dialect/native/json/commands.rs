//! Commands in JSON: how they are read, and how a client writes them. docs/protocol.md#commands.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use model::{
    Acknowledge, Code, Command, CommandId, Conflation, DeltaKind, Detach, Draft, Expected,
    HeaderOrigin, Headers, Hello, HistoryQuery, HistoryStart, Limits, Position, Publish, Rates,
    Refusal, Selector, Sequence, Stamps, Start, Subscribe, SubscribeOptions, SubscriberName,
    SubscriptionId, TopicName, Unhandle, Unsubscribe, check_key,
};

use super::super::Undecoded;
use super::super::wire::{
    WireCommand, WireFeatures, WireMany, WirePosition, WirePrincipal, WireStart,
};
use super::fields::{bad_command, payload_of, position_of, set_payload, topic_of, wire_command};
use super::headers::{decode_headers, encode_headers};
use super::lists::{LenMax, read_positions, selectors_of};
use super::requests;

const COMMANDS: &str = "hello, subscribe, unsubscribe, publish, history, acknowledge, handle, unhandle, \
                        request, respond, attach, detach, close or ping";

/// Reads one command.
///
/// # Errors
/// The error, and the command's id if that could be read.
pub fn decode_command(
    text: &str,
    limits: &Limits,
) -> Result<(Option<CommandId>, Command), Undecoded> {
    if !text.trim_start().starts_with('{') {
        let why = "it is not a JSON object; send one with a `type`, such as \
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
            features: wire.features.map(|features| features.0),
        })),
        "subscribe" => subscribe_of(wire, limits).map(Command::Subscribe),
        "unsubscribe" => unsubscribe_of(&wire, limits).map(Command::Unsubscribe),
        "publish" => publish_of(&wire, limits).map(Command::Publish),
        "history" => history_of(&wire, limits).map(Command::History),
        "acknowledge" => acknowledge_of(&wire, limits).map(Command::Acknowledge),
        "handle" => requests::handle_of(&wire, limits).map(Command::Handle),
        "unhandle" => {
            let selectors = selectors_of(&wire, LenMax::of_handlers(limits), limits)?;
            Ok(Command::Unhandle(Unhandle { selectors }))
        }
        "request" => requests::request_of(&wire, limits).map(Command::Request),
        "respond" => requests::respond_of(&wire, limits).map(Command::Respond),
        "attach" => requests::attach_of(wire).map(Command::Attach),
        "detach" => Ok(Command::Detach(Detach { device: requests::device_of(&wire)? })),
        "close" => Ok(Command::Close),
        "ping" => Ok(Command::Ping),
        "" => Err(bad_command(format!("it has no `type`; add one of {COMMANDS}"))),
        other => Err(Refusal::new(
            Code::UnknownCommand,
            format!("cannot carry out `{other}`: there is no such command; send {COMMANDS}"),
        )),
    }
}

fn unsubscribe_of(wire: &WireCommand<'_>, limits: &Limits) -> Result<Unsubscribe, Refusal> {
    let Some(subscription) = subscription_of(wire)? else {
        let selectors = selectors_of(wire, LenMax::of_subscriptions(limits), limits)?;
        return Ok(Unsubscribe::Selectors(selectors));
    };
    if wire.topic.is_some() || wire.topics.is_some() {
        let why = "it has a `subscription` and selectors; give the one or the others";
        return Err(bad_command(why.into()));
    }
    Ok(Unsubscribe::Subscription(subscription))
}

fn subscription_of(wire: &WireCommand<'_>) -> Result<Option<SubscriptionId>, Refusal> {
    let Some(number) = wire.subscription else { return Ok(None) };
    let known = u32::try_from(number).ok().and_then(NonZeroU32::new);
    known.map(|id| Some(SubscriptionId(id))).ok_or_else(|| {
        bad_command(format!("`subscription` is {number}; give a number from 1 to 2^32 - 1"))
    })
}

fn subscribe_of(wire: WireCommand<'_>, limits: &Limits) -> Result<Subscribe, Refusal> {
    let selectors = selectors_of(&wire, LenMax::of_subscriptions(limits), limits)?;
    let mut positions = positions_of(&wire, LenMax::of_resumes(limits), limits)?;
    let name = wire.name.as_deref().map(subscriber_of).transpose()?;
    let start = match &wire.from {
        None => Start::Snapshot,
        Some(WireStart::Word(word)) if word == "snapshot" => Start::Snapshot,
        Some(WireStart::Word(word)) if word == "now" => Start::Now,
        Some(WireStart::Word(word)) if word == "all" => Start::All,
        Some(WireStart::Last { last }) => Start::Last(*last),
        Some(WireStart::Since { since }) => Start::Since(*since),
        Some(WireStart::Position(position)) => {
            let [only] = &selectors[..] else {
                let why = "`from` is one position for several topics; use `positions`";
                return Err(bad_command(why.into()));
            };
            let topic = only.to_topic().ok_or_else(|| {
                bad_command("`from` is one position for a pattern; use `positions`".into())
            })?;
            positions.push((topic, position_of(position, limits)?));
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
    let subscription = subscription_of(&wire)?;
    Ok(Subscribe { subscription, selectors, start, positions, name, options })
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
        stamps: Stamps {
            time: wire.time.unwrap_or(false),
            principal: matches!(wire.principal, Some(WirePrincipal::Asked(true))),
        },
        is_resumable: false,
    })
}

fn rate_of(name: &str, rate: Option<u32>) -> Result<Option<NonZeroU32>, Refusal> {
    let bad = || bad_command(format!("`{name}` is 0; leave it out for no bound"));
    rate.map(|rate| NonZeroU32::new(rate).ok_or_else(bad)).transpose()
}

fn positions_of(
    wire: &WireCommand<'_>,
    len_max: LenMax,
    limits: &Limits,
) -> Result<Vec<(TopicName, Position)>, Refusal> {
    let Some(WireMany::Unread(map)) = &wire.positions else { return Ok(Vec::new()) };
    Ok(read_positions(map.get(), len_max, limits)?.into_iter().collect())
}

fn subscriber_of(text: &str) -> Result<SubscriberName, Refusal> {
    SubscriberName::parse(text).ok_or_else(|| {
        bad_command(format!(
            "`{text}` is not the name of a subscriber; use 1 to 64 of A-Z a-z 0-9 . _ -"
        ))
    })
}

fn acknowledge_of(wire: &WireCommand<'_>, limits: &Limits) -> Result<Acknowledge, Refusal> {
    let missing =
        || bad_command("an acknowledgement has the `name` of a subscriber; add it".into());
    let name = subscriber_of(wire.name.as_deref().ok_or_else(missing)?)?;
    let positions = positions_of(wire, LenMax::of_acknowledged(limits), limits)?;
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
    read_positions(std::str::from_utf8(text).ok()?, LenMax::NONE, limits).ok()
}

fn wire_position(position: &Position) -> WirePosition {
    let Position { epoch, sequence } = position;
    WirePosition { epoch: epoch.to_string(), sequence: sequence.get() }
}

fn wire_positions(
    positions: &[(TopicName, Position)],
) -> Option<WireMany<'static, BTreeMap<String, WirePosition>>> {
    let wire = positions.iter().map(|(topic, at)| (topic.to_string(), wire_position(at)));
    (!positions.is_empty()).then(|| WireMany::Known(wire.collect()))
}

fn history_of(wire: &WireCommand<'_>, limits: &Limits) -> Result<HistoryQuery, Refusal> {
    const PAGE_LEN: usize = 100;
    let missing = || bad_command("a history is of one `topic`; add it".into());
    let topic = topic_of(wire.topic.as_deref().ok_or_else(missing)?, limits)?;
    let sequence = |number: u64| {
        let why = || bad_command(format!("{number} is not a sequence; sequences are below 2^53"));
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

fn publish_of(wire: &WireCommand<'_>, limits: &Limits) -> Result<Publish, Refusal> {
    let name = wire
        .topic
        .as_deref()
        .ok_or_else(|| bad_command("a publish names one `topic`; add it".into()))?;
    let topic = topic_of(name, limits)?;
    let headers = match &wire.headers {
        Some(headers) => decode_headers(headers.get(), HeaderOrigin::Client)?,
        None => Headers::default(),
    };
    let payload = payload_of(wire, &headers, limits)?;
    let idempotency_key = check_key(wire.key.as_deref(), limits)?;
    let expected = match wire.expect {
        None => None,
        Some(number) => Some(Expected::sequence(Sequence::new(number).ok_or_else(|| {
            bad_command(format!("`expect` is {number}; sequences are below 2^53"))
        })?)),
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
            features: hello.features.map(WireFeatures),
            bytes_per_second: hello.rates.bytes.map(NonZeroU32::get),
            messages_per_second: hello.rates.messages.map(NonZeroU32::get),
            ..wire_command(id, "hello")
        },
        Command::Subscribe(subscribe) => wire_subscribe(id, subscribe),
        Command::Unsubscribe(Unsubscribe::Selectors(selectors)) => {
            WireCommand { topics: wire_topics(selectors), ..wire_command(id, "unsubscribe") }
        }
        Command::Unsubscribe(Unsubscribe::Subscription(subscription)) => WireCommand {
            subscription: Some(subscription.0.get().into()),
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
            topics: wire_topics(&handle.selectors),
            concurrency: Some(handle.capacity.concurrency as u64),
            payload_bytes_max: handle.capacity.payload_bytes_max.map(|bytes| bytes as u64),
            ..wire_command(id, "handle")
        },
        Command::Unhandle(unhandle) => {
            WireCommand { topics: wire_topics(&unhandle.selectors), ..wire_command(id, "unhandle") }
        }
        Command::Request(request) => requests::wire_request(id, request, &mut encoded),
        Command::Respond(respond) => requests::wire_respond(id, respond, &mut encoded),
        Command::Attach(attach) => requests::wire_attach(id, attach),
        Command::Detach(Detach { device }) => {
            WireCommand { device: Some((&**device).into()), ..wire_command(id, "detach") }
        }
        Command::Close => wire_command(id, "close"),
        Command::Ping => wire_command(id, "ping"),
    };
    serde_json::to_writer(out, &wire).expect("a command can be written as JSON");
}

fn wire_topics(selectors: &[Selector]) -> Option<WireMany<'_, Vec<Cow<'_, str>>>> {
    Some(WireMany::Known(selectors.iter().map(|selector| selector.as_str().into()).collect()))
}

fn wire_subscribe(id: Option<u64>, subscribe: &Subscribe) -> WireCommand<'_> {
    let SubscribeOptions { conflation, interval, priority, delta, filter, stamps, .. } =
        &subscribe.options;
    let interval_ms = interval.as_millis() as u64;
    WireCommand {
        subscription: subscribe.subscription.map(|it| it.0.get().into()),
        topics: wire_topics(&subscribe.selectors),
        from: match &subscribe.start {
            Start::Snapshot => None,
            Start::Now => Some(WireStart::Word("now".into())),
            Start::All => Some(WireStart::Word("all".into())),
            Start::Last(last) => Some(WireStart::Last { last: *last }),
            Start::Since(since) => Some(WireStart::Since { since: *since }),
            Start::Resume(resume) => Some(WireStart::Since { since: resume.has_before_ms }),
        },
        positions: wire_positions(&subscribe.positions),
        name: subscribe.name.as_ref().map(|name| name.as_str().into()),
        conflation: (*conflation != Conflation::Off).then(|| conflation.name().into()),
        interval_ms: (interval_ms > 0).then_some(interval_ms),
        priority: (*priority != 0).then(|| (*priority).into()),
        delta: (*delta != DeltaKind::None).then(|| delta.name().into()),
        filter: filter.as_deref().map(Cow::Borrowed),
        time: stamps.time.then_some(true),
        principal: stamps.principal.then_some(WirePrincipal::Asked(true)),
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
        expect: expected.as_ref().map(|expected| expected.sequence.get()),
        headers: encode_headers(payload.headers().as_ref()),
        ..wire_command(id, "publish")
    };
    set_payload(&mut wire, payload, encoded);
    wire
}
