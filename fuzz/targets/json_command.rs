//! Commands in JSON.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &str| protocol::checks::check_json_command(input));
