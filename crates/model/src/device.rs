//! Devices that a session attaches. docs/devices.md#devices-on-sessions.

use std::sync::Arc;

/// A wish to be asked as a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attach {
    /// `APPLICATION/DEVICE`.
    pub device: Arc<str>,
    /// The value of the field `Authorization`; without it, the session's principal counts.
    pub authorization: Option<Box<str>>,
    /// The device's description of itself, as JSON.
    pub info: Option<Box<str>>,
}

/// A wish to be asked as that device no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detach {
    /// `APPLICATION/DEVICE`.
    pub device: Arc<str>,
}
