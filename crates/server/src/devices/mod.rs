//! Devices: applications and their keys, attached devices, and who asks them. docs/devices.md.
//!
//! A device is *attached* on the shard that has its connection; the shard that is *home* to its name knows where.

mod attach;
mod attached;
mod credentials;
mod gather;
mod home;
mod http;
mod query;
mod session;
mod socket;
mod statistics;

pub(crate) use self::attached::Attached;
pub use self::gather::Gather;
pub use self::home::DeviceMail;
pub(crate) use self::session::SessionDevices;
pub(crate) use self::socket::DeviceSocket;
pub(crate) use self::statistics::AllStatistics;
