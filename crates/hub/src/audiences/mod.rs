//! Audiences: the sessions of a shard that see exactly the same stream, who joins them, and what each is to get.

pub(crate) mod attach;
pub(crate) mod audience;
pub(crate) mod by_id;
pub(crate) mod delta;
pub(crate) mod disposition;
pub(crate) mod grant;
pub(crate) mod job;
pub(crate) mod joining;
pub(crate) mod options;
pub(crate) mod overlap;
pub(crate) mod subscribe;
