//! What is said on connections: the state of each kind of conversation, and [`Speech`], what a shard asks of all. What a shard does
//! for one is [`crate::dialect::Dialect`].
//!
//! A dialect is a folder of `protocol`, a file here, a file that carries out what is said, and a line in each half of the table
//! below.

mod device;
mod echo;
mod http;
mod native;
mod queries;
mod speech;

use hub::Hub;
use model::{Limits, Refusal};

pub(crate) use self::device::Attached;
pub(crate) use self::echo::Echo;
pub(crate) use self::http::{Answering, Arriving};
pub(crate) use self::native::Native;
pub(crate) use self::queries::DeviceSocket;
pub(crate) use self::speech::{Overdue, Quiet, Speech};
use crate::byte_queue::ByteQueue;
use crate::encoder::NativeEncoder;

/// The conversation on a connection.
#[derive(Debug)]
pub(crate) enum Conversation {
    /// A request head is arriving; what is here of it, and of requests after it.
    Head(ByteQueue),
    /// A request body is arriving.
    Body(Box<Arriving>),
    /// A request was handed on; its answer is awaited or being sent.
    Answering(Box<Answering>),
    /// The native dialect.
    Native(Native),
    /// Everything comes back.
    Echo(Box<Echo>),
    /// An attached device.
    Device(Box<Attached>),
    /// An application asks one device.
    Queries(Box<DeviceSocket>),
}

/// Does the same for whichever conversation it is: the one match over all.
macro_rules! on_dialect {
    ($conversation:expr, $it:ident => $done:expr) => {
        match $conversation {
            $crate::dialects::Conversation::Head($it) => $done,
            $crate::dialects::Conversation::Body($it) => $done,
            $crate::dialects::Conversation::Answering($it) => $done,
            $crate::dialects::Conversation::Native($it) => $done,
            $crate::dialects::Conversation::Echo($it) => $done,
            $crate::dialects::Conversation::Device($it) => $done,
            $crate::dialects::Conversation::Queries($it) => $done,
        }
    };
}
pub(crate) use on_dialect;

impl Conversation {
    /// The session of the native dialect.
    pub(crate) fn native(&self) -> Option<&Native> {
        match self {
            Self::Native(native) => Some(native),
            _ => None,
        }
    }

    /// Mutable access to the native conversation.
    pub(crate) fn native_mut(&mut self) -> Option<&mut Native> {
        match self {
            Self::Native(native) => Some(native),
            _ => None,
        }
    }
}

impl Speech for Conversation {
    fn unsent(&self) -> Option<&ByteQueue> {
        on_dialect!(self, it => it.unsent())
    }

    fn unsent_mut(&mut self) -> Option<&mut ByteQueue> {
        on_dialect!(self, it => it.unsent_mut())
    }

    fn say(&mut self, bytes: &[u8], hub: &mut Hub<NativeEncoder>) {
        on_dialect!(self, it => it.say(bytes, hub));
    }

    fn is_long_lived(&self) -> bool {
        on_dialect!(self, it => it.is_long_lived())
    }

    fn has_open_body(&self) -> bool {
        on_dialect!(self, it => it.has_open_body())
    }

    fn is_deflated(&self, hub: &Hub<NativeEncoder>) -> bool {
        on_dialect!(self, it => it.is_deflated(hub))
    }

    fn answers_waiting(&self, hub: &Hub<NativeEncoder>) -> usize {
        on_dialect!(self, it => it.answers_waiting(hub))
    }

    fn may_hear(&self, limits: &Limits) -> bool {
        on_dialect!(self, it => it.may_hear(limits))
    }

    fn is_all_taken(&self, hub: &Hub<NativeEncoder>) -> bool {
        on_dialect!(self, it => it.is_all_taken(hub))
    }

    fn end(&mut self, hub: &mut Hub<NativeEncoder>) {
        on_dialect!(self, it => it.end(hub));
    }

    fn say_last(
        &mut self,
        refusal: Option<&Refusal>,
        transport_end: &[u8],
        hub: &mut Hub<NativeEncoder>,
    ) -> bool {
        on_dialect!(self, it => it.say_last(refusal, transport_end, hub))
    }

    fn is_closing(&self) -> bool {
        on_dialect!(self, it => it.is_closing())
    }

    fn overdue(&self, quiet: Quiet, limits: &Limits, by: Option<Overdue>) -> Option<Overdue> {
        on_dialect!(self, it => it.overdue(quiet, limits, by))
    }

    fn device(&self) -> Option<&str> {
        on_dialect!(self, it => it.device())
    }
}
