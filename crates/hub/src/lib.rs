//! Who gets what, and when: topics, sessions, audiences. Pure: no sockets, no clock, no threads.
//!
//! One [`Hub`] belongs to one shard. It keeps the only in-memory history. A session holds cursors,
//! never a queue of publications: while it keeps up it is *in step* with its audiences and costs
//! nothing per publication; when it falls behind it remembers one delivery number per audience and
//! reads on from the shard's recent deliveries, or from the topics' histories.
#![forbid(unsafe_code)]

mod ahead;
mod audience;
mod batch;
mod catch_up;
mod chunks;
mod delivery;
mod encoder;
mod flush;
mod history;
mod home;
mod hub;
mod index;
mod mail;
mod page;
mod reader;
mod replay;
mod selector_tree;
mod session;
mod subscribe;
mod topic;

pub use chunks::Chunks;
pub use encoder::{Encoder, EncodingIndex, Form, Outlet, Record, Sent};
pub use hub::{Counters, Hub, HubOptions};
pub use index::{SessionIndex, ShardIndex, home_shard};
pub use mail::{HubMail, TopicState};
pub use page::{PageTicket, PageWanted};
pub use selector_tree::SelectorTree;
