//! How frames travel.

pub mod http;
pub mod websocket;
