//! Sessions of the native dialect.

use std::sync::Arc;

use hub::{Hub, SessionIndex};
use model::{Code, Event, Principal, Refusal};
use protocol::native;

use super::speech::Speech;
use crate::encoder::{Manner, NativeEncoder};

/// A session of the native dialect.
#[derive(Debug)]
pub(crate) struct Native {
    pub session: SessionIndex,
    pub principal: Arc<Principal>,
    pub speech: native::Conversation,
}

/// When to come back after the server closed, in milliseconds.
const RETRY_AFTER_MS: u64 = 1_000;

impl Speech for Native {
    fn say(&mut self, bytes: &[u8], hub: &mut Hub<NativeEncoder>) {
        hub.tell_bytes(self.session, bytes);
    }

    fn is_long_lived(&self) -> bool {
        true
    }

    fn is_deflated(&self, hub: &Hub<NativeEncoder>) -> bool {
        Manner::of(hub.encoding(self.session)).is_deflated
    }

    fn answers_waiting(&self, hub: &Hub<NativeEncoder>) -> usize {
        hub.answers_bytes(self.session) + self.speech.under_way()
    }

    fn is_all_taken(&self, hub: &Hub<NativeEncoder>) -> bool {
        hub.answers_bytes(self.session) == 0
    }

    fn end(&mut self, hub: &mut Hub<NativeEncoder>) {
        hub.end_reading(self.session);
    }

    fn say_last(
        &mut self,
        refusal: Option<&Refusal>,
        transport_end: &[u8],
        hub: &mut Hub<NativeEncoder>,
    ) -> bool {
        // What came after it would look like a hole to a client that was closed for its slowness.
        hub.end_reading(self.session);
        if let Some(refusal) = refusal.cloned() {
            let retry_after_ms = match refusal.code {
                Code::ResponseRolled => 0,
                _ => RETRY_AFTER_MS,
            };
            hub.tell(self.session, &Event::Closing { refusal, retry_after_ms });
        }
        hub.tell_bytes(self.session, transport_end);
        true
    }
}
