//! What is in a payload: when it should have been sent, and its number in its topic.
//!
//! 16 bytes and more: nanoseconds (8), number (8), then filler that repeats the number's lowest byte.
//! 10 to 15 bytes: nanoseconds modulo 2^48 (6), number modulo 2^32 (4), filler.

/// A stamp read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub intended_ns: u64,
    pub number: u64,
}

pub(crate) const BYTES_MIN: usize = 10;
const LONG: usize = 16;
const SHORT_NS_BITS: u32 = 48;

pub(crate) fn write(stamp: Stamp, out: &mut [u8]) {
    let Stamp { intended_ns, number } = stamp;
    let filled = if out.len() >= LONG {
        out[..8].copy_from_slice(&intended_ns.to_le_bytes());
        out[8..16].copy_from_slice(&number.to_le_bytes());
        LONG
    } else {
        out[..6].copy_from_slice(&intended_ns.to_le_bytes()[..6]);
        out[6..10].copy_from_slice(&(number as u32).to_le_bytes());
        BYTES_MIN
    };
    out[filled..].fill(number as u8);
}

/// Reads a stamp, or `None` if the payload is not what was written. `now_ns` completes short ones.
pub(crate) fn read(payload: &[u8], now_ns: u64) -> Option<Stamp> {
    let (stamp, filled) = if payload.len() >= LONG {
        let intended_ns = u64::from_le_bytes(payload[..8].try_into().ok()?);
        let number = u64::from_le_bytes(payload[8..16].try_into().ok()?);
        (Stamp { intended_ns, number }, LONG)
    } else {
        let mut low = [0; 8];
        low[..6].copy_from_slice(payload.get(..6)?);
        let high = now_ns >> SHORT_NS_BITS << SHORT_NS_BITS;
        let number = u32::from_le_bytes(payload.get(6..10)?.try_into().ok()?);
        let intended_ns = high | u64::from_le_bytes(low);
        (Stamp { intended_ns, number: u64::from(number) }, BYTES_MIN)
    };
    let is_whole = payload[filled..].iter().all(|byte| *byte == stamp.number as u8);
    is_whole.then_some(stamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_come_back_and_damage_shows() {
        for len in [10, 12, 16, 125, 512] {
            let mut payload = vec![0; len];
            let stamp = Stamp { intended_ns: 123_456_789_012, number: 77 };
            write(stamp, &mut payload);
            assert_eq!(read(&payload, 123_456_800_000), Some(stamp), "{len} bytes");
            if len > 10 && len != 16 {
                payload[len - 1] ^= 1;
                assert_eq!(read(&payload, 123_456_800_000), None, "{len} bytes, damaged");
            }
        }
    }
}
