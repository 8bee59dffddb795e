//! Whole servers on one thread from one seed: real shards over a simulated network, disk and clocks.
//!
//! Everything random comes from the seed, the order of hash tables included ([`model::SeededHashing`]), so a run that
//! fails is replayed by its seed, byte by byte, in every process. The network delays, tears messages into pieces, takes
//! only part of what is sent, and drops connections; the disk answers late, fails, and loses what it had not told; the wall
//! clock is set forward and back, and the machine sleeps.
//!
//! There are three kinds of runs; in memory, sequences have holes with every other seed. [`run`]: clients with the SDK's own state machines on a node in memory, with deltas, pieces,
//! intervals and priorities. [`run_with_kills`]: the same on a disk, and the process dies again and again. [`run_mixture`]:
//! readers that know no SDK, over WebSocket, streams and polls, with filters, conflation, names, merged subscriptions and
//! positions beyond the head, of which the first begins another epoch (decision 0029); repeated keys; requests and devices that are taken
//! over; disks that fail and memory that is short. Each ends when
//! nothing moves any more, and then everybody must have what is true. [`Counts`] says how often each kind of event came about, and
//! a kind that does not fails the test.
//!
//! Cases that no run reaches, so that tests of other crates must: a fan-out that takes more than one turn (audit 63: the property tests of
//! the hub have a budget of 1), the order of followers' answers by which a reader of news got a history (65), topics that come into
//! the place of others while something is under way to these (61, 71, 76, 79: here there are five, and each is soon known to every
//! shard for good), who is far behind and is not lapped (64), subscriptions that are joined at two places (70, 77), a made-up
//! position that is given a second time before its gap is heard, in an epoch that goes on (in memory the numbering may pass it), history pages
//! and retention by age (38, 68, 73), damaged records (74), Server-Sent Events and their ids (37), the binary
//! dialect, compression, named subscriptions that are merged, conflation keys, throttled sessions, devices on connections of their
//! own and their proofs (42), webhooks, TLS, the API's HTTP, the reload of a configuration, several nodes, and threads:
//! shards take turns here, whereas mailboxes between real threads are the engine's tests'.
#![forbid(unsafe_code)]

mod asking;
mod carriage;
mod clients;
mod counts;
mod disk;
mod http;
mod kills;
mod mixture;
mod network;
mod node;
mod peer;
mod random;
mod reader;
mod rest;
mod truth;
mod world;

pub use counts::Counts;
pub use disk::{Lie, SharedDisk, SimDisk, SimStore};
pub use kills::{KillOutcome, run_with_kills};
pub use mixture::{CI_SEEDS, CI_STEPS, MixtureOutcome, first_broken, run_mixture};
pub use network::{Network, SimIo};
pub use node::{Clocks, Node, NodeDisk};
pub use peer::{Bug, SimPeer};
pub use random::Random;
pub use world::{Outcome, run};
