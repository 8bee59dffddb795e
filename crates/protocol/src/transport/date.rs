//! Dates as HTTP writes them. RFC 9110, section 5.6.7.

/// A moment, such as `Sun, 06 Nov 1994 08:49:37 GMT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpDate([u8; 29]);

impl HttpDate {
    /// The moment that is so many seconds after 1970 began; of years with four digits.
    pub fn at(unix_seconds: u64) -> Self {
        const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
        const MONTHS: [&str; 12] =
            ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
        const LAST: u64 = 253_402_300_799;
        let seconds = unix_seconds.min(LAST);
        let (days, second) = (seconds / 86_400, seconds % 86_400);
        let (year, month, day) = civil(days);
        let text = format!(
            "{}, {day:02} {} {year:04} {:02}:{:02}:{:02} GMT",
            DAYS[(days % 7) as usize],
            MONTHS[month],
            second / 3_600,
            second / 60 % 60,
            second % 60
        );
        Self(text.as_bytes().try_into().expect("its parts have fixed lengths"))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("it was made of text")
    }
}

/// Year, month (from 0) and day of a day counted from 1970. The year is taken to begin in March, so that the leap
/// day is its last; an era has 400 years.
fn civil(days: u64) -> (u64, usize, u64) {
    const DAYS_PER_ERA: u64 = 146_097;
    const DAYS_BEFORE_1970: u64 = 719_468;
    let days = days + DAYS_BEFORE_1970;
    let (era, day) = (days / DAYS_PER_ERA, days % DAYS_PER_ERA);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = (month + 2) % 12;
    (era * 400 + year + u64::from(month < 2), month as usize, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (1_709_251_199, "Thu, 29 Feb 2024 23:59:59 GMT"),
            (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"),
            (u64::MAX, "Fri, 31 Dec 9999 23:59:59 GMT"),
        ] {
            assert_eq!(HttpDate::at(seconds).as_str(), text);
        }
    }
}
