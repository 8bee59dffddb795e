//! The mask of client frames. RFC 6455, section 5.3.

/// Masks or unmasks `bytes`, the first of which stands at `offset` in its frame's payload.
pub(super) fn apply_mask(bytes: &mut [u8], mask: [u8; 4], offset: usize) {
    let mut turned = mask;
    turned.rotate_left(offset % 4);
    let word = u64::from_ne_bytes([
        turned[0], turned[1], turned[2], turned[3], turned[0], turned[1], turned[2], turned[3],
    ]);
    let mut words = bytes.chunks_exact_mut(8);
    for chunk in &mut words {
        let mut eight = [0; 8];
        eight.copy_from_slice(chunk);
        chunk.copy_from_slice(&(u64::from_ne_bytes(eight) ^ word).to_ne_bytes());
    }
    for (byte, key) in words.into_remainder().iter_mut().zip(turned.into_iter().cycle()) {
        *byte ^= key;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_mask_byte_by_byte() {
        let mask = [1, 20, 99, 250];
        for offset in 0..9 {
            for len in 0..40 {
                let mut bytes: Vec<u8> = (0..len).collect();
                apply_mask(&mut bytes, mask, offset);
                let slow: Vec<u8> =
                    (0..len).map(|i| i ^ mask[(offset + usize::from(i)) % 4]).collect();
                assert_eq!(bytes, slow, "{len} bytes from {offset}");
            }
        }
    }
}
