//! The wire protocols of servers, as far as the load needs them: one adapter for each kind of server.
//!
//! The driver is the same for all of them: the same topics, payloads, clock and checks.

mod mqtt;
mod nats;
mod plain;
pub(crate) mod tidegate;
pub(crate) mod websocket;

use std::sync::Arc;

/// A message from a server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Input<'a> {
    /// The subscription stands.
    Ready,
    /// A publication's payload.
    Payload(&'a [u8]),
    /// The server says that something was lost.
    Gap,
    /// The numbering's epoch, where the server has such a thing.
    Epoch(&'a str),
    /// These bytes must be answered at once.
    Reply(Vec<u8>),
}

/// Bytes that are not what the server should send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadBytes;

/// How much of the bytes was taken. `skip` counts bytes inside the first unit kept that were
/// taken already (where messages and frames do not end together).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Consumed {
    pub bytes: usize,
    pub skip: u32,
}

/// Topics that a client reads, and how far it has read each: where it resumes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReaderSpec<'a> {
    pub topics: &'a [u32],
    /// The epoch and, for each topic, the number taken last; empty at first.
    pub resume: Option<(&'a str, &'a [(u32, u32)])>,
}

/// One kind of server.
pub(crate) trait Dialect: Send + Sync {
    /// Whether the conversation begins with an HTTP upgrade.
    fn is_websocket(&self) -> bool;

    /// Whether a reader's connection takes no publications.
    fn publishes_beside(&self) -> bool {
        false
    }
    /// The first bytes of a reader.
    fn open_reader(&self, wanted: ReaderSpec<'_>, out: &mut Vec<u8>);
    /// The bytes of a reader after the upgrade. Answers whether the server will confirm.
    fn subscribe(&self, wanted: ReaderSpec<'_>, out: &mut Vec<u8>) -> bool;
    /// The first bytes of a publisher, and those after the upgrade.
    fn open_publisher(&self, out: &mut Vec<u8>);
    /// The bytes of a publisher after the upgrade.
    fn start_publisher(&self, out: &mut Vec<u8>) {
        let _ = out;
    }
    /// Appends publications that are due at the same moment.
    fn publish(&self, publications: &[(u32, Vec<u8>)], out: &mut Vec<u8>);
    /// A request of so many bytes that the server answers itself, where there are requests; and the mark by which
    /// its answer is known.
    fn request(&self, bytes: usize) -> Option<(Vec<u8>, &'static [u8])> {
        let _ = bytes;
        None
    }
    /// Takes what is whole at the front of `bytes`, after the upgrade.
    fn take(
        &self,
        bytes: &[u8],
        skip: u32,
        heard: &mut dyn FnMut(Input<'_>),
    ) -> Result<Consumed, BadBytes>;
}

/// The adapter called `name`.
pub(crate) fn dialect(name: &str) -> Result<Arc<dyn Dialect>, String> {
    Ok(match name {
        "tidegate" => Arc::new(tidegate::Tidegate),
        "nats" => Arc::new(nats::Nats),
        "mosquitto" => Arc::new(mqtt::Mqtt),
        "nchan" => Arc::new(plain::Plain::nchan()),
        "socketify" => Arc::new(plain::Plain::socketify()),
        _ => return Err(format!("there is no adapter `{name}`; there are {}", NAMES.join(", "))),
    })
}

/// All adapters.
pub(crate) const NAMES: [&str; 5] = ["tidegate", "nats", "mosquitto", "nchan", "socketify"];
