//! Conversations of the native dialect over a WebSocket: bytes in, and a client and a conversation with bytes between them.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: (&[u8], Vec<u8>, bool)| {
    let (bytes, pieces, is_pair) = input;
    let pieces: Vec<usize> = pieces.iter().map(|piece| usize::from(*piece)).collect();
    match is_pair {
        true => protocol::checks::check_pair(bytes, &pieces),
        false => protocol::checks::check_conversation(bytes, &pieces),
    }
});
