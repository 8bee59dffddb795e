//! Histories of a whole node, as the property tests of the hub run them: every session sees what a private queue would
//! have given it. The first word chooses the setting, each other one is a step.
#![no_main]

use tidegate_fuzz::histories::{streams, words};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let words: Vec<u64> = words(input);
    let Some((setting, steps)) = words.split_first() else { return };
    let setting = streams::SETTINGS[*setting as usize % streams::SETTINGS.len()]();
    streams::run(setting, steps);
});
