//! Members that several commands have: how they are read, and how a client writes them.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use model::{
    Code, Epoch, Headers, Limits, Payload, PayloadKind, Position, Refusal, Sequence, TopicName,
};

use super::super::check_payload_len;
use super::super::wire::{WireCommand, WirePosition};

pub(super) fn bad_command(why: String) -> Refusal {
    Refusal::new(Code::BadCommand, format!("cannot read the command: {why}"))
}

pub(super) fn topic_of(text: &str, limits: &Limits) -> Result<TopicName, Refusal> {
    TopicName::parse(text, limits).map_err(|error| Refusal::new(Code::BadTopic, error.to_string()))
}

pub(super) fn position_of(wire: &WirePosition, limits: &Limits) -> Result<Position, Refusal> {
    if wire.epoch.len() > limits.epoch_bytes_max {
        let bytes_max = limits.epoch_bytes_max;
        return Err(bad_command(format!(
            "an `epoch` has more bytes than epoch_bytes_max, {bytes_max}; give one we told"
        )));
    }
    let sequence = Sequence::new(wire.sequence).ok_or_else(|| {
        bad_command(format!("sequence {} is 2^53 or more; give one we told", wire.sequence))
    })?;
    Ok(Position { epoch: Epoch::new(&wire.epoch), sequence })
}

/// The payload of a command.
pub(super) fn payload_of(
    wire: &WireCommand<'_>,
    headers: &Headers<'_>,
    limits: &Limits,
) -> Result<Payload, Refusal> {
    let check = |len| check_payload_len(len + headers.bytes().len(), limits.payload_bytes_max);
    let payload = match (wire.data, &wire.text, &wire.base64) {
        (Some(data), None, None) => {
            check(data.get().len())?;
            Payload::with_headers(PayloadKind::Json, headers, data.get().as_bytes())
        }
        (None, Some(text), None) => {
            check(text.len())?;
            Payload::with_headers(PayloadKind::Text, headers, text.as_bytes())
        }
        (None, None, Some(base64)) => {
            let bytes = STANDARD.decode(base64.as_bytes()).map_err(|error| {
                Refusal::bad_payload(format!("its base64 does not decode ({error}); mend it"))
            })?;
            check(bytes.len())?;
            Payload::with_headers(PayloadKind::Bytes, headers, &bytes)
        }
        _ => {
            let why = "it needs exactly one of `data`, `text` and `base64`";
            return Err(bad_command(why.into()));
        }
    };
    Ok(payload)
}

pub(super) fn wire_command(id: Option<u64>, kind: &'static str) -> WireCommand<'static> {
    WireCommand { id, kind: kind.into(), ..WireCommand::default() }
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
