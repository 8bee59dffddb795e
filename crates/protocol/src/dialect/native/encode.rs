//! Whole WebSocket messages of one or more records, in any of the dialect's encodings.

use model::{Event, Features, Publication, Stamps, TopicName};

use super::{DeltaRef, Extras, PreviousRef, binary, json};
use crate::http::ChunkWriter;
use crate::websocket::{Deflater, MessageWriter, Opcode};

/// How a session is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Encoding {
    /// JSON, one record a message.
    Json = 0,
    /// JSON, arrays of records.
    JsonBatch = 1,
    /// Binary, one record a message.
    Binary = 2,
    /// Binary, several records a message.
    BinaryBatch = 3,
    /// JSON, a line for each record.
    Lines = 4,
    /// JSON in Server-Sent Events of one topic: the id is the place in it.
    Events = 5,
    /// JSON in Server-Sent Events of several topics: the id is a time, or a place in reading them afresh.
    EventsOfMany = 6,
    /// Binary with the records that say more of a publication, one record a message.
    BinaryExtended = 7,
    /// The same, several records a message.
    BinaryExtendedBatch = 8,
}

impl Encoding {
    /// The encoding with this number.
    pub fn from_number(number: u8) -> Option<Self> {
        const ALL: [Encoding; 9] = [
            Encoding::Json,
            Encoding::JsonBatch,
            Encoding::Binary,
            Encoding::BinaryBatch,
            Encoding::Lines,
            Encoding::Events,
            Encoding::EventsOfMany,
            Encoding::BinaryExtended,
            Encoding::BinaryExtendedBatch,
        ];
        ALL.get(usize::from(number)).copied()
    }

    /// Whether a message may hold several records.
    pub fn batches(self) -> bool {
        !matches!(self, Self::Json | Self::Binary | Self::BinaryExtended)
    }

    /// The same with batches, or without.
    pub fn with_batch(self, batch: bool) -> Self {
        match (self, batch) {
            (Self::Json | Self::JsonBatch, false) => Self::Json,
            (Self::Json | Self::JsonBatch, true) => Self::JsonBatch,
            (Self::Binary | Self::BinaryBatch, false) => Self::Binary,
            (Self::Binary | Self::BinaryBatch, true) => Self::BinaryBatch,
            (Self::BinaryExtended | Self::BinaryExtendedBatch, false) => Self::BinaryExtended,
            (Self::BinaryExtended | Self::BinaryExtendedBatch, true) => Self::BinaryExtendedBatch,
            (Self::Lines | Self::Events | Self::EventsOfMany, _) => self,
        }
    }

    /// The same for a peer that reads extended records, where there are such.
    #[must_use]
    pub fn extended(self) -> Self {
        match self {
            Self::Binary => Self::BinaryExtended,
            Self::BinaryBatch => Self::BinaryExtendedBatch,
            other => other,
        }
    }

    /// Whether it is one of the binary ones.
    pub fn is_binary(self) -> bool {
        matches!(self, Self::Binary | Self::BinaryBatch) || self.is_extended()
    }

    fn is_extended(self) -> bool {
        matches!(self, Self::BinaryExtended | Self::BinaryExtendedBatch)
    }

    /// Appends an event's record, without any message around it.
    pub fn append_event(self, event: &Event, out: &mut Vec<u8>) {
        match self.is_binary() {
            true => binary::append_event(event, out),
            false => json::append_event(event, out),
        }
    }

    /// Appends a publication's record, without any message around it.
    pub fn append_publication(
        self,
        topic: &TopicName,
        number: u32,
        publication: &Publication,
        told: Told,
        out: &mut Vec<u8>,
    ) {
        let extras = Extras::of(publication, told.stamps);
        if !self.is_binary() {
            let number = told.number(number);
            return json::append_publication(topic, number, publication, &extras, out);
        }
        let is_one_more = extras.previous == PreviousRef::OneBefore;
        match self.is_extended() && !extras.is_empty() {
            true if told.is_next && extras.is_short(publication) => {
                binary::append_publication_next(number, publication, out);
            }
            true => binary::append_publication_extended(number, publication, &extras, out),
            false if told.is_next && is_one_more => {
                binary::append_publication_short(number, publication, out);
            }
            false => binary::append_publication_full(number, publication, out),
        }
    }
}

impl Encoding {
    /// Appends a publication as its difference from an earlier one, without any message around it.
    pub fn append_delta(
        self,
        topic: &TopicName,
        number: u32,
        publication: &Publication,
        delta: &DeltaRef<'_>,
        told: Told,
        out: &mut Vec<u8>,
    ) {
        let extras = Extras::of(publication, told.stamps);
        if self.is_extended() && !extras.is_empty() {
            return binary::append_delta_extended(number, publication, delta, &extras, out);
        }
        match self.is_binary() {
            true => binary::append_delta(number, publication, delta, out),
            false => {
                json::append_delta(topic, told.number(number), publication, delta, &extras, out);
            }
        }
    }

    /// Appends a piece of a publication's payload, without any message around it.
    pub fn append_fragment(
        self,
        topic: &TopicName,
        number: u32,
        publication: &Publication,
        piece: std::ops::Range<usize>,
        told: Told,
        out: &mut Vec<u8>,
    ) {
        let extras = Extras::of(publication, told.stamps);
        if self.is_extended() && piece.start == 0 && !extras.is_empty() {
            return binary::append_fragment_extended(number, publication, piece, &extras, out);
        }
        match self.is_binary() {
            true => binary::append_fragment(number, publication, piece, out),
            false => {
                let number = told.number(number);
                json::append_fragment(topic, number, publication, piece, &extras, out);
            }
        }
    }
}

/// How a publication is told.
#[derive(Clone, Copy, Debug, Default)]
pub struct Told {
    /// The reader was told what is before it in its topic last.
    pub is_next: bool,
    /// The stamps that the reader asked for.
    pub stamps: Stamps,
    /// The features of both sides.
    pub features: Features,
}

impl Told {
    /// The number of what is read, if a session is told it in JSON.
    fn number(self, number: u32) -> Option<u32> {
        self.features.has(Features::IDS).then_some(number)
    }
}

/// The framing of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// A WebSocket frame.
    #[default]
    WebSocket,
    /// A chunk of an HTTP response. RFC 9112, section 7.1.
    Chunk,
    /// Nothing: records say themselves where they end.
    Bare,
}

/// A message being written at the end of a buffer.
#[derive(Debug)]
pub struct MessageBuilder {
    encoding: Encoding,
    frame: Frame,
    is_empty: bool,
}

#[derive(Debug)]
enum Frame {
    WebSocket(MessageWriter),
    Chunk(ChunkWriter),
    Bare,
}

impl MessageBuilder {
    /// Opens a message.
    pub fn begin(encoding: Encoding, framing: Framing, out: &mut Vec<u8>) -> Self {
        let frame = match framing {
            Framing::WebSocket => Frame::WebSocket(MessageWriter::begin(out)),
            Framing::Chunk => Frame::Chunk(ChunkWriter::begin(out)),
            Framing::Bare => Frame::Bare,
        };
        if encoding == Encoding::JsonBatch {
            out.push(b'[');
        }
        Self { encoding, frame, is_empty: true }
    }

    /// Makes room for the next record, which is then appended to `out` in this encoding.
    pub fn next_record(&mut self, out: &mut Vec<u8>) -> Encoding {
        if !self.is_empty && self.encoding == Encoding::JsonBatch {
            out.push(b',');
        }
        self.is_empty = false;
        self.encoding
    }

    /// Closes the message.
    pub fn finish(self, out: &mut Vec<u8>) {
        let opcode = self.end_payload(out);
        match self.frame {
            Frame::WebSocket(writer) => writer.finish(opcode, out),
            Frame::Chunk(writer) => writer.finish(out),
            Frame::Bare => {}
        }
    }

    /// The same, compressed if it is a WebSocket message whose payload has at least `bytes_min`.
    pub fn finish_deflated(self, deflater: &mut Deflater, bytes_min: usize, out: &mut Vec<u8>) {
        match self.frame {
            Frame::WebSocket(_) => {
                let opcode = self.end_payload(out);
                let Frame::WebSocket(writer) = self.frame else { return };
                if writer.payload_len(out) < bytes_min {
                    writer.finish(opcode, out);
                } else {
                    writer.finish_deflated(opcode, deflater, out);
                }
            }
            Frame::Chunk(_) | Frame::Bare => self.finish(out),
        }
    }

    fn end_payload(&self, out: &mut Vec<u8>) -> Opcode {
        if self.encoding == Encoding::JsonBatch {
            out.push(b']');
        }
        if self.encoding.is_binary() { Opcode::Binary } else { Opcode::Text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_arrays_in_json() {
        let mut out = Vec::new();
        let mut message = MessageBuilder::begin(Encoding::JsonBatch, Framing::WebSocket, &mut out);
        for _ in 0..2 {
            message.next_record(&mut out).append_event(&Event::Pong { id: None }, &mut out);
        }
        message.finish(&mut out);
        assert_eq!(&out[2..], br#"[{"type":"pong"},{"type":"pong"}]"#);
        assert_eq!(&out[..2], [0x81, 33]);
    }
}
