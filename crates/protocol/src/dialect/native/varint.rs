//! Unsigned integers of 1 to 8 bytes, 7 bits each, least significant first (LEB128).

const BYTES_MAX: usize = 8;

pub(super) fn append(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
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
        assert_eq!(take(&mut &[0x80; 9][..]), None);
        assert_eq!(take_bytes(&mut &[3, 1, 2][..]), None);
    }
}
