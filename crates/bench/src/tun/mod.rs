//! Millions of clients without a kernel socket each: TCP and WebSocket by hand over a TUN device, in a
//! network namespace of the run's own. A client costs the driver 13 bytes.

mod namespace;
mod packet;
mod swarm;

pub(crate) use namespace::Namespace;
pub(crate) use swarm::{TunPlan, TunSwarm};

use std::net::Ipv4Addr;

/// Where the server is, seen from the clients.
pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// The first client's address; each address has `PER_ADDRESS` clients, from port 1024 on.
pub(crate) const FIRST_CLIENT: u32 = u32::from_be_bytes([10, 1, 0, 1]);
pub(crate) const PER_ADDRESS: u32 = 60_000;
pub(crate) const FIRST_PORT: u16 = 1_024;
pub(crate) const DEVICE: &str = "tun0";
