//! The native dialect as the hub's encoder.

use std::cell::RefCell;

use hub::{Encoder, EncodingIndex, Form, Record};
use model::Event;
use protocol::native::{Encoding, MessageBuilder};
use protocol::websocket::{Deflater, WINDOW_BITS};

use crate::config::CompressionConfig;

/// How a session is spoken to: its encoding, and whether its messages are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Manner {
    pub encoding: Encoding,
    pub is_deflated: bool,
}

/// In the hub's name for it: beside the number of the encoding.
const DEFLATED: u8 = 0x80;

impl Manner {
    /// The hub's name for it.
    pub(crate) fn index(self) -> EncodingIndex {
        EncodingIndex(self.encoding as u8 | if self.is_deflated { DEFLATED } else { 0 })
    }

    /// What is behind the hub's name.
    pub(crate) fn of(index: EncodingIndex) -> Self {
        let encoding = Encoding::from_number(index.0 & !DEFLATED);
        let encoding = encoding.expect("the hub only knows encodings that it was given");
        Self { encoding, is_deflated: index.0 & DEFLATED != 0 }
    }
}

/// Turns the hub's records into WebSocket messages of the native dialect.
#[derive(Debug)]
pub(crate) struct NativeEncoder {
    deflater: RefCell<Deflater>,
    deflate_bytes_min: usize,
}

/// A message being written, and whether it is to be compressed.
pub(crate) struct OpenMessage {
    builder: MessageBuilder,
    is_deflated: bool,
}

impl NativeEncoder {
    pub(crate) fn new(config: &CompressionConfig) -> Self {
        let deflater = RefCell::new(Deflater::new(config.level, WINDOW_BITS));
        Self { deflater, deflate_bytes_min: config.bytes_min }
    }
}

impl Encoder for NativeEncoder {
    type Message = OpenMessage;

    fn batches(&self, encoding: EncodingIndex) -> bool {
        Manner::of(encoding).encoding.batches()
    }

    fn begin(&self, encoding: EncodingIndex, out: &mut Vec<u8>) -> OpenMessage {
        let Manner { encoding, is_deflated } = Manner::of(encoding);
        OpenMessage { builder: MessageBuilder::begin(encoding, out), is_deflated }
    }

    fn append(&self, message: &mut OpenMessage, record: Record<'_>, out: &mut Vec<u8>) {
        let encoding = message.builder.next_record(out);
        append_record(encoding, record, out);
    }

    fn append_made(&self, message: &mut OpenMessage, made: &[u8], out: &mut Vec<u8>) {
        message.builder.next_record(out);
        out.extend_from_slice(made);
    }

    fn record(&self, encoding: EncodingIndex, record: Record<'_>, out: &mut Vec<u8>) {
        append_record(Manner::of(encoding).encoding, record, out);
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

fn append_record(encoding: Encoding, record: Record<'_>, out: &mut Vec<u8>) {
    match record {
        Record::Publication { topic, number, publication, form } => {
            let is_next = form == Form::Short;
            encoding.append_publication(topic, number, publication, is_next, out);
        }
        Record::Topic(topic) => encoding.append_event(&Event::Topic(topic.clone()), out),
        Record::Event(event) => encoding.append_event(event, out),
    }
}
