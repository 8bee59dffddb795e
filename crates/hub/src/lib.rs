//! Who gets what, and when: topics, sessions, audiences. Pure: no sockets, no clock, no threads.
//!
//! One [`Hub`] belongs to one shard. It keeps the only in-memory history. A session holds cursors,
//! never a queue of publications: while it keeps up it is *in step* with its audiences and costs
//! nothing per publication; when it falls behind it remembers one delivery number per audience and
//! reads on from the shard's recent deliveries, or from the topics' histories.
#![forbid(unsafe_code)]

mod afresh;
mod age;
mod ahead;
mod attach;
mod audience;
mod batch;
mod catch_up;
mod chunks;
mod delivery;
mod delta;
mod devices;
mod encoder;
mod entity;
mod flush;
mod gate;
mod grant;
mod history;
mod home;
mod hub;
mod index;
mod lag;
mod mail;
mod operations;
mod options;
mod overlap;
mod page;
mod payloads;
mod places;
mod reader;
mod recent;
mod renewal;
mod replay;
mod requests;
mod rewind;
mod round;
mod selector_tree;
mod serve;
mod session;
mod shed;
mod subscribe;
mod throttle;
mod timers;
mod todo;
mod topic;
mod transfer;
mod verdict;
mod walk;
mod work;

pub use chunks::Chunks;
pub use delta::Delta;
pub use devices::{Device, DevicePlace, Devices};
pub use encoder::{Encoder, EncodingIndex, Form, Outlet, Piece, Progress, Record, Sent};
pub use hub::{Counters, Hub, HubOptions, Listing};
pub use index::{SessionIndex, ShardIndex, home_shard, home_shard_of};
pub use lag::{SessionLook, SlowSession};
pub use mail::{HubMail, ToldFor, TopicNumber, TopicState};
pub use page::{PageTicket, PageWanted};
pub use payloads::Payloads;
pub use renewal::Beyond;
#[cfg(feature = "checks")]
#[doc(hidden)]
pub use requests::checks::check_requests;
pub use requests::{
    Accepts, Ask, Outcome, Registration, RequestCounters, RequestMail, RequestOutput, Requests,
};
pub use selector_tree::SelectorTree;
pub use topic::Lateness;
