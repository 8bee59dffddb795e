//! Topics between shards: each is at home on one shard, which tells those that follow it.

pub(crate) mod epochs;
pub(crate) mod follow;
pub(crate) mod followers;
pub(crate) mod following;
pub(crate) mod home;
pub(crate) mod mail;
pub(crate) mod renewal;
