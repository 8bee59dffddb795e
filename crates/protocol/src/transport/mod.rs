//! How frames travel.

mod chunks;
mod date;
mod host;
pub mod http;
pub mod websocket;
