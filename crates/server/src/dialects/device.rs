//! Attached devices that have a connection of their own.

use std::sync::Arc;

use access::ApplicationIndex;
use hub::Hub;
use model::{Limits, Refusal};
use protocol::device;
use protocol::http::MessageFraming;

use super::speech::{Overdue, Quiet, Speech};
use crate::byte_queue::ByteQueue;
use crate::encoder::NativeEncoder;

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

impl Speech for Attached {
    fn unsent(&self) -> Option<&ByteQueue> {
        Some(&self.unsent)
    }

    fn unsent_mut(&mut self) -> Option<&mut ByteQueue> {
        Some(&mut self.unsent)
    }

    fn is_long_lived(&self) -> bool {
        true
    }

    fn has_open_body(&self) -> bool {
        true
    }

    fn say_last(
        &mut self,
        refusal: Option<&Refusal>,
        _: &[u8],
        _: &mut Hub<NativeEncoder>,
    ) -> bool {
        self.speech.close(refusal, self.unsent.end_mut())
    }

    fn is_closing(&self) -> bool {
        self.speech.is_closing()
    }

    fn overdue(&self, quiet: Quiet, _: &Limits, _: Option<Overdue>) -> Option<Overdue> {
        let is_silent = !self.speech.is_closing() && quiet.lasts > self.speech.silence();
        is_silent.then_some(Overdue::Silent)
    }

    fn device(&self) -> Option<&str> {
        Some(&self.name)
    }
}
