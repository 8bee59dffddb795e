//! Histories of a whole node with any mixture of options, as the property tests of the hub run them. The first word
//! chooses the kind, some more the node and its options, each other one is a step.
#![no_main]

use tidegate_fuzz::histories::{mixtures, words};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let words: Vec<u64> = words(input);
    let Some((kind, words)) = words.split_first() else { return };
    mixtures::run(&mixtures::KINDS[*kind as usize % mixtures::KINDS.len()](words));
});
