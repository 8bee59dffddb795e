//! Keys that were wrong, by the address that they came from: who guesses is refused for the rest of the minute.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

use model::{Code, Limits, Refusal};

/// What a shard counted in this minute.
#[derive(Debug, Default)]
pub(crate) struct FailedKeys {
    minute: u64,
    by_address: HashMap<IpAddr, usize>,
    /// Addresses that are refused now.
    refused: usize,
}

/// Whoever has one address of IPv6 has the 64 bits behind it as well.
fn network_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(address) => address.into(),
            None => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        },
    }
}

impl FailedKeys {
    /// Whether some address is refused, so that one that asks has to be looked up.
    pub(super) fn is_refusing(&mut self, unix_ms: u64) -> bool {
        let minute = unix_ms / 60_000;
        if minute != self.minute {
            *self = Self { minute, ..Self::default() };
        }
        self.refused > 0
    }

    /// Whether keys from an address may be checked.
    ///
    /// # Errors
    /// Too many were wrong in this minute.
    pub(super) fn check(&self, address: IpAddr, limits: &Limits) -> Result<(), Refusal> {
        let count = self.by_address.get(&network_of(address)).copied().unwrap_or(0);
        if count < limits.failed_keys_per_minute_max {
            return Ok(());
        }
        let text = format!(
            "cannot check more keys from this address in this minute: failed_keys_per_minute_max ({count}) were \
             wrong; put the key right, and come back in a minute"
        );
        Err(Refusal::new(Code::TooManyFailures, text))
    }

    /// Notes a wrong key. Of more addresses than may be remembered, those that came first are.
    pub(super) fn note(&mut self, address: IpAddr, limits: &Limits) {
        let network = network_of(address);
        let is_full = self.by_address.len() >= limits.failed_keys_addresses_max;
        if is_full && !self.by_address.contains_key(&network) {
            return;
        }
        let count = self.by_address.entry(network).or_default();
        *count += 1;
        self.refused += usize::from(*count == limits.failed_keys_per_minute_max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_guesses_is_refused_until_the_minute_is_over_and_nobody_else_is() {
        let limits = Limits {
            failed_keys_per_minute_max: 2,
            failed_keys_addresses_max: 2,
            ..Limits::default()
        };
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        let mut failed = FailedKeys::default();
        assert!(!failed.is_refusing(60_000));
        failed.note(address("2001:db8::1"), &limits);
        assert!(!failed.is_refusing(60_000));
        failed.note(address("2001:db8::2"), &limits);
        assert!(failed.is_refusing(60_000));
        let refused =
            |failed: &FailedKeys, text: &str| failed.check(address(text), &limits).is_err();
        assert!(refused(&failed, "2001:db8::3") && !refused(&failed, "2001:db8:1::1"));
        for _ in 0..2 {
            failed.note(address("10.0.0.1"), &limits);
            failed.note(address("10.0.0.2"), &limits);
        }
        assert!(refused(&failed, "::ffff:10.0.0.1"), "the same, by another name");
        assert!(!refused(&failed, "10.0.0.2"), "it was not remembered");
        assert!(!failed.is_refusing(120_000) && !refused(&failed, "10.0.0.1"));
    }
}
