//! WebSockets of applications, each for one device.

use std::sync::Arc;
use std::time::Duration;

use access::ApplicationIndex;
use hub::Hub;
use model::Limits;
use protocol::device::Queries;

use super::speech::Speech;
use crate::byte_queue::ByteQueue;
use crate::encoder::NativeEncoder;

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

impl Speech for DeviceSocket {
    fn unsent(&self) -> Option<&ByteQueue> {
        Some(&self.unsent)
    }

    fn unsent_mut(&mut self) -> Option<&mut ByteQueue> {
        Some(&mut self.unsent)
    }

    fn is_long_lived(&self) -> bool {
        true
    }

    fn answers_waiting(&self, _: &Hub<NativeEncoder>) -> usize {
        self.answers_bytes()
    }

    fn may_hear(&self, limits: &Limits) -> bool {
        self.speech.len() < 2 * limits.device_requests_max
    }
}
