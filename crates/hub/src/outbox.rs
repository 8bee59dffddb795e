//! What a hub has for others, until the caller takes it by the `poll_*` methods.

use std::collections::VecDeque;

use model::{Refusal, TopicName};

use crate::between_shards::mail::HubMail;
use crate::sessions::fetched::PageRequests;
use crate::tables::connections::ConnectionId;
use crate::tables::index::{SessionIndex, ShardIndex};

/// What a hub has for others.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// For other shards, in order.
    pub mail: VecDeque<(ShardIndex, HubMail)>,
    /// Topics at home here of which the backbone is asked where they stand.
    pub asks: VecDeque<TopicName>,
    /// Pages for the store to read.
    pub pages: PageRequests,
    /// Sessions that must be closed, and why.
    pub closing: VecDeque<(SessionIndex, Refusal)>,
    /// Connections of sessions that were granted a subscription since somebody asked.
    pub granted: VecDeque<ConnectionId>,
}
