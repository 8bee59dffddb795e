//! Requests and their answers in JSON. docs/protocol.md#requests.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use model::{
    Asked, Attach, Capacity, Code, CommandId, Handle, Headers, Limits, Payload, PayloadKind,
    Recipients, Refusal, Request, Respond, Response, TopicName, Unanswered, check_key,
};

use super::super::wire::{WireCommand, WireEvent, WireFrom, WirePrincipal};
use super::fields::{bad_command, payload_of, set_payload, topic_of, wire_command};
use super::lists::{LenMax, selectors_of};

/// How many requests a session has open at a time if it does not say.
const USUAL_CONCURRENCY: u64 = 64;
/// How long an answer may take if the request does not say.
const USUAL_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) fn handle_of(wire: &WireCommand<'_>, limits: &Limits) -> Result<Handle, Refusal> {
    let within = |name: &str, wanted: u64, max: usize| {
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        let why = || bad_command(format!("`{name}` is not from 1 to {max}; give one that is"));
        (1..=max).contains(&wanted).then_some(wanted).ok_or_else(why)
    };
    let concurrency = wire.concurrency.unwrap_or(USUAL_CONCURRENCY);
    let concurrency = within("concurrency", concurrency, limits.handler_concurrency_max)?;
    let bytes_max = |bytes| within("payload_bytes_max", bytes, limits.payload_bytes_max);
    let payload_bytes_max = wire.payload_bytes_max.map(bytes_max).transpose()?;
    let capacity = Capacity { concurrency, payload_bytes_max };
    let selectors = selectors_of(wire, LenMax::of_handlers(limits), limits)?;
    Ok(Handle { selectors, capacity })
}

pub(super) fn request_of(wire: &WireCommand<'_>, limits: &Limits) -> Result<Request, Refusal> {
    let missing =
        || bad_command("a request is about one `topic`, or for one `device`; add it".into());
    let topic = match (&wire.topic, &wire.device) {
        (Some(topic), _) => topic_of(topic, limits)?,
        (None, Some(device)) => topic_of(&format!("devices/{device}"), limits)?,
        (None, None) => return Err(missing()),
    };
    let timeout = timeout_of(wire.timeout_ms, limits)?;
    let filter_bytes_max = limits.filter_bytes_max;
    if wire.filter.as_deref().is_some_and(|filter| filter.len() > filter_bytes_max) {
        let text = format!(
            "cannot use the filter: filter_bytes_max is {filter_bytes_max}; write a shorter one"
        );
        return Err(Refusal::new(Code::BadFilter, text));
    }
    let boxed = |text: &Option<Cow<'_, str>>| text.as_deref().map(Box::from);
    Ok(Request {
        topic,
        payload: Arc::new(payload_of(wire, &Headers::default(), limits)?),
        timeout,
        to: Recipients {
            device: boxed(&wire.device),
            session: boxed(&wire.session),
            principal: match &wire.principal {
                Some(WirePrincipal::Named(name)) => Some((**name).into()),
                _ => None,
            },
            filter: wire.filter.as_deref().map(Into::into),
            all: wire.all.unwrap_or(false),
        },
        key: check_key(wire.key.as_deref(), limits)?,
    })
}

/// How long the answer to a request may take.
///
/// # Errors
/// No time at all, or longer than `request_timeout_ms_max`.
pub fn timeout_of(timeout_ms: Option<u64>, limits: &Limits) -> Result<Duration, Refusal> {
    let timeout_max = limits.request_timeout_ms_max;
    let timeout = timeout_ms.map_or(USUAL_TIMEOUT.min(timeout_max), Duration::from_millis);
    if (Duration::from_millis(1)..=timeout_max).contains(&timeout) {
        return Ok(timeout);
    }
    Err(bad_command(format!(
        "`timeout_ms` is not from 1 to request_timeout_ms_max, {}; give one that is",
        timeout_max.as_millis()
    )))
}

/// The device that a command is about.
pub(super) fn device_of(wire: &WireCommand<'_>) -> Result<Arc<str>, Refusal> {
    let missing = || bad_command("it is about one `device`, APPLICATION/DEVICE; add it".into());
    wire.device.as_deref().map(Arc::from).ok_or_else(missing)
}

pub(super) fn attach_of(wire: WireCommand<'_>) -> Result<Attach, Refusal> {
    Ok(Attach {
        device: device_of(&wire)?,
        authorization: wire.authorization.as_deref().map(Box::from),
        info: wire.info.map(|info| info.get().into()),
    })
}

pub(super) fn wire_attach(id: Option<u64>, attach: &Attach) -> WireCommand<'_> {
    WireCommand {
        device: Some((&*attach.device).into()),
        authorization: attach.authorization.as_deref().map(Cow::Borrowed),
        info: attach.info.as_deref().and_then(|info| serde_json::from_str(info).ok()),
        ..wire_command(id, "attach")
    }
}

/// The code with which a session says that it handles no such requests.
const NOT_HANDLED: u64 = Code::NoHandler.number() as u64;

pub(super) fn respond_of(wire: &WireCommand<'_>, limits: &Limits) -> Result<Respond, Refusal> {
    let missing = || bad_command("an answer has the number of its `request`; add it".into());
    let request = wire.request.ok_or_else(missing)?;
    let result = match &wire.error {
        Some(_) if wire.code == Some(NOT_HANDLED) => Err(Unanswered::NotHandled),
        Some(error) if error.len() <= limits.payload_bytes_max => {
            Err(Unanswered::Declined(error.as_ref().into()))
        }
        Some(_) => return Err(bad_command("its `error` is longer than a payload may be".into())),
        None => Ok(Arc::new(payload_of(wire, &Headers::default(), limits)?)),
    };
    Ok(Respond { request, result })
}

pub(super) fn wire_request<'a>(
    id: Option<u64>,
    request: &'a Request,
    encoded: &'a mut String,
) -> WireCommand<'a> {
    let Recipients { device, session, principal, filter, all } = &request.to;
    let mut wire = WireCommand {
        topic: Some(request.topic.as_str().into()),
        timeout_ms: Some(request.timeout.as_millis() as u64),
        device: device.as_deref().map(Cow::Borrowed),
        session: session.as_deref().map(Cow::Borrowed),
        principal: principal.as_deref().map(|name| WirePrincipal::Named(name.into())),
        filter: filter.as_deref().map(Cow::Borrowed),
        all: all.then_some(true),
        key: request.key.as_deref().map(Cow::Borrowed),
        ..wire_command(id, "request")
    };
    set_payload(&mut wire, &request.payload, encoded);
    wire
}

pub(super) fn wire_respond<'a>(
    id: Option<u64>,
    respond: &'a Respond,
    encoded: &'a mut String,
) -> WireCommand<'a> {
    let mut wire = WireCommand { request: Some(respond.request), ..wire_command(id, "respond") };
    match &respond.result {
        Ok(payload) => set_payload(&mut wire, payload, encoded),
        Err(Unanswered::Declined(error)) => wire.error = Some(Cow::Borrowed(error)),
        // A server that does not know the code takes it for a refusal with that text.
        Err(Unanswered::NotHandled) => {
            let error = "this session does not handle it any more; ask again";
            (wire.error, wire.code) = (Some(error.into()), Some(NOT_HANDLED));
        }
    }
    wire
}

/// Puts a payload into an event.
pub(super) fn tell_payload<'a>(wire: &mut WireEvent<'a>, payload: &'a Payload) {
    match payload.kind() {
        PayloadKind::Json => wire.data = serde_json::from_slice(payload.bytes()).ok(),
        PayloadKind::Text => wire.text = Some(String::from_utf8_lossy(payload.bytes())),
        PayloadKind::Bytes => wire.base64 = Some(STANDARD.encode(payload.bytes()).into()),
    }
}

fn told_payload(wire: &WireEvent<'_>) -> Option<Arc<Payload>> {
    Some(Arc::new(match (wire.data, &wire.text, &wire.base64) {
        (Some(data), ..) => Payload::new(PayloadKind::Json, data.get().as_bytes()),
        (_, Some(text), _) => Payload::new(PayloadKind::Text, text.as_bytes()),
        (.., Some(base64)) => {
            Payload::new(PayloadKind::Bytes, &STANDARD.decode(base64.as_bytes()).ok()?)
        }
        _ => return None,
    }))
}

fn session_of(wire: &WireEvent<'_>) -> Option<Arc<str>> {
    match wire.from.as_ref()? {
        WireFrom::Session(session) => Some(session.as_ref().into()),
        WireFrom::Sequence(_) => None,
    }
}

pub(super) fn asked_of(wire: WireEvent<'_>, limits: &Limits) -> Option<Asked> {
    Some(Asked {
        request: wire.request?,
        payload: told_payload(&wire)?,
        session: session_of(&wire)?,
        topic: TopicName::parse(&wire.topic?, limits).ok()?,
        timeout: Duration::from_millis(wire.timeout_ms?),
        principal: wire.principal?.as_ref().into(),
    })
}

pub(super) fn response_of(wire: WireEvent<'_>) -> Option<Response> {
    Some(Response {
        id: wire.id.map(CommandId),
        session: session_of(&wire)?,
        payload: told_payload(&wire)?,
        has_more: wire.more.unwrap_or(false),
    })
}
