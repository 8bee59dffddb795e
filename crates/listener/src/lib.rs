//! The layer between sockets and shards: the headers of proxies, and TLS.
//!
//! [`FilteredIo`] is an [`engine::Io`] over another one. A shard does not know whether its bytes were encrypted on the
//! way: it receives and sends what is inside. Connections of listeners without either cost a look into an empty table.
#![forbid(unsafe_code)]

mod filter;
mod handshake;
pub mod proxy;
mod records;
mod state;
mod tls;

pub use filter::{FilterOptions, FilteredIo, Handshakes, IsTrusted, Listener};
pub use tls::{ClientCertificates, TlsFiles, TlsSource, Versions};
