//! Topics: what a shard knows of each, what is kept and delivered of it, and finding those that a pattern selects.

pub(crate) mod age;
pub(crate) mod conflation_keys;
pub(crate) mod delivery;
pub(crate) mod find;
pub(crate) mod history;
pub(crate) mod name_walk;
pub(crate) mod pace;
pub(crate) mod pacing;
pub(crate) mod reading_numbers;
pub(crate) mod recent;
pub(crate) mod selector_tree;
pub(crate) mod shed;
pub(crate) mod topic;
