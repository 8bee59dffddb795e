//! What a client hears.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| protocol::checks::check_server_message(input));
