//! What a shard asks of a conversation, whatever is spoken.

use std::time::Duration;

use hub::Hub;
use model::{Limits, Refusal};

use crate::byte_queue::ByteQueue;
use crate::encoder::NativeEncoder;

/// The silence on a connection, as one that is looked at about once a second knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quiet {
    /// The time now, in whole seconds.
    pub now: u32,
    /// How long nothing was heard; for requests, how long they take.
    pub lasts: Duration,
}

impl Quiet {
    /// How long ago something was that happened at `at`.
    pub(crate) fn since(&self, at: u32) -> Duration {
        Duration::from_secs(u64::from(self.now.saturating_sub(at)))
    }
}

/// What is to be done about a connection because time has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overdue {
    /// A request takes too long to arrive.
    Slow,
    /// Nothing is asked, or an answer is not taken.
    Idle,
    /// The peer is asked whether it is there.
    Ping,
    /// The peer is not there.
    Silent,
    /// A message takes too long to arrive.
    Trickles,
    /// A response that goes on is to give a sign of life.
    KeepAlive,
    /// A response went on for as long as one may.
    Roll,
}

/// The state of a conversation. What is not said otherwise holds for requests over HTTP.
pub(crate) trait Speech {
    /// Bytes that the socket did not take yet, where they are kept here: the hub keeps those of its sessions, and requests
    /// send theirs themselves.
    fn unsent(&self) -> Option<&ByteQueue> {
        None
    }

    /// Mutable access to them.
    fn unsent_mut(&mut self) -> Option<&mut ByteQueue> {
        None
    }

    /// Says something behind what was said before.
    fn say(&mut self, bytes: &[u8], _: &mut Hub<NativeEncoder>) {
        if let Some(unsent) = self.unsent_mut() {
            unsent.append(bytes);
        }
    }

    /// Whether it may stand for days: such ones are looked at in turn, not all at once.
    fn is_long_lived(&self) -> bool {
        false
    }

    /// Whether messages follow in the body of a request, instead of a body that is taken as a whole.
    fn has_open_body(&self) -> bool {
        false
    }

    /// Whether the messages of its WebSocket are compressed.
    fn is_deflated(&self, _: &Hub<NativeEncoder>) -> bool {
        false
    }

    /// Bytes of answers that wait for the connection, and that those under way may have.
    fn answers_waiting(&self, _: &Hub<NativeEncoder>) -> usize {
        0
    }

    /// Whether it may hear more, beside the bytes that wait.
    fn may_hear(&self, _: &Limits) -> bool {
        true
    }

    /// Whether the connection took all that was said.
    fn is_all_taken(&self, _: &Hub<NativeEncoder>) -> bool {
        self.unsent().is_none_or(ByteQueue::is_empty)
    }

    /// Hears no more, and is told no more than what was said already.
    fn end(&mut self, _: &mut Hub<NativeEncoder>) {}

    /// Says why it ends, if there is a reason, then what ends its transport; answers false where nobody is told.
    fn say_last(
        &mut self,
        _refusal: Option<&Refusal>,
        transport_end: &[u8],
        hub: &mut Hub<NativeEncoder>,
    ) -> bool {
        self.say(transport_end, hub);
        self.unsent().is_some()
    }

    /// Whether its last words were said, where its transport does not know.
    fn is_closing(&self) -> bool {
        false
    }

    /// What is to be done after so much silence; `by_transport` is what is to be done for the transport.
    fn overdue(&self, _: Quiet, _: &Limits, by_transport: Option<Overdue>) -> Option<Overdue> {
        by_transport
    }

    /// The name of the device that speaks, `APPLICATION/DEVICE`.
    fn device(&self) -> Option<&str> {
        None
    }
}
