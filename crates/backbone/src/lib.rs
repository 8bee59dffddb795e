//! Where publications are ordered and kept: the trait, its contract, and the embedded kinds.
//!
//! A backbone gives positions. It does not know who reads, nor any protocol. Everything that a
//! backbone promises is in [`contract`], a suite that each of them passes.
#![forbid(unsafe_code)]

pub mod care {
    //! Care of a store that no server has open.
    pub use crate::log::{Findings, adopt, backup, check, repair, restore};
}

mod backbone;
pub mod contract;
mod disk;
mod keys;
mod log;
mod memory;
mod page;
mod record;
mod retention;
mod store;
mod times;

pub use backbone::{Abilities, Backbone, BackboneEvent, BackboneMail, Ticket};
pub use disk::DiskBackbone;
pub use log::{
    Deliver, HeldInMemory, Log, LogStore, OpenError, Opened, SharedFault, Spawn, StoreMail, open,
};
pub use memory::MemoryBackbone;
pub use page::{PAGE_BYTES, PageEnd, ReadWanted};
pub use record::Record;
pub use retention::{Retention, RetentionOf};
pub use store::{Store, StoreFault, StoredTopic, Written};
pub use times::LatestTime;

use model::{AckLevel, Code, Draft, Expected, Position, Refusal};

/// Refuses a draft that expects another head than the topic has.
fn check_expected(draft: &Draft, head: &Position) -> Result<(), Refusal> {
    let Some(Expected { sequence, epoch }) = &draft.expected else { return Ok(()) };
    let what = match epoch {
        Some(epoch) if *epoch != head.epoch => {
            format!("its numbering is of epoch {} and {epoch} was expected", head.epoch)
        }
        _ if *sequence != head.sequence => {
            format!("its newest sequence is {} and {sequence} was expected", head.sequence)
        }
        _ => return Ok(()),
    };
    let text = format!(
        "cannot publish to `{}`: {what}; read what was published meanwhile, then decide again",
        draft.topic
    );
    Err(Refusal::new(Code::SequenceMismatch, text))
}

/// Refuses a draft that is to be safer than its backbone can keep it.
fn check_level(draft: &Draft, level: AckLevel, level_max: AckLevel) -> Result<(), Refusal> {
    if level <= level_max {
        return Ok(());
    }
    let text = format!(
        "cannot publish to `{}`: it is to be acknowledged as safe as `{}`, and its backbone keeps it as safe as `{}` at most; \
         change the policy in the configuration",
        draft.topic,
        level.name(),
        level_max.name()
    );
    Err(Refusal::new(Code::NotKept, text))
}
