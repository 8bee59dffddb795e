//! When to try again.

use std::time::{Duration, SystemTime};

/// The longest that an endpoint is left alone because it asked for it.
const ASKED_MAX: Duration = Duration::from_secs(24 * 3_600);

/// The pauses between attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Schedule {
    pub pause_min: Duration,
    pub pause_max: Duration,
}

impl Schedule {
    /// The pause after so many failed attempts: `pause_min` doubled at each, at most `pause_max`, and of that
    /// between half and all: `random` is from 0 to 1.
    pub(crate) fn pause(&self, attempts: u32, random: f64) -> Duration {
        let doubled = 2u32.saturating_pow(attempts.saturating_sub(1));
        let whole = self.pause_min.saturating_mul(doubled).min(self.pause_max);
        whole.mul_f64(0.5 + random.clamp(0.0, 1.0) / 2.0)
    }
}

/// How long `Retry-After` asks to wait: seconds, or a date. RFC 9110, section 10.2.3.
pub(crate) fn retry_after(value: &str, now: SystemTime) -> Option<Duration> {
    let asked = match value.trim().parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let at = httpdate::parse_http_date(value.trim()).ok()?;
            at.duration_since(now).unwrap_or_default()
        }
    };
    Some(asked.min(ASKED_MAX))
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = UNIX_EPOCH + Duration::from_secs(784_111_767);
        let seconds = |value| retry_after(value, now).map(|asked| asked.as_secs());
        assert_eq!(seconds("120"), Some(120));
        assert_eq!(seconds(" 0 "), Some(0));
        assert_eq!(seconds("Sun, 06 Nov 1994 08:49:37 GMT"), Some(10));
        assert_eq!(seconds("Sun, 06 Nov 1994 08:49:17 GMT"), Some(0), "it is past");
        assert_eq!(seconds("soon"), None);
        assert_eq!(seconds("99999999999"), Some(ASKED_MAX.as_secs()));
    }

    proptest! {
        #[test]
        fn pauses_double_up_to_the_longest(
            min_ms in 1u64..100_000,
            more_ms in 0u64..10_000_000,
            attempts in 1u32..2_000,
            random in 0.0f64..=1.0,
        ) {
            let schedule = Schedule {
                pause_min: Duration::from_millis(min_ms),
                pause_max: Duration::from_millis(min_ms + more_ms),
            };
            let whole_ms = u128::from(min_ms) << (attempts - 1).min(64);
            let whole_ms = whole_ms.min(schedule.pause_max.as_millis()) as f64;
            let pause_ms = schedule.pause(attempts, random).as_secs_f64() * 1_000.0;
            prop_assert!(pause_ms >= whole_ms / 2.0 - 0.001 && pause_ms <= whole_ms + 0.001);
        }
    }
}
