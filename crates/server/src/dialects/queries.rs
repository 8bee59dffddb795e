//! WebSockets of applications, each for one device.

use std::sync::Arc;
use std::time::Duration;

use access::ApplicationIndex;
use protocol::device::Queries;

use crate::byte_queue::ByteQueue;

/// A WebSocket for one device.
#[derive(Debug)]
pub(crate) struct DeviceSocket {
    /// `APPLICATION/DEVICE`.
    pub name: Arc<str>,
    pub application: ApplicationIndex,
    pub timeout: Duration,
    pub speech: Queries,
    pub unsent: ByteQueue,
}

impl DeviceSocket {
    /// Bytes of answers that wait for the connection, or for those before them.
    pub(crate) fn answers_bytes(&self) -> usize {
        self.unsent.len() + self.speech.bytes()
    }
}
