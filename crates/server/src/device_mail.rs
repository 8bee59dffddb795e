//! What shards tell each other of devices.

use std::sync::Arc;

use access::ApplicationIndex;
use hub::{Ask, DevicePlace};

use crate::desks::Statistics;
use crate::reply::Asker;

/// What shards tell each other of devices.
#[derive(Debug)]
pub enum DeviceMail {
    /// To the name's home: it is attached there.
    Attach {
        /// `APPLICATION/DEVICE`.
        name: Arc<str>,
        /// Where.
        place: DevicePlace,
        /// What it says of itself: JSON.
        info: Option<Box<str>>,
    },
    /// From the home: others find it now.
    Found(DevicePlace, Arc<str>),
    /// From the home: another connection has the name now.
    TakenOver(DevicePlace, Arc<str>),
    /// To the home: it went.
    Detach {
        /// `APPLICATION/DEVICE`.
        name: Arc<str>,
        /// Where it was.
        place: DevicePlace,
    },
    /// To the home: a request for it.
    Ask {
        /// `APPLICATION/DEVICE`.
        name: Arc<str>,
        /// The request.
        ask: Box<Ask>,
    },
    /// To the home: what is known of it?
    Describe {
        /// `APPLICATION/DEVICE`.
        name: Arc<str>,
        /// Who wants to know.
        asker: Box<Asker>,
    },
}

/// A question that goes from shard to shard; each adds what it knows, the last one answers.
#[derive(Debug)]
pub struct Gather {
    pub(crate) asker: Asker,
    /// Whose turn it is.
    pub(crate) shard: u16,
    pub(crate) what: Gathered,
}

#[derive(Debug)]
pub(crate) enum Gathered {
    Devices { application: String, after: String, limit: usize, found: Vec<(Arc<str>, u32)> },
    Statistics { id: String, application: ApplicationIndex, total: Box<Statistics> },
}
