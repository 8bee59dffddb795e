//! The hub from outside: whole nodes of several shards against what each session must see.

mod await_head;
mod bounds;
mod histories;
mod node;
mod properties;
mod ring;
mod shed;
#[cfg(debug_assertions)]
mod slots;
mod stamps;
mod streams;
mod times;
mod truth;
mod turns;
