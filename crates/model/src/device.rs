//! Devices that a session attaches. docs/devices.md#devices-on-sessions.

use std::sync::Arc;

/// A wish to be asked as a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attach {
    /// `APPLICATION/DEVICE`.
    pub device: Arc<str>,
    /// What the field `Authorization` would be; without, the session's principal counts.
    pub authorization: Option<Box<str>>,
    /// What it says of itself: JSON.
    pub info: Option<Box<str>>,
}

/// A wish to be asked as that device no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detach {
    /// `APPLICATION/DEVICE`.
    pub device: Arc<str>,
}
