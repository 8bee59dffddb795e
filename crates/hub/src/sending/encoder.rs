//! What the hub needs of the outside to turn records into bytes and to get them sent.

use model::{Event, Publication, Stamps, SubscribedTopic, TopicName};

use crate::audiences::delta::Delta;
use crate::sending::payloads::Payloads;
use crate::tables::connections::ConnectionId;

/// Which of the server's encodings a session speaks. The hub only compares it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EncodingIndex(pub u16);

/// Whether a publication's sequence follows from what the reader knows already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// The reader took the publication before it in this topic last.
    Short,
    /// It must be told in full.
    Full,
}

/// Some bytes of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The first.
    pub start: usize,
    /// The one after the last.
    pub end: usize,
}

/// One thing to tell a session.
#[derive(Clone, Copy, Debug)]
pub enum Record<'a> {
    /// A publication of a topic that it reads.
    Publication {
        /// The topic.
        topic: &'a TopicName,
        /// The topic's wire number.
        number: u32,
        /// What was published.
        publication: &'a Publication,
        /// How to tell the sequence.
        form: Form,
        /// Whether its topic's policy lets it be compressed.
        compress: bool,
        /// The stamps that its reader asked for.
        stamps: Stamps,
    },
    /// The same, told as its difference from an earlier one that the reader has.
    Delta {
        /// The topic.
        topic: &'a TopicName,
        /// The topic's wire number.
        number: u32,
        /// What was published.
        publication: &'a Publication,
        /// The difference.
        delta: &'a Delta,
        /// Whether its topic's policy lets it be compressed.
        compress: bool,
        /// The stamps that its reader asked for.
        stamps: Stamps,
    },
    /// A piece of a publication whose payload is too large for one message.
    Fragment {
        /// The topic.
        topic: &'a TopicName,
        /// The topic's wire number.
        number: u32,
        /// What was published.
        publication: &'a Publication,
        /// Which bytes of the payload.
        piece: Piece,
        /// Whether its topic's policy lets it be compressed.
        compress: bool,
        /// The stamps that its reader asked for.
        stamps: Stamps,
    },
    /// A topic that one of its patterns selects.
    Topic(&'a SubscribedTopic),
    /// Anything else.
    Event(&'a Event),
}

/// From where a reader that is cut off after a record could go on, if it keeps no positions ([`model::Resume`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Progress {
    /// From nowhere that it could be told.
    #[default]
    Unknown,
    /// From here in this topic. Of others it may lack something.
    InTopic,
    /// From here: it has everything that happened before.
    InOrder,
    /// The same, and nothing older than this moment is on its way, in milliseconds since 1970.
    At(u64),
    /// From here in the reading of its topics afresh, in order of name.
    Afresh {
        /// Of the topics with lesser names it has everything before this.
        has_before_ms: u64,
        /// Of those with greater names it has everything before this ...
        unread_before_ms: u64,
        /// ... or nothing, and they start where it asked for.
        is_start_unread: bool,
    },
}

/// Turns records into messages. It holds nothing that differs between sessions of one encoding.
pub trait Encoder: Payloads {
    /// An open message.
    type Message;

    /// Whether a message may hold several records.
    fn batches(&self, encoding: EncodingIndex) -> bool;
    /// Whether sessions may name their subscriptions, and are told numbers that tell them apart.
    fn has_ids(&self, encoding: EncodingIndex) -> bool;
    /// Whether large payloads are told in pieces.
    fn fragments(&self, encoding: EncodingIndex) -> bool;
    /// Opens a message at the end of `out`.
    fn begin(&self, encoding: EncodingIndex, out: &mut Vec<u8>) -> Self::Message;
    /// Appends a record to the open message.
    fn append(
        &self,
        message: &mut Self::Message,
        record: Record<'_>,
        progress: Progress,
        out: &mut Vec<u8>,
    );
    /// Appends a record that [`Encoder::record`] made for the same encoding.
    fn append_made(
        &self,
        message: &mut Self::Message,
        made: &[u8],
        compress: bool,
        out: &mut Vec<u8>,
    );
    /// The bytes of a record without any message around it.
    fn record(
        &self,
        encoding: EncodingIndex,
        record: Record<'_>,
        progress: Progress,
        out: &mut Vec<u8>,
    );
    /// Closes the message.
    fn finish(&self, message: Self::Message, out: &mut Vec<u8>);
}

/// What became of bytes handed to a session's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a connection may take less than it is given"]
pub enum Sent {
    /// So many were taken. Fewer than given: no room until the hub hears `handle_writable`.
    Taken(usize),
    /// The connection is gone; the caller will close the session.
    Closed,
}

/// Where a flush sends to.
pub trait Outlet {
    /// Sends as much of `bytes` as the connection named `link` takes, in one go.
    fn send(&mut self, link: ConnectionId, bytes: &[u8]) -> Sent;
}
