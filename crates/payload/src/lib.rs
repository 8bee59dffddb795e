//! The contents of payloads: the difference of two ([`delta`]), which entity one is about ([`entity`]), and whether a
//! reader wants it ([`filter`]). Pure: a payload in, a decision out.
//!
//! The caller keeps the results: the hub knows filters and entities by name only, and the wire carries a
//! difference without looking into it.
#![forbid(unsafe_code)]

pub mod delta;
mod entity;
#[cfg(feature = "filters")]
pub mod filter;

pub use entity::entity;
