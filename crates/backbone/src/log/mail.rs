//! The messages from the threads of the log to the shards.

use std::sync::{Arc, OnceLock};

use model::{Epoch, Publication};

use crate::{StoreFault, Written};

/// A message from the store to a shard.
#[derive(Debug)]
pub enum StoreMail {
    /// The outcomes of records, for [`crate::DiskBackbone::handle_written`].
    Written(Written),
    /// Records that were asked for.
    Read {
        /// The number of the question.
        ticket: u64,
        /// Oldest first; none when there are no more.
        publications: Vec<Publication>,
    },
    /// Another epoch has begun; what was written and not answered before is of it.
    Epoch(Epoch),
}

/// How a shard is told: at once, or not yet, and then the mail comes back and is offered again.
pub type Deliver = Box<dyn Fn(StoreMail) -> Result<(), StoreMail> + Send + Sync>;

/// Why the store writes nothing more, once that is so; for whoever is asked how the server is.
pub type SharedFault = Arc<OnceLock<StoreFault>>;
