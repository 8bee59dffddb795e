//! How many lines of the log tell of what is refused: each kind for each address a few in a minute, the rest as a
//! number. What clients make the server write is bounded: by address and code, and by the number of addresses that
//! are told apart.

use std::fmt;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use model::{Code, RandomState};

use crate::addresses::network_address;

/// Lines in a minute about one code and one address (of IPv6: one /64).
pub const LINES_PER_MINUTE: u64 = 3;
/// Pairs of code and address that are told apart; two that share a place share its lines.
const PLACES: usize = 1_024;
/// Characters of a text that are written.
const TEXT_CHARS: usize = 600;

/// How much was written of what was refused. All shards share it, without a lock.
#[derive(Debug)]
pub struct Refusals {
    hasher: RandomState,
    /// For each pair of code and address the minute, in the upper half, and the lines in it.
    places: Box<[AtomicU64]>,
    /// Of each code, those that no line tells of.
    untold: Box<[AtomicU64]>,
    told_at_minute: AtomicU64,
}

impl Refusals {
    /// Nothing was refused.
    pub fn new() -> Self {
        let zeros = |count: usize| (0..count).map(|_| AtomicU64::new(0)).collect();
        Self {
            hasher: RandomState::default(),
            places: zeros(PLACES),
            untold: zeros(Code::ALL.len()),
            told_at_minute: AtomicU64::new(0),
        }
    }

    /// Whether a line tells of a refusal; otherwise it is counted.
    pub fn is_told(&self, code: Code, peer: Option<IpAddr>, unix_ms: u64) -> bool {
        let minute = unix_ms / 60_000;
        let hash = self.hasher.hash_one((code.number(), peer.map(network_address)));
        let place = &self.places[hash as usize % PLACES];
        let next = |word: u64| {
            let (known, count) = (word >> 32, word & 0xFFFF_FFFF);
            // A shard whose turn began before may be in the minute before still.
            let (minute, count) = match known == minute || known == minute + 1 {
                true => (known, count),
                false => (minute, 0),
            };
            (count < LINES_PER_MINUTE).then_some(minute << 32 | (count + 1))
        };
        let is_told = place.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok();
        if !is_told && let Some(at) = Code::ALL.iter().position(|known| *known == code) {
            self.untold[at].fetch_add(1, Ordering::Relaxed);
        }
        is_told
    }

    /// What no line told of, once a minute: each code, and how many were refused with it.
    pub fn poll_untold(&self, unix_ms: u64) -> impl Iterator<Item = (Code, u64)> {
        let minute = unix_ms / 60_000;
        let told_at = self.told_at_minute.swap(minute, Ordering::Relaxed);
        let is_due = told_at != minute && told_at != 0;
        let untold = Code::ALL.iter().zip(&self.untold).filter(move |_| is_due);
        let counted = untold.map(|(code, untold)| (*code, untold.swap(0, Ordering::Relaxed)));
        counted.filter(|(_, count)| *count > 0)
    }
}

impl Default for Refusals {
    fn default() -> Self {
        Self::new()
    }
}

/// Text that a client had a part in, on one line and bounded.
pub struct Plain<'a>(pub &'a str);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, c) in self.0.chars().enumerate() {
            match c {
                _ if at == TEXT_CHARS => return f.write_str(" …"),
                c if c.is_control() => write!(f, "{}", c.escape_default())?,
                c => write!(f, "{c}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_few_lines_a_minute_for_each_code_and_the_rest_is_counted() {
        let refusals = Refusals::new();
        let told = |code, peer: &str, unix_ms| {
            let peer = Some(peer.parse().expect("an address"));
            (0..10).filter(|_| refusals.is_told(code, peer, unix_ms)).count()
        };
        assert_eq!(told(Code::NotAllowed, "10.0.0.1", 0), 3);
        assert_eq!(told(Code::NotAllowed, "10.0.0.1", 59_999), 0);
        assert_eq!(told(Code::NotAllowed, "10.0.0.1", 60_000), 3);
        assert_eq!(told(Code::NotAllowed, "10.0.0.1", 59_990), 0, "a shard is a moment behind");
        let at = Code::ALL.iter().position(|code| *code == Code::NotAllowed).expect("a code");
        assert_eq!(refusals.untold[at].load(Ordering::Relaxed), 34);
        let rest_after = |unix_ms| {
            refusals.poll_untold(unix_ms).for_each(drop);
            refusals.untold[at].load(Ordering::Relaxed)
        };
        assert_eq!((rest_after(60_000), rest_after(119_999)), (34, 34), "the minute is not over");
        assert_eq!(rest_after(120_000), 0);
    }

    #[test]
    fn however_many_addresses_are_refused_the_lines_are_bounded() {
        let refusals = Refusals::new();
        let is_told = |number: u32| {
            let peer = IpAddr::from(number.to_be_bytes());
            refusals.is_told(Code::BadToken, Some(peer), 0)
        };
        let told = (0..100_000).filter(|number| is_told(*number)).count();
        assert!(told <= PLACES * LINES_PER_MINUTE as usize, "{told}");
    }

    #[test]
    fn what_a_client_says_stays_on_its_line() {
        let text = format!("{}", Plain("a\nWARN all is well\u{1b}[2J"));
        assert_eq!(text, "a\\nWARN all is well\\u{1b}[2J");
        let long = format!("{}", Plain(&"x".repeat(10_000)));
        assert_eq!(long.chars().count(), TEXT_CHARS + 2);
    }
}
