//! Bytes to frames to commands and events, and back. Sans-I/O: no sockets, no clock, no topic tree.
//!
//! `transport` is how frames travel (HTTP heads and bodies, WebSocket), `dialect` is what they say.
#![forbid(unsafe_code)]

#[cfg(any(test, feature = "checks"))]
#[doc(hidden)]
pub mod checks;
mod dialect;
mod transport;

pub use dialect::{device, echo, native};
pub use transport::{http, websocket};
