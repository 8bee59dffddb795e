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
