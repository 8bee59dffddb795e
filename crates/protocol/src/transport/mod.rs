//! How frames travel.

mod chunks;
mod date;
mod host;
pub mod http;
mod item;
pub mod websocket;
