//! Connections through the filter, over sockets in memory.

mod certificates;
mod headers;
mod node;
mod sockets;
mod tls;
