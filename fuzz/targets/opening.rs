//! Requests that open sessions over plain HTTP.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    protocol::checks::check_opening(input);
});
