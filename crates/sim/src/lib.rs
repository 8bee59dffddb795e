//! Whole servers on one thread from one seed: real shards over a simulated network and clock.
//!
//! Everything random comes from the seed, so a run that fails is replayed by its seed. The network
//! delays, tears messages into pieces, takes only part of what is sent, and drops connections.
#![forbid(unsafe_code)]

mod disk;
mod kills;
mod network;
mod peer;
mod random;
mod world;

pub use disk::{Lie, SharedDisk, SimDisk, SimStore};
pub use kills::{KillOutcome, run_with_kills};
pub use network::{Network, SimIo};
pub use peer::{Bug, SimPeer};
pub use random::Random;
pub use world::{Outcome, run};
