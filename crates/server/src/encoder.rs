//! The native dialect as the hub's encoder.

use std::cell::RefCell;

use hub::{Delta, Encoder, EncodingIndex, Form, Payloads, Record};
use model::{DeltaKind, Epoch, Event, Publication, TopicName};
use protocol::native::{DeltaRef, Encoding, Framing, MessageBuilder, RecordHead, join_epochs};
use protocol::websocket::{Deflater, WINDOW_BITS};

use crate::config::CompressionConfig;
use crate::payloads::{Filter, PayloadReader, compile, difference, entity};

/// How a session is spoken to: its encoding, what stands around its messages, and whether they are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Manner {
    pub encoding: Encoding,
    pub framing: Framing,
    pub is_deflated: bool,
    /// Large payloads come in pieces.
    pub has_fragments: bool,
}

/// In the hub's name for it: beside the number of the encoding.
const DEFLATED: u8 = 0x80;
const FRAGMENTS: u8 = 0x40;
const CHUNK: u8 = 0x20;
const BARE: u8 = 0x10;

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
        EncodingIndex(self.encoding as u8 | framing | deflated | fragments)
    }

    /// What is behind the hub's name.
    pub(crate) fn of(index: EncodingIndex) -> Self {
        let encoding = Encoding::from_number(index.0 & !(DEFLATED | FRAGMENTS | CHUNK | BARE));
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
        }
    }
}

/// Turns the hub's records into messages of the native dialect.
pub(crate) struct NativeEncoder {
    payloads: PayloadReader,
    deflater: RefCell<Deflater>,
    deflate_bytes_min: usize,
    /// The epochs under way, as they stand in the ids of Server-Sent Events.
    epochs: String,
}

/// A message being written, and whether it is to be compressed.
pub(crate) struct OpenMessage {
    builder: MessageBuilder,
    is_deflated: bool,
}

impl NativeEncoder {
    /// An encoder of a server that gives positions in `epochs`.
    pub(crate) fn new(config: &CompressionConfig, epochs: &[Epoch]) -> Self {
        let deflater = RefCell::new(Deflater::new(config.level, WINDOW_BITS));
        let (payloads, epochs) = (PayloadReader::new(), join_epochs(epochs));
        Self { payloads, deflater, deflate_bytes_min: config.bytes_min, epochs }
    }
}

impl Payloads for NativeEncoder {
    type Filter = Option<Filter>;

    fn filter(&self, text: &str) -> Option<Filter> {
        compile(text).ok()
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
        entity(pointer, publication)
    }

    fn delta(
        &self,
        kind: DeltaKind,
        base: &Publication,
        next: &Publication,
    ) -> Option<(Box<[u8]>, u32)> {
        difference(kind, base, next).map(|made| (made.bytes, made.crc))
    }
}

impl Encoder for NativeEncoder {
    type Message = OpenMessage;

    fn fragments(&self, encoding: EncodingIndex) -> bool {
        Manner::of(encoding).has_fragments
    }

    fn batches(&self, encoding: EncodingIndex) -> bool {
        Manner::of(encoding).encoding.batches()
    }

    fn begin(&self, encoding: EncodingIndex, out: &mut Vec<u8>) -> OpenMessage {
        let Manner { encoding, framing, is_deflated, .. } = Manner::of(encoding);
        OpenMessage { builder: MessageBuilder::begin(encoding, framing, out), is_deflated }
    }

    fn append(&self, message: &mut OpenMessage, record: Record<'_>, out: &mut Vec<u8>) {
        let encoding = message.builder.next_record(out);
        if let Record::Publication { compress, .. }
        | Record::Delta { compress, .. }
        | Record::Fragment { compress, .. } = record
        {
            message.is_deflated &= compress;
        }
        self.append_record(encoding, record, out);
    }

    fn append_made(
        &self,
        message: &mut OpenMessage,
        made: &[u8],
        compress: bool,
        out: &mut Vec<u8>,
    ) {
        message.is_deflated &= compress;
        message.builder.next_record(out);
        out.extend_from_slice(made);
    }

    fn record(&self, encoding: EncodingIndex, record: Record<'_>, out: &mut Vec<u8>) {
        self.append_record(Manner::of(encoding).encoding, record, out);
    }

    fn finish(&self, message: OpenMessage, out: &mut Vec<u8>) {
        let OpenMessage { builder, is_deflated } = message;
        if is_deflated {
            let mut deflater = self.deflater.borrow_mut();
            builder.finish_deflated(&mut deflater, self.deflate_bytes_min, out);
        } else {
            builder.finish(out);
        }
    }
}

impl NativeEncoder {
    fn append_record(&self, encoding: Encoding, record: Record<'_>, out: &mut Vec<u8>) {
        let start = encoding.begin_record(head_of(record), &self.epochs, out);
        append_json_or_binary(encoding, record, out);
        encoding.end_record(start, out);
    }
}

fn head_of(record: Record<'_>) -> RecordHead<'_> {
    let place = |publication: &Publication| (publication.sequence(), publication.unix_ms());
    match record {
        Record::Publication { publication, .. } => {
            RecordHead::Publication(publication.sequence(), publication.unix_ms())
        }
        Record::Delta { publication, .. } => RecordHead::Other("delta", Some(place(publication))),
        Record::Fragment { publication, piece, .. } => {
            let is_last = piece.end == publication.payload().len();
            RecordHead::Other("fragment", is_last.then(|| place(publication)))
        }
        Record::Topic(_) => RecordHead::Other("topic", None),
        Record::Event(event) => RecordHead::Other(event.name(), None),
    }
}

fn append_json_or_binary(encoding: Encoding, record: Record<'_>, out: &mut Vec<u8>) {
    match record {
        Record::Publication { topic, number, publication, form, .. } => {
            let is_next = form == Form::Short;
            encoding.append_publication(topic, number, publication, is_next, out);
        }
        Record::Delta { topic, number, publication, delta, .. } => {
            let Delta { base, kind, bytes, crc } = delta;
            let delta = DeltaRef { base: *base, kind: *kind, crc: *crc, bytes };
            encoding.append_delta(topic, number, publication, &delta, out);
        }
        Record::Fragment { topic, number, publication, piece, .. } => {
            let piece = piece.start..piece.end;
            encoding.append_fragment(topic, number, publication, piece, out);
        }
        Record::Topic(topic) => encoding.append_event(&Event::Topic(topic.clone()), out),
        Record::Event(event) => encoding.append_event(event, out),
    }
}
