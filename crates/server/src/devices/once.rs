//! What is good for a minute and for one use: challenges that proofs are made of, and keys for one WebSocket.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use model::{Code, Refusal};

use crate::proof::{Secret, is_short_proof, short_proof};

/// How long a challenge, or a key for one WebSocket, is good for.
pub(super) const GOOD_SECONDS: u64 = 60;

/// What was used, for as long as it would be good. All shards share it.
#[derive(Debug)]
pub(crate) struct UsedOnce {
    len_max: usize,
    used: Mutex<Used>,
}

/// Uses of this minute and of the one before.
#[derive(Debug, Default)]
struct Used {
    minute: u64,
    now: HashSet<u64>,
    before: HashSet<u64>,
}

impl UsedOnce {
    /// Nothing was used; of a minute at most `len_max` uses are remembered, and no more are allowed.
    pub(crate) fn new(len_max: usize) -> Self {
        Self { len_max, used: Mutex::default() }
    }

    /// Notes a use.
    ///
    /// # Errors
    /// It was used before, or too much was used lately.
    pub(super) fn take(&self, number: u64, unix_ms: u64) -> Result<(), Refusal> {
        let minute = unix_ms / 1_000 / GOOD_SECONDS;
        // A panic elsewhere with the lock held leaves the sets whole.
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if minute > used.minute {
            let last = std::mem::take(&mut used.now);
            used.before = if minute == used.minute + 1 { last } else { HashSet::new() };
            used.minute = minute;
        }
        if used.now.len() >= self.len_max {
            let text = "cannot check more proofs in this minute: proofs_per_minute_max were used; come back later, \
                        or raise the limit in the configuration";
            return Err(Refusal::new(Code::Busy, text));
        }
        if used.before.contains(&number) || !used.now.insert(number) {
            let text = "cannot accept what was used before: a proof is good for one use, and so is a key for a \
                        WebSocket; get another challenge, or another key";
            return Err(Refusal::new(Code::BadToken, text));
        }
        Ok(())
    }
}

/// A challenge that only we can have made, and only lately.
pub(super) fn challenge(secret: &Secret, unix_ms: u64, nonce: u64) -> String {
    let text = format!("{:x}.{nonce:x}", unix_ms / 1_000);
    let proof = short_proof(secret, &text);
    format!("{text}.{proof}")
}

/// Whether a challenge is ours and of the last minute.
pub(super) fn is_fresh(challenge: &str, secret: &Secret, unix_ms: u64) -> bool {
    let Some((text, proof)) = challenge.rsplit_once('.') else { return false };
    let seconds = text.split('.').next().and_then(|text| u64::from_str_radix(text, 16).ok());
    is_short_proof(secret, text, proof)
        && seconds.is_some_and(|seconds| (unix_ms / 1_000).saturating_sub(seconds) <= GOOD_SECONDS)
}

/// A key that opens one WebSocket for one device, for those who cannot set header fields.
pub(super) fn one_time_key(name: &str, secret: &Secret, unix_ms: u64, nonce: u64) -> String {
    let until = unix_ms / 1_000 + GOOD_SECONDS;
    let text = format!("{until:x}.{nonce:x}");
    let proof = short_proof(secret, &format!("one-time {text} {name}"));
    format!("{text}.{proof}")
}

/// Lets a key open its WebSocket for this device, once.
///
/// # Errors
/// It is none of ours for this device, or too old, or it was used.
pub(super) fn use_one_time_key(
    key: &str,
    name: &str,
    secret: &Secret,
    unix_ms: u64,
    used: &UsedOnce,
) -> Result<(), Refusal> {
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    let read = || {
        let (text, proof) = key.rsplit_once('.')?;
        let (until, nonce) = text.split_once('.')?;
        let is_ours = is_short_proof(secret, &format!("one-time {text} {name}"), proof);
        let until = number(until).filter(|until| is_ours && *until >= unix_ms / 1_000);
        until.and_then(|_| number(nonce))
    };
    let wrong = || {
        let text = format!(
            "cannot accept the key: it is not for `{name}`, or older than {GOOD_SECONDS} s; get another"
        );
        Refusal::new(Code::BadToken, text)
    };
    used.take(read().ok_or_else(wrong)?, unix_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_one_time_key_opens_once_for_a_minute() {
        let (secret, used) = ([7; 32], UsedOnce::new(100));
        let key = one_time_key("a/d1", &secret, 1_000_000, 99);
        let opens = |key: &str, name: &str, unix_ms| {
            use_one_time_key(key, name, &secret, unix_ms, &used).is_ok()
        };
        assert!(!opens(&key, "a/d2", 1_000_000) && !opens("1.2.3", "a/d1", 1_000_000));
        assert!(opens(&key, "a/d1", 1_050_000));
        assert!(!opens(&key, "a/d1", 1_050_000), "it was used");
        let late = one_time_key("a/d1", &secret, 1_000_000, 100);
        assert!(!opens(&late, "a/d1", 1_061_000));
    }

    #[test]
    fn what_was_used_is_known_for_as_long_as_it_is_good_and_no_longer() {
        let used = UsedOnce::new(2);
        let take = |number, seconds: u64| used.take(number, seconds * 1_000).map_err(|it| it.code);
        assert_eq!(take(1, 59), Ok(()));
        assert_eq!(take(1, 60), Err(Code::BadToken));
        assert_eq!(take(1, 119), Err(Code::BadToken), "it is good until then");
        assert_eq!((take(2, 119), take(3, 119)), (Ok(()), Ok(())));
        assert_eq!(take(4, 119), Err(Code::Busy), "there is a limit");
        assert_eq!((take(4, 120), take(1, 180)), (Ok(()), Ok(())));
    }

    #[test]
    fn a_challenge_is_ours_and_of_the_last_minute() {
        let challenge = challenge(&[7; 32], 1_000_000, 5);
        assert!(is_fresh(&challenge, &[7; 32], 1_060_000));
        assert!(!is_fresh(&challenge, &[7; 32], 1_061_000));
        assert!(!is_fresh(&challenge, &[8; 32], 1_000_000));
        assert!(!is_fresh("", &[7; 32], 1_000_000) && !is_fresh("zz.5.00", &[7; 32], 1_000_000));
    }
}
