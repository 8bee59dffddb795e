//! Idempotency keys on disk: in a keyspace of their own, so that they outlive the records that retention
//! removes.
//!
//! Place: when it was written (milliseconds since 1970, 8 bytes, big-endian), topic number (8), sequence
//! (8): the oldest come first. Value: the key, and a CRC-32 of place and key (4).

use model::Sequence;

use crate::record::checksum;

const CRC: usize = 4;
const PLACE: usize = 24;

/// A key read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoredKey {
    pub unix_ms: u64,
    pub topic_number: u64,
    pub sequence: Sequence,
    pub key: Box<str>,
}

/// Where a key stands.
pub(super) fn place_of(unix_ms: u64, topic_number: u64, sequence: Sequence) -> [u8; PLACE] {
    let mut place = [0; PLACE];
    place[..8].copy_from_slice(&unix_ms.to_be_bytes());
    place[8..16].copy_from_slice(&topic_number.to_be_bytes());
    place[16..].copy_from_slice(&sequence.get().to_be_bytes());
    place
}

/// The value kept under a key.
pub(super) fn value_of(place: &[u8], key: &str) -> Vec<u8> {
    let mut value = Vec::with_capacity(key.len() + CRC);
    value.extend_from_slice(key.as_bytes());
    value.extend_from_slice(&checksum(place, key.as_bytes()).to_be_bytes());
    value
}

/// Reads what stands at `place`; `None` if it is damaged.
pub(super) fn read(place: &[u8], value: &[u8]) -> Option<StoredKey> {
    let (key, sum) = value.split_last_chunk::<CRC>()?;
    if checksum(place, key) != u32::from_be_bytes(*sum) {
        return None;
    }
    let place: &[u8; PLACE] = place.try_into().ok()?;
    let number = |at: usize| u64::from_be_bytes(std::array::from_fn(|byte| place[at + byte]));
    Some(StoredKey {
        unix_ms: number(0),
        topic_number: number(8),
        sequence: Sequence::new(number(16))?,
        key: std::str::from_utf8(key).ok()?.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_comes_back_and_every_flipped_bit_shows() {
        let sequence = Sequence::new(9).expect("small");
        let place = place_of(1_000, 3, sequence);
        let value = value_of(&place, "order-17");
        let stored =
            StoredKey { unix_ms: 1_000, topic_number: 3, sequence, key: "order-17".into() };
        assert_eq!(read(&place, &value), Some(stored));
        for bit in 0..value.len() * 8 {
            let mut damaged = value.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read(&place, &damaged), None, "bit {bit}");
        }
        assert_eq!(read(&place_of(1_001, 3, sequence), &value), None, "moved");
    }
}
