//! Dialects: the contents of messages.

pub mod device;
pub mod echo;
pub mod native;
