//! Tables and the small numbers that name what is in them.

pub(crate) mod chunks;
pub(crate) mod connections;
pub(crate) mod index;
pub(crate) mod places;
