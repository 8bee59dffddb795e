//! Unsigned integers of 1 to 8 bytes, 7 bits each, least significant first (LEB128).

const BYTES_MAX: usize = 8;
/// As many bytes as any `u64` takes; a peer that keeps to the protocol needs 8.
const ENCODED_BYTES_MAX: usize = 10;

pub(super) fn append(value: u64, out: &mut Vec<u8>) {
    if value < 0x80 {
        return out.push(value as u8);
    }
    let (bytes, len) = encode(value);
    out.extend_from_slice(&bytes[..len]);
}

/// The bytes of a varint, and how many of them there are.
pub(super) fn encode(mut value: u64) -> ([u8; ENCODED_BYTES_MAX], usize) {
    let (mut bytes, mut len) = ([0; ENCODED_BYTES_MAX], 0);
    while value >= 0x80 {
        bytes[len] = value as u8 | 0x80;
        (value, len) = (value >> 7, len + 1);
    }
    bytes[len] = value as u8;
    (bytes, len + 1)
}

/// Takes a varint from the front of `bytes`.
pub(super) fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for (index, byte) in bytes.iter().take(BYTES_MAX).enumerate() {
        value |= u64::from(byte & 0x7F) << (7 * index);
        if byte & 0x80 == 0 {
            *bytes = &bytes[index + 1..];
            return Some(value);
        }
    }
    None
}

/// Takes a varint length and so many bytes from the front of `bytes`.
pub(super) fn take_bytes<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::try_from(take(bytes)?).ok()?;
    let (taken, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        for value in [0, 1, 127, 128, 300, 65_594, (1 << 53) - 1, (1 << 56) - 1] {
            let mut out = Vec::new();
            append(value, &mut out);
            let mut rest = &out[..];
            assert_eq!((take(&mut rest), rest.len()), (Some(value), 0), "{value}");
        }
        let (bytes, len) = encode(u64::MAX);
        assert_eq!((bytes[9], len), (1, 10));
        assert_eq!(take(&mut &[0x80; 9][..]), None);
        assert_eq!(take_bytes(&mut &[3, 1, 2][..]), None);
    }
}
