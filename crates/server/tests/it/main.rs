//! A whole node on real sockets.

mod client;
mod durable;
mod node;
