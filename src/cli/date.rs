//! Days and times, as people write them.

use chrono::{DateTime, Utc};

/// The milliseconds of a day.
const DAY_MS: u64 = 86_400_000;

/// The date and the time of a moment, in milliseconds since 1970, in UTC: "2026-03-01 14:05:09".
pub fn date_and_time(ms: u64) -> String {
    written(ms, "%F %T")
}

/// The date of a day, in days since 1970: "2026-03-01".
pub fn date(day: u64) -> String {
    written(day.saturating_mul(DAY_MS), "%F")
}

/// A moment, or the last one that the calendar knows.
fn written(ms: u64, form: &str) -> String {
    let moment = i64::try_from(ms).ok().and_then(DateTime::from_timestamp_millis);
    moment.unwrap_or(DateTime::<Utc>::MAX_UTC).format(form).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_has_the_date_that_the_calendar_gives_it() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(11_016), "2000-02-29");
        assert_eq!(date(11_017), "2000-03-01");
        assert_eq!(date(20_513), "2026-03-01");
        assert_eq!(date(47_541), "2100-03-01");
        assert_eq!(date_and_time(1_772_373_909_999), "2026-03-01 14:05:09");
        assert!(date_and_time(u64::MAX).ends_with("-12-31 23:59:59"));
    }
}
