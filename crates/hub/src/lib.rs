//! Who gets what, and when: topics, sessions, audiences. Pure: no sockets, no clock, no threads.
//!
//! One [`Hub`] belongs to one shard. It keeps the only in-memory history. A session holds cursors,
//! never a queue of publications: while it keeps up it is *in step* with its audiences and costs
//! nothing per publication; when it falls behind it remembers one delivery number per audience and
//! reads on from the shard's recent deliveries, or from the topics' histories.
#![forbid(unsafe_code)]

mod audiences;
mod between_shards;
mod carry_on;
mod counters;
mod devices;
mod hub;
mod operations;
mod requests;
mod sending;
mod sessions;
mod tables;
mod topics;

pub use audiences::delta::Delta;
pub use between_shards::epochs::Beyond;
pub use between_shards::mail::{HubMail, ToldFor, TopicNumber, TopicState};
pub use counters::Counters;
pub use devices::{Device, DevicePlace, Devices};
pub use hub::{Hub, HubOptions, Listing};
#[cfg(feature = "checks")]
#[doc(hidden)]
pub use requests::checks::check_requests;
pub use requests::{
    Accepts, Ask, Outcome, Registration, RequestCounters, RequestMail, RequestOutput, Requests,
};
pub use sending::encoder::{Encoder, EncodingIndex, Form, Outlet, Piece, Progress, Record, Sent};
pub use sending::payloads::Payloads;
pub use sessions::fetched::{PageTicket, PageWanted};
pub use sessions::lag::{SessionLook, SlowSession};
pub use tables::chunks::Chunks;
pub use tables::connections::{Closed, ConnectionId, Connections, ShardConnection};
pub use tables::index::{SessionIndex, ShardIndex, home_shard, home_shard_of};
pub use topics::selector_tree::SelectorTree;
pub use topics::topic::Lateness;
