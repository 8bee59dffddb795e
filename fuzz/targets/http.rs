//! HTTP heads and bodies, one after the other.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: (&[u8], Vec<u8>)| {
    let pieces: Vec<usize> = input.1.iter().map(|piece| usize::from(*piece)).collect();
    protocol::checks::check_http(input.0, &pieces);
});
