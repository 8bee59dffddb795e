//! Configuration files.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &str| {
    // Refusing is fine; the message must name the file.
    if let Err(error) = server::config::parse(input, "fuzz.toml") {
        assert!(error.to_string().contains("fuzz.toml"), "{error}");
    }
});
