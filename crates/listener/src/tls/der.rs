//! As much of DER (X.690) as it takes to find a name and two dates in a certificate.

/// The tag and the contents of the first value in `bytes`, which goes on behind it.
pub(super) fn read<'a>(bytes: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (&[tag, short], mut rest) = bytes.split_first_chunk::<2>()?;
    let mut len = usize::from(short);
    if short & 0x80 != 0 {
        let count = usize::from(short & 0x7F);
        if count == 0 || count > 3 {
            return None;
        }
        let (long, behind) = rest.split_at_checked(count)?;
        len = long.iter().fold(0, |len, byte| len << 8 | usize::from(*byte));
        rest = behind;
    }
    let (contents, behind) = rest.split_at_checked(len)?;
    *bytes = behind;
    Some((tag, contents))
}

/// The contents of the first value, if it has this tag.
pub(super) fn expect<'a>(bytes: &mut &'a [u8], tag: u8) -> Option<&'a [u8]> {
    read(bytes).filter(|(found, _)| *found == tag).map(|(_, contents)| contents)
}

pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const SET: u8 = 0x31;
pub(super) const OBJECT: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// A time of a certificate, in seconds since 1970. RFC 5280, section 4.1.2.5: always in UTC, with seconds.
pub(super) fn read_time(bytes: &mut &[u8]) -> Option<i64> {
    let (tag, text) = read(bytes)?;
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let (year, rest) = match tag {
        UTC_TIME => {
            let (year, rest) = text.split_at_checked(2)?;
            let year: i64 = year.parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        GENERALIZED_TIME => {
            let (year, rest) = text.split_at_checked(4)?;
            (year.parse().ok()?, rest)
        }
        _ => return None,
    };
    if rest.len() != 10 || !rest.is_ascii() {
        return None;
    }
    let part = |at: usize| rest[at..at + 2].parse::<i64>().ok();
    let days = days_before(year, part(0)?, part(2)?)?;
    Some(((days * 24 + part(4)?) * 60 + part(6)?) * 60 + part(8)?)
}

/// Days from 1970 until a date of the Gregorian calendar, whose years begin in March here.
fn days_before(year: i64, month: i64, day: i64) -> Option<i64> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || !(1..=9999).contains(&year) {
        return None;
    }
    let year = if month <= 2 { year - 1 } else { year };
    let month = (month + 9) % 12;
    Some(year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 719_469)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn time(tag: u8, text: &str) -> Option<i64> {
        let mut bytes = vec![tag, text.len() as u8];
        bytes.extend(text.bytes());
        read_time(&mut bytes.as_slice())
    }

    #[test]
    fn times_are_seconds_since_1970() {
        for (tag, text, seconds) in [
            (UTC_TIME, "700101000000Z", Some(0)),
            (UTC_TIME, "000229120000Z", Some(951_825_600)),
            (UTC_TIME, "491231235959Z", Some(2_524_607_999)),
            (GENERALIZED_TIME, "20500101000000Z", Some(2_524_608_000)),
            (GENERALIZED_TIME, "99991231235959Z", Some(253_402_300_799)),
            (UTC_TIME, "701301000000Z", None),
            (UTC_TIME, "7001010000Z", None),
            (UTC_TIME, "700101000000", None),
            (SEQUENCE, "700101000000Z", None),
        ] {
            assert_eq!(time(tag, text), seconds, "{text}");
        }
    }

    #[test]
    fn lengths_are_short_or_long_and_never_beyond_the_end() {
        let long = [&[4, 0x81, 0x80][..], &[7; 128], &[1, 1, 255]].concat();
        let mut rest = &long[..];
        assert_eq!(read(&mut rest), Some((4, &[7; 128][..])));
        assert_eq!(expect(&mut rest, 1), Some(&[255][..]));
        assert_eq!((rest, read(&mut rest)), (&[][..], None));
        for broken in [&[4][..], &[4, 2, 1], &[4, 0x80, 0], &[4, 0x84, 0, 0, 0, 0], &[4, 0x82, 1]] {
            assert_eq!(read(&mut &*broken), None, "{broken:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let mut rest = &bytes[..];
            while read(&mut rest).is_some() {}
            let _ = read_time(&mut &bytes[..]);
        }
    }
}
