//! Histories of readers that keep nothing but the last place that they were told, as the property test of the hub runs
//! them.
#![no_main]

use tidegate_fuzz::histories::{resumes, words};

libfuzzer_sys::fuzz_target!(|input: &[u8]| resumes::run(&words(input)));
