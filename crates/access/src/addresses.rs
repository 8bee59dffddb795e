//! Clients by the address that they come from: how many connections each has, how much it asks, how often its
//! tokens were wrong. All shards share the counts, without a lock; there are only so many places for them.

use std::hash::BuildHasher;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use model::{Code, Limits, RandomState, Refusal};

use crate::ranges::AddressRange;

/// The fields of a request: names in lower case, and values.
pub type Fields<'a> = &'a [(String, String)];

/// Where a client's counts stand. Whoever has one address of IPv6 has the 64 bits behind it as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    bucket: u32,
    fingerprint: u32,
}

/// A connection's place among those that are counted, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted(NonZeroU32);

impl Counted {
    fn slot(self) -> u32 {
        self.0.get() - 1
    }
}

/// The counts of all clients.
#[derive(Clone, Debug)]
pub struct Addresses {
    hasher: RandomState,
    proxies: Vec<AddressRange>,
    connections: Arc<Counts>,
    requests: Arc<Counts>,
    failures: Arc<Counts>,
}

impl Addresses {
    /// Nothing was counted; `proxies` say whom they speak for.
    pub fn new(proxies: &[AddressRange], limits: &Limits) -> Self {
        let counts = |window_bits| Arc::new(Counts::new(limits.addresses_max, window_bits));
        Self {
            hasher: RandomState::default(),
            proxies: proxies.to_vec(),
            connections: counts(0),
            requests: counts(12),
            failures: counts(12),
        }
    }

    /// The same counts; others say whom they speak for.
    pub(crate) fn with_proxies(&self, proxies: &[AddressRange]) -> Self {
        Self { proxies: proxies.to_vec(), ..self.clone() }
    }

    /// The network of an address; this machine's own are not counted.
    fn network_of(&self, address: IpAddr) -> Option<Network> {
        if address.to_canonical().is_loopback() {
            return None;
        }
        let hash = self.hasher.hash_one(network_address(address));
        let bucket = (hash >> 32) % self.connections.bucket_count();
        Some(Network { bucket: bucket as u32, fingerprint: hash as u32 | 1 })
    }

    /// Whether it is the address of one of the operator's proxies.
    pub fn is_proxy(&self, address: IpAddr) -> bool {
        self.proxies.iter().any(|range| range.contains(address))
    }

    /// Whose connection this is that was just accepted. A proxy's is its clients'.
    pub fn of_peer(&self, peer: IpAddr) -> Option<Network> {
        if self.is_proxy(peer) { None } else { self.network_of(peer) }
    }

    /// Whether a request may name a client that somebody speaks for.
    pub fn may_be_vouched(&self, fields: Fields<'_>) -> bool {
        let is_field = |name: &str| name == "x-forwarded-for" || name == "forwarded";
        !self.proxies.is_empty() && fields.iter().any(|(name, _)| is_field(name))
    }

    /// Whom a proxy of ours at `peer` speaks for: the last of those that it names who is not a proxy himself. Who is
    /// named before that was named by a stranger.
    pub fn vouched_by(&self, peer: IpAddr, fields: Fields<'_>) -> Option<Network> {
        if !self.is_proxy(peer) {
            return self.network_of(peer);
        }
        let mut client = peer;
        for text in forwarded_for(fields).iter().rev() {
            let Some(address) = parse_node(text) else { break };
            client = address;
            if !self.is_proxy(address) {
                break;
            }
        }
        self.network_of(client)
    }

    /// Counts a connection of `network`; answers nothing where no place is left.
    ///
    /// # Errors
    /// It has as many as it may.
    pub fn connect(&self, network: Network, limits: &Limits) -> Result<Option<Counted>, Refusal> {
        let count_max = limits.connections_per_address_max;
        let Some((slot, count)) = self.connections.add(network, 0) else { return Ok(None) };
        if count <= count_max as u64 {
            return Ok(NonZeroU32::new(slot + 1).map(Counted));
        }
        self.connections.take_off(slot);
        let text = format!(
            "cannot take another connection from this address: connections_per_address_max is {count_max}; close \
             some, or raise the limit in the configuration"
        );
        Err(Refusal::new(Code::AddressLimit, text))
    }

    /// A counted connection is gone.
    pub fn disconnect(&self, counted: Counted) {
        self.connections.take_off(counted.slot());
    }

    /// Whose a counted connection is.
    pub fn of_counted(&self, counted: Counted) -> Network {
        let slot = counted.slot();
        let fingerprint = self.connections.fingerprint(slot);
        Network { bucket: slot / WAYS as u32, fingerprint }
    }

    /// Counts a request.
    ///
    /// # Errors
    /// There were as many as may be in this second.
    pub fn request(&self, network: Network, unix_ms: u64, limits: &Limits) -> Result<(), Refusal> {
        let count_max = limits.requests_per_second_per_address_max;
        let counted = self.requests.add(network, unix_ms / 1_000);
        if counted.is_none_or(|(_, count)| count <= count_max as u64) {
            return Ok(());
        }
        let text = format!(
            "cannot take more requests from this address in this second: requests_per_second_per_address_max is \
             {count_max}; ask less often, or raise the limit in the configuration"
        );
        Err(Refusal::new(Code::AddressLimit, text))
    }

    /// Whether tokens and keys from a network may be checked.
    ///
    /// # Errors
    /// Too many were wrong in this minute.
    pub fn check_failures(
        &self,
        network: Network,
        unix_ms: u64,
        limits: &Limits,
    ) -> Result<(), Refusal> {
        let count_max = limits.failed_keys_per_minute_max;
        if self.failures.count(network, unix_ms / 60_000) < count_max as u64 {
            return Ok(());
        }
        let text = format!(
            "cannot check more tokens or keys from this address in this minute: failed_keys_per_minute_max \
             ({count_max}) were wrong; put yours right, and come back in a minute"
        );
        Err(Refusal::new(Code::TooManyFailures, text))
    }

    /// Notes a wrong token or key.
    pub fn note_failure(&self, network: Network, unix_ms: u64) {
        self.failures.add(network, unix_ms / 60_000);
    }
}

/// The address that stands for a network: whoever has one of IPv6 has the 64 bits behind it as well.
pub(crate) fn network_address(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into()
        }
        address => address,
    }
}

/// Those for whom a request was forwarded, the nearest last. RFC 7239; X-Forwarded-For goes before it.
fn forwarded_for(fields: Fields<'_>) -> Vec<&str> {
    let values = |wanted: &'static str| {
        let fields = fields.iter().filter(move |(name, _)| name == wanted);
        fields.flat_map(|(_, value)| value.split(',')).map(str::trim)
    };
    let said: Vec<&str> = values("x-forwarded-for").collect();
    if !said.is_empty() {
        return said;
    }
    let node = |element: &'_ str| -> Option<(usize, usize)> {
        let at = element.to_ascii_lowercase().find("for=")? + 4;
        let end = element[at..].find(';').map_or(element.len(), |end| at + end);
        Some((at, end))
    };
    values("forwarded")
        .map(|element| node(element).map_or("", |(at, end)| &element[at..end]))
        .collect()
}

/// An address, with a port or without, in quotes or not.
fn parse_node(text: &str) -> Option<IpAddr> {
    let text = text.trim().trim_matches('"');
    if let Some(rest) = text.strip_prefix('[') {
        return rest.split_once(']')?.0.parse().ok();
    }
    let is_v4_with_port = text.matches(':').count() == 1;
    let text = if is_v4_with_port { text.split_once(':')?.0 } else { text };
    text.parse().ok()
}

/// Places in a bucket: a network is counted in one of its bucket's, or not at all.
const WAYS: usize = 8;

/// Counts by network. Each place is one word: a fingerprint, the window that the count is of, the count.
#[derive(Debug)]
struct Counts {
    words: Box<[AtomicU64]>,
    window_bits: u32,
}

impl Counts {
    fn new(len: usize, window_bits: u32) -> Self {
        let len = len.max(1).next_multiple_of(WAYS);
        Self { words: (0..len).map(|_| AtomicU64::new(0)).collect(), window_bits }
    }

    fn bucket_count(&self) -> u64 {
        (self.words.len() / WAYS) as u64
    }

    fn count_bits(&self) -> u32 {
        32 - self.window_bits
    }

    fn count_of(&self, word: u64) -> u64 {
        word & ((1 << self.count_bits()) - 1)
    }

    fn word(&self, fingerprint: u32, window: u64, count: u64) -> u64 {
        let window = window & ((1 << self.window_bits) - 1);
        u64::from(fingerprint) << 32 | window << self.count_bits() | count
    }

    fn is_of_window(&self, word: u64, window: u64) -> bool {
        self.word(0, window, 0) == word & 0xFFFF_FFFF & !((1 << self.count_bits()) - 1)
    }

    fn slots(network: Network) -> std::ops::Range<usize> {
        let first = network.bucket as usize * WAYS;
        first..first + WAYS
    }

    fn fingerprint(&self, slot: u32) -> u32 {
        (self.words[slot as usize].load(Ordering::Relaxed) >> 32) as u32
    }

    /// Adds one; answers the place and how many there are, or `None` if there is no place.
    fn add(&self, network: Network, window: u64) -> Option<(u32, u64)> {
        loop {
            let (mut known, mut free) = (None, None);
            for slot in Self::slots(network) {
                let word = self.words[slot].load(Ordering::Relaxed);
                let is_over = self.count_of(word) == 0 || !self.is_of_window(word, window);
                if (word >> 32) as u32 == network.fingerprint && !is_over {
                    known = Some((slot, word));
                    break;
                }
                if is_over && free.is_none() {
                    free = Some((slot, word));
                }
            }
            let (slot, word) = known.or(free)?;
            let before = if known.is_some() { self.count_of(word) } else { 0 };
            let count = (before + 1).min((1 << self.count_bits()) - 1);
            let new = self.word(network.fingerprint, window, count);
            let word =
                &self.words[slot].compare_exchange(word, new, Ordering::Relaxed, Ordering::Relaxed);
            if word.is_ok() {
                // Two that came first at the same time may have taken a place each.
                return Some((slot as u32, self.count(network, window)));
            }
        }
    }

    fn count(&self, network: Network, window: u64) -> u64 {
        let words =
            self.words[Self::slots(network)].iter().map(|word| word.load(Ordering::Relaxed));
        let is_its = |word: &u64| {
            (*word >> 32) as u32 == network.fingerprint && self.is_of_window(*word, window)
        };
        words.filter(is_its).map(|word| self.count_of(word)).sum()
    }

    fn take_off(&self, slot: u32) {
        let less = |word: u64| match self.count_of(word) {
            0 => None,
            1 => Some(0),
            _ => Some(word - 1),
        };
        // It fails only where there is nothing to take off.
        let _ = self.words[slot as usize].fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(proxies: &[&str], limits: &Limits) -> Addresses {
        let range = |text: &&str| AddressRange::parse(text).expect("valid");
        Addresses::new(&proxies.iter().map(range).collect::<Vec<_>>(), limits)
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_network_is_an_address_or_half_of_one_and_this_machine_is_none() {
        let known = addresses(&[], &Limits::default());
        let of = |text: &str| known.of_peer(ip(text));
        assert_eq!(of("2001:db8::1"), of("2001:db8::2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("10.0.0.1"), of("::ffff:10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
        for own in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"] {
            assert_eq!(of(own), None, "{own}");
        }
    }

    #[test]
    fn neighbours_are_told_apart() {
        let known = addresses(&[], &Limits::default());
        let network = |number: u32| known.of_peer(IpAddr::from(number.to_be_bytes()));
        let all: model::HashSet<_> = (0..50_000)
            .map(|at| network(0x0A00_0000 + at).expect("counted"))
            .map(|network| (network.bucket, network.fingerprint))
            .collect();
        assert!(all.len() >= 49_999, "{}", all.len());
    }

    #[test]
    fn a_client_is_whom_the_last_of_our_proxies_speaks_for() {
        let known = addresses(&["127.0.0.0/8", "10.0.0.0/8", "fd00::/8"], &Limits::default());
        let client = |peer: &str, fields: &str| {
            let fields: Vec<_> = fields
                .lines()
                .map(|line| line.split_once(": ").expect("a field"))
                .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
                .collect();
            known.vouched_by(ip(peer), &fields)
        };
        let is = |text: &str| known.network_of(ip(text));
        for (peer, fields, expected) in [
            ("127.0.0.1", "X-Forwarded-For: 9.9.9.9\r\n", is("9.9.9.9")),
            ("127.0.0.1", "X-Forwarded-For: 1.1.1.1, 9.9.9.9, 10.1.1.1\r\n", is("9.9.9.9")),
            (
                "127.0.0.1",
                "X-Forwarded-For: 1.1.1.1\r\nX-Forwarded-For: 9.9.9.9:80\r\n",
                is("9.9.9.9"),
            ),
            ("127.0.0.1", "X-Forwarded-For: [2001:db8::1]:80\r\n", is("2001:db8::9")),
            (
                "127.0.0.1",
                "Forwarded: for=1.1.1.1, proto=https;for=\"[2001:db8::1]:80\";by=x\r\n",
                is("2001:db8::"),
            ),
            ("127.0.0.1", "X-Forwarded-For: 9.9.9.9, unknown\r\n", None),
            ("127.0.0.1", "X-Forwarded-For: 9.9.9.9, unknown, 10.1.1.1\r\n", is("10.1.1.1")),
            ("127.0.0.1", "", None),
            ("8.8.8.8", "X-Forwarded-For: 9.9.9.9\r\n", is("8.8.8.8")),
        ] {
            assert_eq!(client(peer, fields), expected, "{peer}: {fields}");
        }
        assert_eq!(known.of_peer(ip("10.1.1.1")), None, "its clients are counted, not it");
    }

    #[test]
    fn connections_of_an_address_are_counted_until_they_go() {
        let limits = Limits { connections_per_address_max: 2, ..Limits::default() };
        let known = addresses(&[], &limits);
        let (one, other) = (ip("10.0.0.1"), ip("10.0.0.2"));
        let connect = |from| known.connect(known.of_peer(from).expect("counted"), &limits);
        let first = connect(one).expect("the first").expect("a place");
        assert_eq!(Some(known.of_counted(first)), known.of_peer(one));
        connect(one).expect("the second");
        assert_eq!(connect(one).expect_err("the third").code, Code::AddressLimit);
        connect(other).expect("another address");
        known.disconnect(first);
        connect(one).expect("one went");
    }

    #[test]
    fn requests_count_for_a_second_and_wrong_tokens_for_a_minute() {
        let limits = Limits {
            requests_per_second_per_address_max: 2,
            failed_keys_per_minute_max: 2,
            ..Limits::default()
        };
        let known = addresses(&[], &limits);
        let network = known.of_peer(ip("10.0.0.1")).expect("counted");
        let other = known.of_peer(ip("10.0.0.2")).expect("counted");
        let ask = |network, ms| known.request(network, ms, &limits).is_ok();
        assert!(ask(network, 1_000) && ask(network, 1_999) && !ask(network, 1_999));
        assert!(ask(other, 1_999) && ask(network, 2_000));
        let check = |network, ms| known.check_failures(network, ms, &limits).is_ok();
        known.note_failure(network, 60_000);
        assert!(check(network, 60_000));
        known.note_failure(network, 119_999);
        assert!(!check(network, 119_999) && check(other, 119_999) && check(network, 120_000));
    }

    #[test]
    fn there_are_only_so_many_places_and_old_counts_make_room() {
        let limits =
            Limits { addresses_max: 8, failed_keys_per_minute_max: 1, ..Limits::default() };
        let known = addresses(&[], &limits);
        let network = |last: u8| known.of_peer(IpAddr::from([10, 0, 0, last])).expect("counted");
        let is_refused = |last, ms| known.check_failures(network(last), ms, &limits).is_err();
        (0..20).for_each(|last| known.note_failure(network(last), 0));
        assert_eq!((0..20).filter(|last| is_refused(*last, 0)).count(), 8);
        known.note_failure(network(30), 60_000);
        assert!(is_refused(30, 60_000));
    }

    #[test]
    fn threads_lose_no_count() {
        let limits = Limits { addresses_max: 64, ..Limits::default() };
        let known = addresses(&[], &limits);
        let network = |last: u8| known.of_peer(IpAddr::from([10, 0, 0, last])).expect("counted");
        let connect = || {
            let turns = (0..4_000).map(|turn| known.connect(network(turn as u8 % 3), &limits));
            turns.map(|counted| counted.expect("room").expect("a place")).collect::<Vec<_>>()
        };
        let all: Vec<Counted> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(connect)).collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
        });
        let counts: u64 = (0..3).map(|last| known.connections.count(network(last), 0)).sum();
        assert_eq!(counts, 16_000);
        all.into_iter().for_each(|counted| known.disconnect(counted));
        assert!(known.connections.words.iter().all(|word| word.load(Ordering::Relaxed) == 0));
    }
}
