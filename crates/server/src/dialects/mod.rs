//! What is said on connections: the state of each kind of conversation. What a shard does for it is in files that know the shard.

pub(crate) mod device;
pub(crate) mod echo;
pub(crate) mod http;
pub(crate) mod native;
pub(crate) mod queries;

pub(crate) use self::device::Attached;
pub(crate) use self::echo::Echo;
pub(crate) use self::http::{Answering, Arriving};
pub(crate) use self::native::Native;
pub(crate) use self::queries::DeviceSocket;
use crate::byte_queue::ByteQueue;

/// The conversation on a connection. A dialect is one of these, a folder of `protocol`, and its line in each match of `events`.
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

    /// Bytes that the socket did not take yet, where they are kept here: the hub keeps those of its sessions.
    pub(crate) fn unsent(&self) -> Option<&ByteQueue> {
        match self {
            Self::Echo(echo) => Some(&echo.unsent),
            Self::Device(attached) => Some(&attached.unsent),
            Self::Queries(open) => Some(&open.unsent),
            Self::Head(_) | Self::Body(_) | Self::Answering(_) | Self::Native(_) => None,
        }
    }

    /// Mutable access to what was said and not taken.
    pub(crate) fn unsent_mut(&mut self) -> Option<&mut ByteQueue> {
        match self {
            Self::Echo(echo) => Some(&mut echo.unsent),
            Self::Device(attached) => Some(&mut attached.unsent),
            Self::Queries(open) => Some(&mut open.unsent),
            Self::Head(_) | Self::Body(_) | Self::Answering(_) | Self::Native(_) => None,
        }
    }

    /// Whether it may stand for days: such ones are looked at in turn, not all at once.
    pub(crate) fn is_long_lived(&self) -> bool {
        matches!(self, Self::Native(_) | Self::Device(_) | Self::Queries(_))
    }
}
