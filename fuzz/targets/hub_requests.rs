//! Histories of requests on three shards, as the property test of the hub runs them: four bytes are a step.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let (steps, _) = input.as_chunks();
    tidegate_hub::check_requests(steps);
});
