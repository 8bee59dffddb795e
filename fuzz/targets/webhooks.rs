//! Histories of a webhook's deliveries, as the property test of the webhooks runs them: three bytes are a step.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let (steps, _) = input.as_chunks();
    tidegate_fuzz::webhooks::check_deliveries(steps);
});
