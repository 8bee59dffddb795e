//! The hub from outside: whole nodes of several shards against what each session must see.

mod mixtures;
mod node;
mod streams;
