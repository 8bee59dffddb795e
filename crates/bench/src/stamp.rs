//! The content of a payload, so that every message can be checked by every client.
//!
//! 20 bytes and more: when it should have been sent in nanoseconds (8), topic (4), its number in that
//! topic (8), then filler that repeats the number's lowest byte. 10 to 19 bytes: microseconds modulo
//! 2^32 (4), topic modulo 2^16 (2), number modulo 2^32 (4), filler.

/// A stamp read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub intended_ns: u64,
    pub topic: u32,
    /// Low bits of the number; they are compared modulo 2^32.
    pub number: u32,
}

pub(crate) const BYTES_MIN: usize = 10;
const LONG: usize = 20;

pub(crate) fn write(stamp: Stamp, out: &mut [u8]) {
    let Stamp { intended_ns, topic, number } = stamp;
    let filled = if out.len() >= LONG {
        out[..8].copy_from_slice(&intended_ns.to_le_bytes());
        out[8..12].copy_from_slice(&topic.to_le_bytes());
        out[12..20].copy_from_slice(&u64::from(number).to_le_bytes());
        LONG
    } else {
        out[..4].copy_from_slice(&((intended_ns / 1_000) as u32).to_le_bytes());
        out[4..6].copy_from_slice(&(topic as u16).to_le_bytes());
        out[6..10].copy_from_slice(&number.to_le_bytes());
        BYTES_MIN
    };
    out[filled..].fill(number as u8);
}

/// Reads a stamp, or `None` if the payload is not what was written. `now_ns` completes short ones.
pub(crate) fn read(payload: &[u8], now_ns: u64) -> Option<Stamp> {
    let (stamp, filled) = if payload.len() >= LONG {
        let intended_ns = u64::from_le_bytes(payload[..8].try_into().ok()?);
        let topic = u32::from_le_bytes(payload[8..12].try_into().ok()?);
        let number = u64::from_le_bytes(payload[12..20].try_into().ok()?);
        (Stamp { intended_ns, topic, number: u32::try_from(number).ok()? }, LONG)
    } else {
        let sent_us = u32::from_le_bytes(payload.get(..4)?.try_into().ok()?);
        let age_us = ((now_ns / 1_000) as u32).wrapping_sub(sent_us);
        let intended_ns = now_ns.saturating_sub(u64::from(age_us) * 1_000);
        let topic = u16::from_le_bytes(payload.get(4..6)?.try_into().ok()?);
        let number = u32::from_le_bytes(payload.get(6..10)?.try_into().ok()?);
        (Stamp { intended_ns, topic: u32::from(topic), number }, BYTES_MIN)
    };
    let is_whole = payload[filled..].iter().all(|byte| *byte == stamp.number as u8);
    is_whole.then_some(stamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_come_back_and_damage_shows() {
        for len in [10, 12, 20, 125, 512] {
            let mut payload = vec![0; len];
            let stamp = Stamp { intended_ns: 123_456_789_000, topic: 49, number: 77 };
            write(stamp, &mut payload);
            assert_eq!(read(&payload, 123_456_800_000), Some(stamp), "{len} bytes");
            if ![10, 20].contains(&len) {
                payload[len - 1] ^= 1;
                assert_eq!(read(&payload, 123_456_800_000), None, "{len} bytes, damaged");
            }
        }
        assert_eq!(read(&[1; 9], 0), None);
    }
}
