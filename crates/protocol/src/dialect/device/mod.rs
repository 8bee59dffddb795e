//! The messages between devices and the server, and of applications that ask one device. docs/devices.md.

mod conversation;
mod queries;
mod wire;

pub use conversation::{Conversation, DeviceHeard, Told};
pub use queries::Queries;
pub use wire::{DeviceSays, ServerSays, append, decode};
