//! What devices and the server say to each other, and applications that ask one device. docs/devices.md.

mod conversation;
mod queries;
mod wire;

pub use conversation::{Conversation, DeviceHeard, Told};
pub use queries::Queries;
pub use wire::{DeviceSays, ServerSays, append, decode};
