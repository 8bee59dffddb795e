//! Sessions one by one: where each stands, and how it reads on when it is not in step with its audiences.

pub(crate) mod await_head;
pub(crate) mod awaited;
pub(crate) mod catch_up;
pub(crate) mod fallback;
pub(crate) mod fetched;
pub(crate) mod lag;
pub(crate) mod readers;
pub(crate) mod replay;
pub(crate) mod replay_queue;
pub(crate) mod round;
pub(crate) mod session;
pub(crate) mod steps;
pub(crate) mod store_pages;
pub(crate) mod throttle;
pub(crate) mod topic_replay;
pub(crate) mod topic_search;
