//! The native dialect as the hub's encoder.

use std::cell::RefCell;

use hub::{Delta, Encoder, EncodingIndex, Form, Payloads, Progress, Record};
use model::{DeltaKind, Epoch, Event, Features, Publication, TopicName};
use payload::delta;
use payload::filter::{self, Filter, PayloadReader};
use protocol::native::{
    DeltaRef, Encoding, EventPlace, Framing, MessageBuilder, Told, join_epochs,
};
use protocol::websocket::{Deflater, WINDOW_BITS};

use crate::config::{CompressionConfig, Config};
use crate::port::records::Records;

/// How a session is spoken to: its encoding, what stands around its messages, and whether they are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Manner {
    pub encoding: Encoding,
    pub framing: Framing,
    pub is_deflated: bool,
    /// Large payloads come in pieces.
    pub has_fragments: bool,
    /// Subscriptions may have ids, and records have numbers.
    pub has_ids: bool,
}

/// In the hub's name for it: beside the number of the encoding.
const IDS: u16 = 0x100;
const DEFLATED: u16 = 0x80;
const FRAGMENTS: u16 = 0x40;
const CHUNK: u16 = 0x20;
const BARE: u16 = 0x10;
/// What is left is the number of the encoding.
const FLAGS: u16 = IDS | DEFLATED | FRAGMENTS | CHUNK | BARE;

/// The hub's name for how bridges are spoken to: not in bytes. No framing is both of these.
pub(crate) const LOCAL: EncodingIndex = EncodingIndex(CHUNK | BARE);

impl Manner {
    /// The hub's name for it.
    pub(crate) fn index(self) -> EncodingIndex {
        let deflated = if self.is_deflated { DEFLATED } else { 0 };
        let fragments = if self.has_fragments { FRAGMENTS } else { 0 };
        let framing = match self.framing {
            Framing::WebSocket => 0,
            Framing::Chunk => CHUNK,
            Framing::Bare => BARE,
        };
        let ids = if self.has_ids { IDS } else { 0 };
        EncodingIndex(self.encoding as u16 | framing | deflated | fragments | ids)
    }

    /// What publications are told with beyond what every client knows.
    fn features(self) -> Features {
        if self.has_ids { Features::UNNAMED.with(Features::IDS) } else { Features::UNNAMED }
    }

    /// What is behind the hub's name.
    pub(crate) fn of(index: EncodingIndex) -> Self {
        let number = u8::try_from(index.0 & !FLAGS).ok();
        let encoding = number.and_then(Encoding::from_number);
        let encoding = encoding.expect("the hub only knows encodings that it was given");
        let framing = match (index.0 & CHUNK != 0, index.0 & BARE != 0) {
            (true, _) => Framing::Chunk,
            (_, true) => Framing::Bare,
            (false, false) => Framing::WebSocket,
        };
        Self {
            encoding,
            framing,
            is_deflated: index.0 & DEFLATED != 0,
            has_fragments: index.0 & FRAGMENTS != 0,
            has_ids: index.0 & IDS != 0,
        }
    }
}

/// Turns the hub's records into messages of the native dialect.
pub(crate) struct NativeEncoder {
    payloads: PayloadReader,
    deflater: RefCell<Deflater>,
    deflate_bytes_min: usize,
    /// What bridges are to be told.
    records: RefCell<Records>,
    /// The epochs under way, as they stand in the ids of Server-Sent Events.
    epochs: String,
    /// Whether records have something that no client knows, as those of a later version may.
    has_unknown: bool,
}

/// A message being written, and whether it is to be compressed.
pub(crate) enum OpenMessage {
    Bytes {
        builder: MessageBuilder,
        is_deflated: bool,
        features: Features,
    },
    /// To bridges: a name of what they are told.
    Local,
}

impl NativeEncoder {
    /// An encoder of a server that gives positions in `epochs`.
    pub(crate) fn new(config: &Config, epochs: &[Epoch]) -> Self {
        let CompressionConfig { level, bytes_min, .. } = config.compression;
        Self {
            payloads: PayloadReader::default(),
            deflater: RefCell::new(Deflater::new(level, WINDOW_BITS)),
            deflate_bytes_min: bytes_min,
            records: RefCell::default(),
            epochs: join_epochs(epochs),
            has_unknown: config.unknown_events,
        }
    }
}

impl NativeEncoder {
    /// Has ids say these epochs from now on.
    pub(crate) fn set_epochs(&mut self, epochs: &[Epoch]) {
        self.epochs = join_epochs(epochs);
    }

    /// What bridges are to be told.
    pub(crate) fn records_mut(&mut self) -> &mut Records {
        self.records.get_mut()
    }
}

impl Payloads for NativeEncoder {
    type Filter = Option<Filter>;

    fn filter(&self, text: &str) -> Option<Filter> {
        filter::compile(text).ok()
    }

    fn accepts(
        &self,
        filter: &Option<Filter>,
        topic: &TopicName,
        publication: &Publication,
    ) -> bool {
        filter.as_ref().is_some_and(|filter| self.payloads.accepts(filter, topic, publication))
    }

    fn entity(&self, pointer: &str, publication: &Publication) -> Option<Box<str>> {
        payload::entity(pointer, publication)
    }

    fn delta(
        &self,
        kind: DeltaKind,
        base: &Publication,
        next: &Publication,
    ) -> Option<(Box<[u8]>, u32)> {
        delta::between(kind, base, next).map(|made| (made.bytes, made.crc))
    }
}

impl Encoder for NativeEncoder {
    type Message = OpenMessage;

    fn has_ids(&self, encoding: EncodingIndex) -> bool {
        encoding != LOCAL && Manner::of(encoding).has_ids
    }

    fn fragments(&self, encoding: EncodingIndex) -> bool {
        encoding != LOCAL && Manner::of(encoding).has_fragments
    }

    fn batches(&self, encoding: EncodingIndex) -> bool {
        encoding != LOCAL && Manner::of(encoding).encoding.batches()
    }

    fn begin(&self, encoding: EncodingIndex, out: &mut Vec<u8>) -> OpenMessage {
        if encoding == LOCAL {
            return OpenMessage::Local;
        }
        let manner = Manner::of(encoding);
        let Manner { encoding, framing, is_deflated, .. } = manner;
        let builder = MessageBuilder::begin(encoding, framing, out);
        OpenMessage::Bytes { builder, is_deflated, features: manner.features() }
    }

    fn append(
        &self,
        message: &mut OpenMessage,
        record: Record<'_>,
        progress: Progress,
        out: &mut Vec<u8>,
    ) {
        let OpenMessage::Bytes { builder, is_deflated, features } = message else {
            return self.records.borrow_mut().append(record, out);
        };
        let encoding = builder.next_record(out);
        if let Record::Publication { compress, .. }
        | Record::Delta { compress, .. }
        | Record::Fragment { compress, .. } = record
        {
            *is_deflated &= compress;
        }
        self.append_record(encoding, *features, record, progress, out);
    }

    fn append_made(
        &self,
        message: &mut OpenMessage,
        made: &[u8],
        compress: bool,
        out: &mut Vec<u8>,
    ) {
        if let OpenMessage::Bytes { builder, is_deflated, .. } = message {
            *is_deflated &= compress;
            builder.next_record(out);
        }
        out.extend_from_slice(made);
    }

    fn record(
        &self,
        encoding: EncodingIndex,
        record: Record<'_>,
        progress: Progress,
        out: &mut Vec<u8>,
    ) {
        if encoding == LOCAL {
            return self.records.borrow_mut().append(record, out);
        }
        let manner = Manner::of(encoding);
        self.append_record(manner.encoding, manner.features(), record, progress, out);
    }

    fn finish(&self, message: OpenMessage, out: &mut Vec<u8>) {
        let OpenMessage::Bytes { builder, is_deflated, .. } = message else { return };
        if is_deflated {
            let mut deflater = self.deflater.borrow_mut();
            builder.finish_deflated(&mut deflater, self.deflate_bytes_min, out);
        } else {
            builder.finish(out);
        }
    }
}

impl NativeEncoder {
    fn append_record(
        &self,
        encoding: Encoding,
        features: Features,
        record: Record<'_>,
        progress: Progress,
        out: &mut Vec<u8>,
    ) {
        let start = encoding.begin_record(name_of(record), out);
        append_json_or_binary(encoding, features, record, out);
        if self.has_unknown {
            append_unknown(encoding, out);
        }
        let place = match encoding {
            Encoding::Events => place_in_topic(record, progress),
            Encoding::EventsOfMany => place_in_many(record, progress),
            _ => None,
        };
        encoding.end_record(start, place.as_ref(), &self.epochs, out);
    }
}

/// Appends to the record at the end of `out` what no client knows: a member in JSON, a record of its own in binary.
fn append_unknown(encoding: Encoding, out: &mut Vec<u8>) {
    if encoding.is_binary() {
        out.extend_from_slice(&[0xF1, 3, 0x11, 0x00, 0xFF]);
    } else if out.pop_if(|last| *last == b'}').is_some() {
        out.extend_from_slice(br#","from_later":{"type":["gap",null]}}"#);
    }
}

/// What the event of a record is named; publications are what readers wait for, and have no name.
fn name_of(record: Record<'_>) -> Option<&'static str> {
    match record {
        Record::Publication { .. } => None,
        Record::Delta { .. } => Some("delta"),
        Record::Fragment { .. } => Some("fragment"),
        Record::Topic(_) => Some("topic"),
        Record::Event(event) => Some(event.name()),
    }
}

/// The topic and publication of which a record is all.
fn told_by(record: Record<'_>) -> Option<(&TopicName, &Publication)> {
    match record {
        Record::Publication { topic, publication, .. }
        | Record::Delta { topic, publication, .. } => Some((topic, publication)),
        Record::Fragment { .. } | Record::Topic(_) | Record::Event(_) => None,
    }
}

/// Where a reader of one topic is after a record.
fn place_in_topic(record: Record<'_>, progress: Progress) -> Option<EventPlace<'_>> {
    let sequence = match record {
        _ if progress == Progress::Unknown => return None,
        Record::Event(Event::Subscribed(subscribed)) => subscribed.topics.first()?.start,
        _ => told_by(record)?.1.sequence(),
    };
    Some(EventPlace::Sequence(sequence))
}

/// Where a reader of several topics is after a record.
fn place_in_many(record: Record<'_>, progress: Progress) -> Option<EventPlace<'_>> {
    match progress {
        Progress::Unknown | Progress::InTopic => None,
        Progress::At(unix_ms) => Some(EventPlace::UnixMs(unix_ms)),
        Progress::InOrder => Some(EventPlace::UnixMs(told_by(record)?.1.unix_ms())),
        Progress::Afresh { has_before_ms, unread_before_ms, is_start_unread } => {
            let (topic, publication) = told_by(record)?;
            let (topic, sequence) = (topic.as_str().into(), publication.sequence());
            Some(EventPlace::Afresh {
                topic,
                sequence,
                has_before_ms,
                unread_before_ms,
                is_start_unread,
            })
        }
    }
}

fn append_json_or_binary(
    encoding: Encoding,
    features: Features,
    record: Record<'_>,
    out: &mut Vec<u8>,
) {
    let told = |stamps, is_next| Told { features, stamps, is_next };
    match record {
        Record::Publication { topic, number, publication, form, stamps, .. } => {
            let told = told(stamps, form == Form::Short);
            encoding.append_publication(topic, number, publication, told, out);
        }
        Record::Delta { topic, number, publication, delta, stamps, .. } => {
            let Delta { base, kind, bytes, crc } = delta;
            let delta = DeltaRef { base: *base, kind: *kind, crc: *crc, bytes };
            let told = told(stamps, false);
            encoding.append_delta(topic, number, publication, &delta, told, out);
        }
        Record::Fragment { topic, number, publication, piece, stamps, .. } => {
            let piece = piece.start..piece.end;
            let told = told(stamps, false);
            encoding.append_fragment(topic, number, publication, piece, told, out);
        }
        Record::Topic(topic) => encoding.append_event(&Event::Topic(topic.clone()), out),
        Record::Event(event) => encoding.append_event(event, out),
    }
}
