//! What proves that a text is from us, or from whoever has a key: HMAC-SHA-256, in hexadecimal digits.

use hmac::{Hmac, Mac};
use sha2::Sha256;

/// Bytes that only this process knows.
pub type Secret = [u8; 32];

/// Bytes of a short proof: nobody guesses so many.
const SHORT: usize = 16;

fn mac(key: &[u8], text: &str) -> Hmac<Sha256> {
    let mut mac = Hmac::new_from_slice(key).expect("HMAC takes a key of any length");
    mac.update(text.as_bytes());
    mac
}

/// The whole proof of a text.
#[cfg(test)]
pub fn proof(key: &[u8], text: &str) -> String {
    hex(&mac(key, text).finalize().into_bytes())
}

/// The short proof of a text.
pub fn short_proof(key: &[u8], text: &str) -> String {
    hex(&mac(key, text).finalize().into_bytes()[..SHORT])
}

/// Whether it is the short proof of a text. The comparison takes the same time for every wrong one.
pub fn is_short_proof(key: &[u8], text: &str, proof: &str) -> bool {
    let proof = unhex(proof).filter(|proof| proof.len() == SHORT);
    proof.is_some_and(|proof| mac(key, text).verify_truncated_left(&proof).is_ok())
}

/// Whether it is the whole proof of a text. The comparison takes the same time for every wrong one.
pub fn is_proof(key: &[u8], text: &str, proof: &str) -> bool {
    unhex(proof).is_some_and(|proof| mac(key, text).verify_slice(&proof).is_ok())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks(2).map(|pair| {
        let pair = std::str::from_utf8(pair).ok()?;
        u8::from_str_radix(pair, 16).ok()
    });
    digits.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_proof_of_this_text_by_this_key_is_one() {
        let proof = short_proof(b"key", "text");
        assert!(is_short_proof(b"key", "text", &proof));
        for wrong in ["", "é", "zz", &proof[2..], &format!("{proof}00")] {
            assert!(!is_short_proof(b"key", "text", wrong), "{wrong}");
        }
        assert!(
            !is_short_proof(b"key", "other", &proof) && !is_short_proof(b"yek", "text", &proof)
        );
        let whole = super::proof(b"key", "text");
        assert!(is_proof(b"key", "text", &whole) && !is_proof(b"key", "text", &proof));
    }
}
