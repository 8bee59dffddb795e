//! The native dialect as the hub's encoder.

use hub::{Encoder, EncodingIndex, Form, Record};
use model::Event;
use protocol::native::{Encoding, MessageBuilder};

/// Turns the hub's records into WebSocket messages of the native dialect.
#[derive(Clone, Copy, Debug)]
pub struct NativeEncoder;

/// The hub's name for an encoding.
pub fn index_of(encoding: Encoding) -> EncodingIndex {
    EncodingIndex(encoding as u8)
}

/// The encoding behind the hub's name.
pub fn encoding_of(index: EncodingIndex) -> Encoding {
    Encoding::from_number(index.0).expect("the hub only knows encodings that it was given")
}

impl Encoder for NativeEncoder {
    type Message = MessageBuilder;

    fn batches(&self, encoding: EncodingIndex) -> bool {
        encoding_of(encoding).batches()
    }

    fn begin(&self, encoding: EncodingIndex, out: &mut Vec<u8>) -> MessageBuilder {
        MessageBuilder::begin(encoding_of(encoding), out)
    }

    fn append(&self, message: &mut MessageBuilder, record: Record<'_>, out: &mut Vec<u8>) {
        let encoding = message.next_record(out);
        append_record(encoding, record, out);
    }

    fn append_made(&self, message: &mut MessageBuilder, made: &[u8], out: &mut Vec<u8>) {
        message.next_record(out);
        out.extend_from_slice(made);
    }

    fn record(&self, encoding: EncodingIndex, record: Record<'_>, out: &mut Vec<u8>) {
        append_record(encoding_of(encoding), record, out);
    }

    fn finish(&self, message: MessageBuilder, out: &mut Vec<u8>) {
        message.finish(out);
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
