//! A whole node on real sockets.

mod client;
mod devices;
mod durable;
mod http_sessions;
mod node;
mod requests;
