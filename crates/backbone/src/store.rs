//! The disk as the durable backbone sees it, so that the simulator can be one.

use std::fmt;

use model::{Publication, Sequence, TopicName};

use crate::{ReadWanted, Record};

/// A log of records that survives the process. One shard's hold on it.
///
/// Records are written in the order in which they are handed over. Their outcomes arrive later,
/// in that order, through [`crate::DiskBackbone::handle_written`].
pub trait Store: Send {
    /// Hands over a record, to be durable soon.
    ///
    /// # Errors
    /// The store is behind: too many records wait. Nothing was taken.
    fn write(&mut self, record: Record) -> Result<(), Record>;

    /// A number for a topic that the store does not have yet, never given before.
    fn new_topic_number(&mut self) -> u64;

    /// Asks for records of a topic. They arrive through whoever owns the store, with `ticket`.
    fn read(&mut self, ticket: u64, topic_number: u64, wanted: ReadWanted);

    /// Asks for a new epoch: an older copy of the store was put back. It begins once, whoever asks how often; all shards hear of it
    /// through whoever owns the store, in order with what became of their records.
    fn begin_epoch(&mut self);
}

impl Store for Box<dyn Store> {
    fn write(&mut self, record: Record) -> Result<(), Record> {
        (**self).write(record)
    }

    fn new_topic_number(&mut self) -> u64 {
        (**self).new_topic_number()
    }

    fn read(&mut self, ticket: u64, topic_number: u64, wanted: ReadWanted) {
        (**self).read(ticket, topic_number, wanted);
    }

    fn begin_epoch(&mut self) {
        (**self).begin_epoch();
    }
}

/// The outcomes of the oldest records handed over that were not answered yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// How many.
    pub count: usize,
    /// Whether they are durable. After an error nothing more is ever written by this process.
    pub result: Result<(), StoreFault>,
}

/// Why the store does not write any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreFault {
    /// The failure and its reason.
    pub text: String,
}

impl fmt::Display for StoreFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for StoreFault {}

/// A topic as it was found when the store was opened.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredTopic {
    /// Its name.
    pub topic: TopicName,
    /// Its number in the store.
    pub number: u64,
    /// The newest sequence, also if that record is damaged.
    pub head: Sequence,
    /// When the newest that can be read was published (milliseconds since 1970).
    pub unix_ms: u64,
    /// The newest publications that memory is to hold, oldest first, without holes.
    pub newest: Vec<Publication>,
    /// Idempotency keys within their window: key, sequence, when.
    pub keys: Vec<(Box<str>, Sequence, u64)>,
}
