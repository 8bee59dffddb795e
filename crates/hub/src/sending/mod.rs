//! Sending: batches to audiences, and to single sessions what they still have to get.

pub(crate) mod batch;
pub(crate) mod encoder;
pub(crate) mod flush;
pub(crate) mod one_session;
pub(crate) mod payloads;
pub(crate) mod pieces;
pub(crate) mod schedule;
pub(crate) mod timers;
pub(crate) mod transfer;
mod under_way;
