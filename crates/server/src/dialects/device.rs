//! Attached devices that have a connection of their own.

use std::sync::Arc;

use access::ApplicationIndex;
use protocol::device;
use protocol::http::MessageFraming;

use crate::byte_queue::ByteQueue;

/// The connection of an attached device.
#[derive(Debug)]
pub(crate) struct Attached {
    /// `APPLICATION/DEVICE`.
    pub name: Arc<str>,
    pub application: ApplicationIndex,
    pub speech: device::Conversation,
    /// What its connection did not take yet.
    pub unsent: ByteQueue,
}

impl Attached {
    pub(crate) fn new(
        name: Arc<str>,
        application: ApplicationIndex,
        framing: MessageFraming,
        heartbeat_ms: u64,
    ) -> Self {
        let speech = device::Conversation::new(framing, heartbeat_ms);
        Self { name, application, speech, unsent: ByteQueue::default() }
    }
}
