//! What stands between sockets and shards: the headers of proxies, and TLS.
//!
//! [`FilteredIo`] is an [`engine::Io`] over another one. A shard does not know whether its bytes were encrypted on the
//! way: it receives and sends what is inside. Connections of listeners without either cost a look into an empty table.
#![forbid(unsafe_code)]

mod filter;
pub mod proxy;
mod state;

pub use filter::{FilterOptions, FilteredIo, IsTrusted, Listener};
