//! Random histories of whole nodes, made from words of eight bytes: a step for each. The property tests draw the words,
//! the fuzzer finds them.

pub mod by_id;
pub mod choices;
pub mod mixtures;
pub mod resumes;
pub mod streams;

use tidegate_hub::home_shard;

use crate::node::Node;

/// The words that bytes stand for, without what is left over.
#[allow(dead_code)]
pub fn words(bytes: &[u8]) -> Vec<u64> {
    let (words, _) = bytes.as_chunks();
    words.iter().map(|word| u64::from_le_bytes(*word)).collect()
}

/// Names that start with `prefix` and are at home on the first of so many shards.
pub fn names_of_first_shard(
    node: &Node,
    prefix: &str,
    shards: usize,
) -> impl Iterator<Item = String> {
    let names = (0..).map(move |number: u32| format!("{prefix}{number}"));
    let topic = |name: &String| node.topic(name);
    let homes: Vec<String> =
        names.filter(|name| home_shard(&topic(name), shards as u16).0 == 0).take(16).collect();
    homes.into_iter()
}
