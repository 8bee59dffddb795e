//! How frames travel.

mod chunks;
pub mod http;
pub mod websocket;
