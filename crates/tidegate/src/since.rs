//! Reading points in time on the command line.

use std::time::{SystemTime, UNIX_EPOCH};

/// Reads `--since`: how long ago, a time, or milliseconds since 1970.
pub(crate) fn since(text: &str) -> Result<u64, String> {
    if let Ok(unix_ms) = text.parse() {
        return Ok(unix_ms);
    }
    let at = match (humantime::parse_duration(text), humantime::parse_rfc3339_weak(text)) {
        (Ok(ago), _) => SystemTime::now().checked_sub(ago),
        (_, Ok(at)) => Some(at),
        _ => None,
    };
    let since = at.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    since
        .and_then(|since| u64::try_from(since.as_millis()).ok())
        .ok_or_else(|| "it is not a time; write such as 10m, 2h or 2026-01-31T12:00:00Z".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        assert_eq!(since("1700000000000"), Ok(1_700_000_000_000));
        assert_eq!(since("2023-11-14T22:13:20Z"), Ok(1_700_000_000_000));
        let hour_ago = since("1h").expect("a duration");
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis();
        assert!(u128::from(hour_ago) <= now - 3_600_000 && u128::from(hour_ago) > now - 3_700_000);
        for text in ["", "yesterday", "10 parsecs", "-5m"] {
            assert!(since(text).is_err(), "{text}");
        }
    }
}
