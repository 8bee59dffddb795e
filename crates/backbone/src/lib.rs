//! Where publications are ordered and kept: the trait, its contract, and the embedded kinds.
//!
//! A backbone gives positions. It does not know who reads, nor any protocol. Everything that a
//! backbone promises is in [`contract`], a suite that each of them passes.
#![forbid(unsafe_code)]

mod backbone;
pub mod contract;
mod memory;

pub use backbone::{Backbone, BackboneEvent, Ticket};
pub use memory::MemoryBackbone;
