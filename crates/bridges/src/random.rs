//! Random numbers that spread pauses.

/// Numbers that spread pauses: SplitMix64.
#[derive(Debug)]
pub(crate) struct Random(pub u64);

impl Random {
    /// The next number from 0 to 1.
    pub(crate) fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed >> 33) as f64 / f64::from(1u32 << 31)
    }
}
