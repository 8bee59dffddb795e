//! The binary dialect, `tidegate.v1`. docs/protocol.md#binary-dialect.

use std::borrow::Cow;

use model::{
    Code, Command, CommandId, DeltaKind, Draft, Epoch, Event, Limits, Payload, PayloadKind,
    Publication, Publish, Refusal, Sequence, TopicName,
};

use super::{
    BadRecord, DeltaRef, Extras, PreviousRef, SequenceRef, ServerRecord, TopicRef, Undecoded,
    check_payload, check_payload_len, json, varint,
};

pub(super) const CONTROL: u8 = 0x00;
pub(super) const PUBLICATION_SHORT: u8 = 0x10;
pub(super) const PUBLICATION_FULL: u8 = 0x20;
pub(super) const PUBLISH: u8 = 0x30;
pub(super) const PUBLISHED: u8 = 0x40;
pub(super) const DELTA_VCDIFF: u8 = 0x50;
pub(super) const DELTA_JSON_PATCH: u8 = 0x60;
pub(super) const FRAGMENT: u8 = 0x70;
pub(super) const PUBLICATION_EXTENDED: u8 = 0x80;
pub(super) const DELTA_VCDIFF_EXTENDED: u8 = 0x90;
pub(super) const DELTA_JSON_PATCH_EXTENDED: u8 = 0xA0;
pub(super) const FRAGMENT_EXTENDED: u8 = 0xB0;
/// Distance of the tags of short publications before which stands the last one that was told.
pub(super) const AFTER_LAST_TOLD: u8 = 3;
/// From here on a length comes right after the tag, so that who does not know a record passes over it.
const FIRST_WITH_LENGTH: u8 = 0x80;

fn kind_number(kind: PayloadKind) -> u8 {
    match kind {
        PayloadKind::Json => 1,
        PayloadKind::Text => 2,
        PayloadKind::Bytes => 3,
    }
}

fn kind_of(tag: u8) -> Option<PayloadKind> {
    match tag & 0x0F {
        1 => Some(PayloadKind::Json),
        2 => Some(PayloadKind::Text),
        3 => Some(PayloadKind::Bytes),
        _ => None,
    }
}

/// The commands in one binary message. After a record that cannot be read, and whose end is not known, it ends.
#[derive(Debug)]
pub struct Commands<'a> {
    rest: &'a [u8],
    limits: &'a Limits,
}

/// Reads the commands in one binary message.
pub fn decode_commands<'a>(message: &'a [u8], limits: &'a Limits) -> Commands<'a> {
    Commands { rest: message, limits }
}

/// One command and its id, and whether it came as a binary record (its answer then does too).
pub type Decoded = Result<(Option<CommandId>, Command, IsBinary), Undecoded>;

/// Whether a command came as a binary record of its own rather than as a control record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IsBinary {
    /// A binary `publish`.
    Yes,
    /// JSON in a control record.
    No,
}

impl Iterator for Commands<'_> {
    type Item = Decoded;

    fn next(&mut self) -> Option<Decoded> {
        let (&tag, rest) = self.rest.split_first()?;
        self.rest = rest;
        let decoded = match tag {
            CONTROL => self.take_control(),
            0x31..=0x33 => self.take_publish(tag),
            FIRST_WITH_LENGTH.. => self.pass_over(tag),
            _ => None,
        };
        Some(decoded.unwrap_or_else(|| {
            self.rest = &[];
            let text = format!(
                "cannot read the command: the record with tag 0x{tag:02x} is unknown or cut short; \
                 send records as in docs/protocol.md#binary-dialect"
            );
            Err(Undecoded { id: None, refusal: Refusal::new(Code::BadCommand, text) })
        }))
    }
}

impl<'a> Commands<'a> {
    /// The bytes that were not read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn take_control(&mut self) -> Option<Decoded> {
        let bytes = varint::take_bytes(&mut self.rest)?;
        let text = simdutf8::basic::from_utf8(bytes).ok()?;
        let decoded = json::decode_command(text, self.limits);
        Some(decoded.map(|(id, command)| (id, command, IsBinary::No)))
    }

    /// Refuses a record of a later version, and goes on after it.
    fn pass_over(&mut self, tag: u8) -> Option<Decoded> {
        varint::take_bytes(&mut self.rest)?;
        let text = format!(
            "cannot read the command: the record with tag 0x{tag:02x} is unknown here; send what \
             `welcome` lists as `features`"
        );
        Some(Err(Undecoded { id: None, refusal: Refusal::new(Code::UnknownCommand, text) }))
    }

    fn take_publish(&mut self, tag: u8) -> Option<Decoded> {
        let id = varint::take(&mut self.rest)?.checked_sub(1).map(CommandId);
        let name = varint::take_bytes(&mut self.rest)?;
        let payload = varint::take_bytes(&mut self.rest)?;
        let draft = self.draft_of(name, kind_of(tag)?, payload);
        Some(match draft {
            Ok(draft) => Ok((id, Command::Publish(Publish { draft }), IsBinary::Yes)),
            Err(refusal) => Err(Undecoded { id, refusal }),
        })
    }

    fn draft_of(&self, name: &[u8], kind: PayloadKind, bytes: &[u8]) -> Result<Draft, Refusal> {
        let name = simdutf8::basic::from_utf8(name).map_err(|_| {
            let text = "cannot read the topic name: it is not UTF-8; send UTF-8";
            Refusal::new(Code::BadTopic, text)
        })?;
        let topic = TopicName::parse(name, self.limits)
            .map_err(|error| Refusal::new(Code::BadTopic, error.to_string()))?;
        check_payload_len(bytes.len(), self.limits.payload_bytes_max)?;
        check_payload(kind, bytes)?;
        Ok(Draft {
            topic,
            payload: Payload::new(kind, bytes),
            idempotency_key: None,
            expected: None,
        })
    }
}

/// Appends a command, as a client sends it: a `publish` without key and headers as a binary record.
pub fn append_command(id: Option<CommandId>, command: &Command, out: &mut Vec<u8>) {
    match command {
        Command::Publish(Publish { draft })
            if draft.idempotency_key.is_none()
                && draft.expected.is_none()
                && draft.payload.headers().is_none() =>
        {
            out.push(PUBLISH | kind_number(draft.payload.kind()));
            varint::append(id.map_or(0, |id| id.0 + 1), out);
            append_bytes(draft.topic.as_str().as_bytes(), out);
            append_bytes(draft.payload.bytes(), out);
        }
        other => append_control_command(id, other, out),
    }
}

/// Appends a command as a control record, whatever it is: then its answer is an event with everything in it.
pub fn append_control_command(id: Option<CommandId>, command: &Command, out: &mut Vec<u8>) {
    append_control(out, |text| json::append_command(id, command, text));
}

fn append_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    varint::append(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Writes the text in place, behind room for a length of two bytes, which nearly every text has.
fn append_control(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    const USUAL_LEN: usize = 2;
    out.extend_from_slice(&[CONTROL, 0, 0]);
    let start = out.len();
    write(out);
    let (len, len_bytes) = varint::encode((out.len() - start) as u64);
    out.splice(start - USUAL_LEN..start, len.into_iter().take(len_bytes));
}

/// Appends an event as a control record.
pub fn append_event(event: &Event, out: &mut Vec<u8>) {
    append_control(out, |text| json::append_event(event, text));
}

/// Appends the answer to a binary `publish`.
pub fn append_published(id: CommandId, sequence: Sequence, epoch: &Epoch, out: &mut Vec<u8>) {
    out.push(PUBLISHED);
    varint::append(id.0, out);
    varint::append(sequence.get(), out);
    append_bytes(epoch.as_str().as_bytes(), out);
}

/// Appends a publication whose sequence is told by its low 16 bits. The one before it has the sequence - 1.
pub fn append_publication_short(number: u32, publication: &Publication, out: &mut Vec<u8>) {
    append_short(PUBLICATION_SHORT | kind_number(publication.kind()), number, publication, out);
}

/// The same of one before which stands the last that was told in its topic on this connection.
pub fn append_publication_next(number: u32, publication: &Publication, out: &mut Vec<u8>) {
    let tag = PUBLICATION_SHORT | (kind_number(publication.kind()) + AFTER_LAST_TOLD);
    append_short(tag, number, publication, out);
}

fn append_short(tag: u8, number: u32, publication: &Publication, out: &mut Vec<u8>) {
    out.push(tag);
    varint::append(u64::from(number), out);
    out.extend_from_slice(&(publication.sequence().get() as u16).to_be_bytes());
    append_bytes(publication.payload(), out);
}

/// Appends a publication whose sequence is told whole.
pub fn append_publication_full(number: u32, publication: &Publication, out: &mut Vec<u8>) {
    out.push(PUBLICATION_FULL | kind_number(publication.kind()));
    varint::append(u64::from(number), out);
    varint::append(publication.sequence().get(), out);
    append_bytes(publication.payload(), out);
}

/// Appends a publication as its difference from an earlier one.
pub fn append_delta(
    number: u32,
    publication: &Publication,
    delta: &DeltaRef<'_>,
    out: &mut Vec<u8>,
) {
    let tag = match delta.kind {
        DeltaKind::JsonPatch => DELTA_JSON_PATCH,
        DeltaKind::Vcdiff | DeltaKind::None => DELTA_VCDIFF,
    };
    out.push(tag | kind_number(publication.kind()));
    varint::append(u64::from(number), out);
    varint::append(publication.sequence().get(), out);
    varint::append(publication.sequence().get() - delta.base.get(), out);
    out.extend_from_slice(&delta.crc.to_be_bytes());
    append_bytes(delta.bytes, out);
}

/// Appends a piece of a publication's payload.
pub fn append_fragment(
    number: u32,
    publication: &Publication,
    piece: std::ops::Range<usize>,
    out: &mut Vec<u8>,
) {
    out.push(FRAGMENT | kind_number(publication.kind()));
    varint::append(u64::from(number), out);
    varint::append(publication.sequence().get(), out);
    varint::append(publication.payload().len() as u64, out);
    varint::append(piece.start as u64, out);
    append_bytes(&publication.payload()[piece], out);
}

/// Appends a publication with what else is to be said of it.
pub fn append_publication_extended(
    number: u32,
    publication: &Publication,
    extras: &Extras<'_>,
    out: &mut Vec<u8>,
) {
    let tag = PUBLICATION_EXTENDED | kind_number(publication.kind());
    append_extended(tag, number, publication, extras, (&[], publication.payload()), out);
}

/// Appends a publication as its difference from an earlier one, with what else is to be said of it.
pub fn append_delta_extended(
    number: u32,
    publication: &Publication,
    delta: &DeltaRef<'_>,
    extras: &Extras<'_>,
    out: &mut Vec<u8>,
) {
    let tag = match delta.kind {
        DeltaKind::JsonPatch => DELTA_JSON_PATCH_EXTENDED,
        DeltaKind::Vcdiff | DeltaKind::None => DELTA_VCDIFF_EXTENDED,
    };
    let mut head = Vec::new();
    varint::append(publication.sequence().get() - delta.base.get(), &mut head);
    head.extend_from_slice(&delta.crc.to_be_bytes());
    varint::append(delta.bytes.len() as u64, &mut head);
    let tag = tag | kind_number(publication.kind());
    append_extended(tag, number, publication, extras, (&head, delta.bytes), out);
}

/// Appends the first piece of a publication's payload, with what else is to be said of it.
pub fn append_fragment_extended(
    number: u32,
    publication: &Publication,
    piece: std::ops::Range<usize>,
    extras: &Extras<'_>,
    out: &mut Vec<u8>,
) {
    let mut head = Vec::new();
    varint::append(publication.payload().len() as u64, &mut head);
    varint::append(piece.start as u64, &mut head);
    varint::append(piece.len() as u64, &mut head);
    let tag = FRAGMENT_EXTENDED | kind_number(publication.kind());
    append_extended(tag, number, publication, extras, (&head, &publication.payload()[piece]), out);
}

/// Appends a record with a length, a topic number, a sequence, extras, and the two parts of what follows them.
fn append_extended(
    tag: u8,
    number: u32,
    publication: &Publication,
    extras: &Extras<'_>,
    (head, body): (&[u8], &[u8]),
    out: &mut Vec<u8>,
) {
    let mut first = Vec::new();
    varint::append(u64::from(number), &mut first);
    varint::append(publication.sequence().get(), &mut first);
    extras.append(publication.sequence(), &mut first);
    out.push(tag);
    varint::append((first.len() + head.len() + body.len()) as u64, out);
    for part in [&first[..], head, body] {
        out.extend_from_slice(part);
    }
}

/// Reads the records in one of a server's binary messages. Unknown ones are left out: a later server may send some.
///
/// # Errors
/// The error.
pub fn decode_server_message<'a>(
    message: &'a [u8],
    limits: &Limits,
) -> Result<Vec<ServerRecord<'a>>, BadRecord> {
    let mut rest = message;
    let mut records = Vec::new();
    while let Some((&tag, after)) = rest.split_first() {
        rest = after;
        let bad = || BadRecord { text: format!("record 0x{tag:02x} is unknown or cut short") };
        match tag {
            CONTROL => {
                let bytes = varint::take_bytes(&mut rest).ok_or_else(bad)?;
                let text = simdutf8::basic::from_utf8(bytes).map_err(|_| bad())?;
                records.extend(json::decode_server_message(text, limits)?);
            }
            FIRST_WITH_LENGTH.. => {
                let bytes = varint::take_bytes(&mut rest).ok_or_else(bad)?;
                if is_extended(tag) {
                    records.push(take_extended(tag, bytes).ok_or_else(bad)?);
                }
            }
            _ => records.push(take_record(tag, &mut rest).ok_or_else(bad)?),
        }
    }
    Ok(records)
}

fn take_record<'a>(tag: u8, rest: &mut &'a [u8]) -> Option<ServerRecord<'a>> {
    if tag == PUBLISHED {
        let id = CommandId(varint::take(rest)?);
        let sequence = Sequence::new(varint::take(rest)?)?;
        let epoch = std::str::from_utf8(varint::take_bytes(rest)?).ok()?.to_owned();
        return Some(ServerRecord::Published { id, sequence, epoch });
    }
    let number = u32::try_from(varint::take(rest)?).ok()?;
    let topic = TopicRef::Number(number);
    if matches!(tag & 0xF0, DELTA_VCDIFF | DELTA_JSON_PATCH | FRAGMENT) {
        let sequence = Sequence::new(varint::take(rest)?)?;
        return take_rare_record(tag, topic, sequence, Extras::default(), rest);
    }
    let (mut kind, mut extras) = (kind_of(tag), Extras::default());
    let sequence = match tag & 0xF0 {
        PUBLICATION_SHORT => {
            if kind.is_none() {
                kind = kind_of(tag - AFTER_LAST_TOLD);
                extras.previous = PreviousRef::LastTold;
            }
            let (low, after) = rest.split_first_chunk::<2>()?;
            *rest = after;
            SequenceRef::Low(u16::from_be_bytes(*low))
        }
        PUBLICATION_FULL => SequenceRef::Full(Sequence::new(varint::take(rest)?)?),
        _ => return None,
    };
    let (kind, payload) = (kind?, Cow::Borrowed(varint::take_bytes(rest)?));
    Some(ServerRecord::Publication { topic, sequence, kind, payload, extras })
}

fn is_extended(tag: u8) -> bool {
    let is_json_only = tag & 0xF0 == DELTA_JSON_PATCH_EXTENDED;
    match kind_of(tag) {
        Some(kind) => tag < 0xC0 && (!is_json_only || kind == PayloadKind::Json),
        None => false,
    }
}

/// Reads a record that has extras; `rest` is all of it after its length.
fn take_extended(tag: u8, mut rest: &[u8]) -> Option<ServerRecord<'_>> {
    let topic = TopicRef::Number(u32::try_from(varint::take(&mut rest)?).ok()?);
    let sequence = Sequence::new(varint::take(&mut rest)?)?;
    let extras = Extras::take(sequence, &mut rest)?;
    if tag & 0xF0 == PUBLICATION_EXTENDED {
        let (sequence, kind) = (SequenceRef::Full(sequence), kind_of(tag)?);
        return Some(ServerRecord::Publication {
            topic,
            sequence,
            kind,
            payload: rest.into(),
            extras,
        });
    }
    let older = match tag & 0xF0 {
        DELTA_VCDIFF_EXTENDED => DELTA_VCDIFF,
        DELTA_JSON_PATCH_EXTENDED => DELTA_JSON_PATCH,
        _ => FRAGMENT,
    };
    let record = take_rare_record(older | tag & 0x0F, topic, sequence, extras, &mut rest)?;
    rest.is_empty().then_some(record)
}

/// Reads what a delta or a fragment has after its sequence and its extras.
fn take_rare_record<'a>(
    tag: u8,
    topic: TopicRef<'a>,
    sequence: Sequence,
    extras: Extras<'a>,
    rest: &mut &'a [u8],
) -> Option<ServerRecord<'a>> {
    let kind = kind_of(tag)?;
    if tag & 0xF0 == FRAGMENT {
        let (total, offset) = (varint::take(rest)?, varint::take(rest)?);
        let bytes = varint::take_bytes(rest)?.into();
        return Some(ServerRecord::Fragment {
            topic,
            sequence,
            kind,
            total,
            offset,
            bytes,
            extras,
        });
    }
    let base = Sequence::new(sequence.get().checked_sub(varint::take(rest)?)?)?;
    let (crc, after) = rest.split_first_chunk::<4>()?;
    *rest = after;
    let delta = match tag & 0xF0 {
        DELTA_VCDIFF => DeltaKind::Vcdiff,
        _ => DeltaKind::JsonPatch,
    };
    Some(ServerRecord::Delta {
        topic,
        sequence,
        base,
        kind,
        delta,
        crc: u32::from_be_bytes(*crc),
        bytes: varint::take_bytes(rest)?.into(),
        extras,
    })
}
