//! A whole node on real sockets.

mod addresses;
mod client;
mod devices;
mod durable;
mod event_ids;
mod features;
mod flow;
mod headers;
mod holes;
mod http;
mod http_sessions;
mod listeners;
mod memory;
mod node;
mod put;
mod requests;
mod rights;
mod sessions;
mod work;
