//! The words of Tidegate: what the other crates say to each other.
//!
//! It knows no wire bytes, no sockets, no threads and reads no clock. A value of these types is
//! valid once it exists: text from outside is parsed here, once, at the edge.
#![forbid(unsafe_code)]

mod access;
mod code;
mod command;
mod device;
mod device_name;
mod event;
mod features;
mod hashing;
mod headers;
mod history;
mod limits;
mod moment;
mod partition;
pub mod planted;
mod policy;
mod position;
mod publication;
mod request;
mod rights;
mod selector;
mod topic;

pub use access::{Action, Anonymous, Principal, bearer_token, split_authorization};
pub use code::{Advice, Code, Refusal};
pub use command::{
    Acknowledge, Command, CommandId, DeltaKind, Hello, Publish, Resume, Stamps, Start, Subscribe,
    SubscribeOptions, SubscriberName, SubscriptionId, Unread, Unsubscribe,
};
pub use device::{Attach, Detach};
pub use device_name::{
    device_name, device_topic, is_device_name, parse_device_name, topic_of_device,
};
pub use event::{Event, Gap, GapReason, Subscribed, SubscribedTopic};
pub use features::Features;
pub use hashing::{HashMap, HashSet, RandomState, SeededHashing};
pub use headers::{HeaderError, HeaderOrigin, HeaderValue, Headers, is_number};
pub use history::{HistoryPage, HistoryQuery, HistoryStart};
pub use limits::Limits;
pub use moment::Moment;
pub use partition::{PARTITIONS, partition_of};
pub use policy::{AckLevel, BackboneIndex, Conflation, Lagged, PolicyRule, Rates, TopicPolicy};
pub use position::{Epoch, Position, Sequence};
pub use publication::{
    Draft, Expected, Payload, PayloadKind, PayloadKindError, Publication, SharedPayload, check_key,
};
pub use request::{
    Asked, Capacity, Handle, Recipients, Request, Respond, Response, Unanswered, Unhandle,
};
pub use rights::{PING_TOPIC, SESSIONS_TOPIC, Wish};
pub use selector::{Selector, SelectorError};
pub use topic::{TopicName, TopicNameError};
