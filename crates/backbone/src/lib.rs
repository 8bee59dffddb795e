//! Where publications are ordered and kept: the trait, its contract, and the embedded kinds.
//!
//! A backbone gives positions. It does not know who reads, nor any protocol. Everything that a
//! backbone promises is in [`contract`], a suite that each of them passes.
#![forbid(unsafe_code)]

mod backbone;
pub mod contract;
mod disk;
mod keys;
mod log;
mod memory;
mod record;
mod retention;
mod store;

pub use backbone::{Backbone, BackboneEvent, Ticket};
pub use disk::DiskBackbone;
pub use log::{Deliver, HeldInMemory, Log, LogStore, OpenError, Opened, StoreMail, open};
pub use memory::MemoryBackbone;
pub use record::Record;
pub use retention::{Retention, RetentionOf};
pub use store::{ReadWanted, Store, StoreFault, StoredTopic, Written};

use model::{Code, Draft, Publication, Refusal, Sequence};

/// Payload bytes in a page of a history; one publication may be larger.
const PAGE_BYTES: usize = 4 << 20;

/// The next publications, at most `count` and about 4 MiB, but always one if there is one.
pub fn take_page(
    publications: &mut impl Iterator<Item = Publication>,
    count: usize,
) -> Vec<Publication> {
    let (mut page, mut bytes) = (Vec::new(), 0);
    while page.len() < count
        && bytes < PAGE_BYTES
        && let Some(publication) = publications.next()
    {
        bytes += publication.payload().len();
        page.push(publication);
    }
    page
}

/// Refuses a draft that expects another head than the topic has.
fn check_expected(draft: &Draft, head: Sequence) -> Result<(), Refusal> {
    match draft.expected {
        Some(expected) if expected != head => {
            let text = format!(
                "cannot publish to `{}`: its newest sequence is {head} and {expected} was expected; read \
                 what was published meanwhile, then decide again",
                draft.topic
            );
            Err(Refusal::new(Code::SequenceMismatch, text))
        }
        _ => Ok(()),
    }
}
