//! Commands in binary.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| protocol::checks::check_binary_commands(input));
