//! Topic names and selectors.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &str| protocol::checks::check_selector(input));
