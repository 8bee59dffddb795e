//! Ranges of addresses, such as `10.0.0.0/8`.

use std::net::IpAddr;

/// A range of addresses: those whose first bits are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    address: IpAddr,
    bits: u32,
}

impl AddressRange {
    /// The range written `ADDRESS/BITS`, or `ADDRESS` for one.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, bits) =
            text.split_once('/').map_or((text, None), |(one, bits)| (one, Some(bits)));
        let address: IpAddr = address.parse().ok()?;
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Some(bits_max), |bits| bits.parse().ok())?;
        (bits <= bits_max).then_some(Self { address, bits })
    }

    /// Whether an address is in it; one of IPv4 may be written as IPv6.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                (own.to_bits() ^ other.to_bits()).checked_shr(32 - self.bits).unwrap_or(0) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                (own.to_bits() ^ other.to_bits()).checked_shr(128 - self.bits).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_holds_what_begins_like_it() {
        for (range, address, is_in) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.0/8", "::ffff:10.0.0.1", true),
            ("0.0.0.0/0", "9.9.9.9", true),
            ("0.0.0.0/0", "2001:db8::1", false),
            ("10.0.0.1", "10.0.0.1", true),
            ("10.0.0.1", "10.0.0.2", false),
            ("2001:db8::/33", "2001:db8:7fff::", true),
            ("2001:db8::/33", "2001:db8:8000::", false),
            ("::/0", "::1", true),
        ] {
            let parsed = AddressRange::parse(range).expect("valid");
            assert_eq!(
                parsed.contains(address.parse().expect("valid")),
                is_in,
                "{range} {address}"
            );
        }
        for wrong in ["", "10.0.0.0/33", "10.0.0/8", "10.0.0.0/", "a/8", "::/129", "10.0.0.0/-1"] {
            assert_eq!(AddressRange::parse(wrong), None, "{wrong}");
        }
    }
}
