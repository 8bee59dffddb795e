//! What is good for a minute and for one use: challenges that proofs are made of, and keys for one WebSocket. The
//! minute is of the process's own clock: a wall clock that is set back would let a proof be used again.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use model::{Code, Refusal};

use crate::proof::{Secret, is_short_proof, short_proof};

/// How long a challenge, or a key for one WebSocket, is good for.
pub const GOOD_SECONDS: u64 = 60;

/// What was used, for as long as it would be good. All shards share it, without a lock.
#[derive(Debug)]
pub struct UsedOnce {
    len_max: u64,
    /// The newest minute, and how many uses it had.
    count: AtomicU64,
    /// Buckets of places, each made when one of its is first needed. A place is one word: a part of what was used, and
    /// the minute.
    buckets: Box<[OnceLock<Box<[AtomicU64; WAYS]>>]>,
}

/// Places in a bucket.
const WAYS: usize = 64;
const MINUTE_BITS: u32 = 16;
const COUNT_BITS: u32 = 32;

/// Whether a place holds what is still good, or was noted by a shard whose clock is a little ahead.
fn is_good(word: u64, minute: u64) -> bool {
    let age = (minute as u16).wrapping_sub(word as u16);
    word != 0 && (age <= 1 || age == u16::MAX)
}

impl UsedOnce {
    /// Nothing was used; of a minute at most `len_max` uses are remembered, and no more are allowed.
    pub fn new(len_max: usize) -> Self {
        // Two minutes' uses fill half of it, so that a bucket is hardly ever full before the limit is reached.
        let count = len_max.saturating_mul(4).div_ceil(WAYS).max(1);
        let buckets = (0..count).map(|_| OnceLock::new()).collect();
        Self { len_max: len_max as u64, count: AtomicU64::new(0), buckets }
    }

    /// Notes a use.
    ///
    /// # Errors
    /// It was used before, or too much was used lately.
    pub fn take(&self, number: u64, now: Duration) -> Result<(), Refusal> {
        let minute = now.as_secs() / GOOD_SECONDS;
        let busy = || {
            let text = "cannot check more proofs in this minute: proofs_per_minute_max were used; come back later, \
                        or raise the limit in the configuration";
            Refusal::new(Code::Busy, text)
        };
        if self.count_in(minute) >= self.len_max {
            return Err(busy());
        }
        if !self.note(number, minute).ok_or_else(busy)? {
            let text = "cannot accept what was used before: a proof is good for one use, and so is a key for a \
                        WebSocket; get another challenge, or another key";
            return Err(Refusal::new(Code::BadToken, text));
        }
        let more = |count: u64| {
            let is_newer = minute > count >> COUNT_BITS;
            Some(if is_newer { minute << COUNT_BITS | 1 } else { count + 1 })
        };
        // It never fails: there is always a next count.
        let _ = self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        Ok(())
    }

    fn count_in(&self, minute: u64) -> u64 {
        let count = self.count.load(Ordering::Relaxed);
        if minute > count >> COUNT_BITS { 0 } else { count & ((1 << COUNT_BITS) - 1) }
    }

    /// Notes a number; answers false if it is there, and `None` if there is no place.
    fn note(&self, number: u64, minute: u64) -> Option<bool> {
        // Numbers are random; those of tests are spread by the multiplication.
        let spread = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let bucket = (spread >> 32) as usize % self.buckets.len();
        let part = (number << MINUTE_BITS) >> MINUTE_BITS | 1 << 47;
        let places =
            self.buckets[bucket].get_or_init(|| Box::new([const { AtomicU64::new(0) }; WAYS]));
        let noted = part << MINUTE_BITS | (minute & 0xFFFF);
        let is_it =
            |word: u64| word >> MINUTE_BITS == noted >> MINUTE_BITS && is_good(word, minute);
        let own = loop {
            let words = || places.iter().map(|place| place.load(Ordering::SeqCst));
            if words().any(is_it) {
                return Some(false);
            }
            let (at, free) = words().enumerate().find(|(_, word)| !is_good(*word, minute))?;
            let taken =
                places[at].compare_exchange(free, noted, Ordering::SeqCst, Ordering::SeqCst);
            if taken.is_ok() {
                break at;
            }
        };
        // Two shards that note the same at once may have taken a place each: then both say that it was there.
        let others = places.iter().enumerate().filter(|(at, _)| *at != own);
        Some(!others.map(|(_, place)| place.load(Ordering::SeqCst)).any(is_it))
    }
}

/// A challenge that only we can have made, and only lately.
pub fn challenge(secret: &Secret, now: Duration, nonce: u64) -> String {
    let text = format!("{:x}.{nonce:x}", now.as_secs());
    let proof = short_proof(secret, &text);
    format!("{text}.{proof}")
}

/// Whether a challenge is ours and of the last minute.
pub fn is_fresh(challenge: &str, secret: &Secret, now: Duration) -> bool {
    let Some((text, proof)) = challenge.rsplit_once('.') else { return false };
    let seconds = text.split('.').next().and_then(|text| u64::from_str_radix(text, 16).ok());
    is_short_proof(secret, text, proof)
        && seconds.is_some_and(|seconds| now.as_secs().saturating_sub(seconds) <= GOOD_SECONDS)
}

/// A key that opens one WebSocket for one device, for those who cannot set header fields.
pub fn one_time_key(name: &str, secret: &Secret, now: Duration, nonce: u64) -> String {
    let until = now.as_secs() + GOOD_SECONDS;
    let text = format!("{until:x}.{nonce:x}");
    let proof = short_proof(secret, &format!("one-time {text} {name}"));
    format!("{text}.{proof}")
}

/// Lets a key open its WebSocket for this device, once.
///
/// # Errors
/// It is none of ours for this device, or too old, or it was used.
pub fn use_one_time_key(
    key: &str,
    name: &str,
    secret: &Secret,
    now: Duration,
    used: &UsedOnce,
) -> Result<(), Refusal> {
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    let read = || {
        let (text, proof) = key.rsplit_once('.')?;
        let (until, nonce) = text.split_once('.')?;
        let is_ours = is_short_proof(secret, &format!("one-time {text} {name}"), proof);
        let until = number(until).filter(|until| is_ours && *until >= now.as_secs());
        until.and_then(|_| number(nonce))
    };
    let wrong = || {
        let text = format!(
            "cannot accept the key: it is not for `{name}`, or older than {GOOD_SECONDS} s; get another"
        );
        Refusal::new(Code::BadToken, text)
    };
    used.take(read().ok_or_else(wrong)?, now)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_one_time_key_opens_once_for_a_minute() {
        let (secret, used) = ([7; 32], UsedOnce::new(100));
        let key = one_time_key("a/d1", &secret, at(1_000), 99);
        let opens = |key: &str, name: &str, seconds| {
            use_one_time_key(key, name, &secret, at(seconds), &used).is_ok()
        };
        assert!(!opens(&key, "a/d2", 1_000) && !opens("1.2.3", "a/d1", 1_000));
        assert!(opens(&key, "a/d1", 1_050));
        assert!(!opens(&key, "a/d1", 1_050), "it was used");
        let late = one_time_key("a/d1", &secret, at(1_000), 100);
        assert!(!opens(&late, "a/d1", 1_061));
    }

    #[test]
    fn what_was_used_is_known_for_as_long_as_it_is_good_and_no_longer() {
        let used = UsedOnce::new(2);
        let take = |number, seconds: u64| used.take(number, at(seconds)).map_err(|it| it.code);
        assert_eq!(take(1, 59), Ok(()));
        assert_eq!(take(1, 60), Err(Code::BadToken));
        assert_eq!(take(1, 119), Err(Code::BadToken), "it is good until then");
        assert_eq!((take(2, 119), take(3, 119)), (Ok(()), Ok(())));
        assert_eq!(take(4, 119), Err(Code::Busy), "there is a limit");
        assert_eq!((take(4, 120), take(1, 180)), (Ok(()), Ok(())));
    }

    #[test]
    fn of_threads_that_use_the_same_at_once_at_most_one_may() {
        let used = UsedOnce::new(100_000);
        let take_all = || (0..5_000).filter(|number| used.take(*number, at(1)).is_ok()).count();
        let taken: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(take_all)).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
        });
        assert!(taken <= 5_000, "{taken}");
        assert_eq!((0..5_000).filter(|number| used.take(*number, at(1)).is_ok()).count(), 0);
    }

    #[test]
    fn a_minute_takes_its_limit_of_random_uses() {
        let used = UsedOnce::new(20_000);
        let number = |turn: u64| turn.wrapping_mul(0xD129_0D5E_7A2B_C4A5) ^ turn << 31;
        for minute in 0..3 {
            let taken = (0..20_000)
                .filter(|turn| used.take(number(turn + minute * 20_000), at(minute * 60)).is_ok());
            assert_eq!(taken.count(), 20_000, "minute {minute}");
        }
    }

    #[test]
    fn a_challenge_is_ours_and_of_the_last_minute() {
        let challenge = challenge(&[7; 32], at(1_000), 5);
        assert!(is_fresh(&challenge, &[7; 32], at(1_060)));
        assert!(!is_fresh(&challenge, &[7; 32], at(1_061)));
        assert!(!is_fresh(&challenge, &[8; 32], at(1_000)));
        assert!(!is_fresh("", &[7; 32], at(1_000)) && !is_fresh("zz.5.00", &[7; 32], at(1_000)));
    }
}
