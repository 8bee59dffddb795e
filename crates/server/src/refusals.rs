//! What clients are refused, as the log tells it: each kind for each address a few times a minute, the rest as a number.
//!
//! A refusal is one line with its code, its text and whom it met, so that the log alone says why a client got nothing. What
//! clients make the server write is bounded: by address and code, and by the number of addresses that are told apart.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};

use engine::{Io, Socket};
use model::{Code, Refusal};
use tracing::Level;

use crate::connection::State;
use crate::shard::Shard;

/// Lines in a minute about one code and one address (of IPv6: one /64).
const LINES_PER_MINUTE: u64 = 3;
/// Pairs of code and address that are told apart; two that share a place share its lines.
const PLACES: usize = 1_024;
/// Characters of a text that are written.
const TEXT_CHARS: usize = 600;

/// How much was written of what was refused. All shards share it, without a lock.
#[derive(Debug)]
pub(crate) struct Refusals {
    hasher: RandomState,
    /// For each pair of code and address the minute, in the upper half, and the lines in it.
    places: Box<[AtomicU64]>,
    /// Of each code, those that no line tells of.
    untold: Box<[AtomicU64]>,
    told_at_minute: AtomicU64,
}

impl Refusals {
    pub fn new() -> Self {
        let zeros = |count: usize| (0..count).map(|_| AtomicU64::new(0)).collect();
        Self {
            hasher: RandomState::new(),
            places: zeros(PLACES),
            untold: zeros(Code::ALL.len()),
            told_at_minute: AtomicU64::new(0),
        }
    }

    /// Whether a line tells of a refusal; otherwise it is counted.
    fn is_told(&self, code: Code, peer: Option<IpAddr>, unix_ms: u64) -> bool {
        let minute = unix_ms / 60_000;
        let hash = self.hasher.hash_one((code.number(), peer.map(network_of)));
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

    /// Tells once a minute what no line told of.
    pub fn tell_rest(&self, unix_ms: u64) {
        let minute = unix_ms / 60_000;
        let told_at = self.told_at_minute.swap(minute, Ordering::Relaxed);
        if told_at == minute || told_at == 0 {
            return;
        }
        for (code, untold) in Code::ALL.iter().zip(&self.untold) {
            let count = untold.swap(0, Ordering::Relaxed);
            if count > 0 {
                let (number, word) = (code.number(), code.word());
                tracing::info!(
                    count,
                    code = number,
                    word,
                    "as many more were refused: {LINES_PER_MINUTE} lines a minute tell of one code and address"
                );
            }
        }
    }
}

/// Whoever has one address of IPv6 has the 64 bits behind it as well.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into()
        }
        address => address,
    }
}

/// How much a refusal is worth: what is the server's own bound may need the operator, what happens in ordinary traffic
/// is for those who look closely. Names of hosts and origins are told once each elsewhere.
fn level_of(code: Code) -> Level {
    match code {
        Code::TooManyConnections
        | Code::TooSlow
        | Code::TooManyTopics
        | Code::NotKept
        | Code::OutOfMemory
        | Code::TooManyFailures
        | Code::AddressLimit => Level::WARN,
        Code::GoingAway
        | Code::NoSession
        | Code::ResponseRolled
        | Code::NoHandler
        | Code::TimedOut
        | Code::HandlerGone
        | Code::DeviceGone
        | Code::NoDevice
        | Code::Declined
        | Code::NoRequest
        | Code::NotFound
        | Code::SequenceMismatch
        | Code::UnknownHost
        | Code::ForeignOrigin => Level::DEBUG,
        _ => Level::INFO,
    }
}

/// Text that a client had a part in, on one line and bounded.
pub(crate) struct Plain<'a>(pub &'a str);

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

impl<I: Io> Shard<I> {
    /// Counts a refusal of what came on a connection of this shard, and tells the operator.
    pub(crate) fn note_refusal(&mut self, socket: Socket, refusal: &Refusal) {
        self.refusals += 1;
        match level_of(refusal.code) {
            Level::WARN if tracing::enabled!(Level::WARN) => {}
            Level::INFO if tracing::enabled!(Level::INFO) => {}
            Level::DEBUG if tracing::enabled!(Level::DEBUG) => {}
            _ => return,
        }
        let peer = self.io.peer_address(socket);
        if self.access.refusals.is_told(refusal.code, peer, self.now.unix_ms) {
            self.tell_refusal(socket, peer, refusal);
        }
    }

    /// Tells those who look closely that a session begins, and for whom.
    pub(crate) fn log_opening(&self, socket: Socket, principal: &str) {
        if tracing::enabled!(Level::DEBUG) {
            let session = self.open_connection(socket).map(|open| self.session_name(open.serial));
            let peer = self.io.peer_address(socket).map(tracing::field::display);
            tracing::debug!(session, principal, peer, "session opened");
        }
    }

    fn tell_refusal(&self, socket: Socket, peer: Option<IpAddr>, refusal: &Refusal) {
        let open = self.open_connection(socket);
        let native = open.and_then(|open| open.state.native().map(|it| (open.serial, it)));
        let session = native.map(|(serial, _)| self.session_name(serial));
        let principal = native.map(|(_, native)| &*native.principal.name);
        let client = native.and_then(|_| self.handling.client_on(socket.0));
        let (client, device) = (
            client.map(Plain),
            match open.map(|open| &open.state) {
                Some(State::Device(attached)) => Some(Plain(attached.name())),
                _ => None,
            },
        );
        let (code, word, text) = (refusal.code.number(), refusal.code.word(), Plain(&refusal.text));
        let (peer, session) = (peer.map(tracing::field::display), session.as_deref());
        let (client, device) =
            (client.map(tracing::field::display), device.map(tracing::field::display));
        macro_rules! tell {
            ($level:ident) => {
                tracing::$level!(
                    code,
                    word,
                    peer,
                    session,
                    principal,
                    client,
                    device,
                    "refused: {text}"
                )
            };
        }
        match level_of(refusal.code) {
            Level::WARN => tell!(warn),
            Level::INFO => tell!(info),
            _ => tell!(debug),
        }
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
            refusals.tell_rest(unix_ms);
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
