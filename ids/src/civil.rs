//! Dates of the Gregorian calendar, for times in milliseconds since 1970. Pure.

use std::fmt;

use chrono::{Datelike, NaiveDate};

/// How long a day is. Leap seconds are not counted, as everywhere in Unix time.
pub const DAY_MS: u64 = 86_400_000;

/// A date of the Gregorian calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Date(NaiveDate);

impl Date {
    /// The date that is written as `2015-01-01`: a year of four digits, from 0000 to 9999.
    pub fn parse(text: &str) -> Option<Date> {
        let date = Date(text.parse().ok()?);
        // The library reads `2015-1-1` and other years, too.
        ((0..=9_999).contains(&date.year()) && date.to_string() == text).then_some(date)
    }

    /// The date that is written as the number YYYYMMDD, if there is such a day.
    pub fn from_number(number: u64) -> Option<Date> {
        let year = i32::try_from(number / 10_000).ok()?;
        let (month, day) = (number / 100 % 100, number % 100);
        NaiveDate::from_ymd_opt(year, month as u32, day as u32).map(Date)
    }

    /// The date as a number, YYYYMMDD. A date before the year 0 is 0.
    pub fn as_number(self) -> u64 {
        let year = u64::try_from(self.0.year()).unwrap_or(0);
        year * 10_000 + u64::from(self.0.month() * 100 + self.0.day())
    }

    /// The last date whose number is at most `number`. `None` if that is before the year 1.
    pub fn last_up_to(number: u64) -> Option<Date> {
        let last_of_year = number / 10_000 * 10_000 + 1_231;
        (10_101..=number.min(last_of_year)).rev().find_map(Date::from_number)
    }

    /// The date that is `days` after 1970-01-01, or the last one that the calendar knows: in the year 262142.
    pub fn from_days(days: i64) -> Date {
        let date = i32::try_from(days).ok().and_then(NaiveDate::from_epoch_days);
        Date(date.unwrap_or(NaiveDate::MAX))
    }

    /// How many days the date is after 1970-01-01.
    pub fn days(self) -> i64 {
        self.0.to_epoch_days().into()
    }

    /// The year.
    pub fn year(self) -> i64 {
        self.0.year().into()
    }
}

/// Writes `2015-01-01`.
impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.0.year(), self.0.month(), self.0.day())
    }
}

/// A number without a sign.
pub(crate) fn number(text: &str) -> Option<u64> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok())?
}

/// How far the clocks of a place are ahead of UTC: at most 18 hours either way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Offset {
    minutes: i16,
}

impl Offset {
    /// The offset that is written as `+08:00` or `-03:30`.
    pub fn parse(text: &str) -> Option<Offset> {
        let (sign, rest) = match text.as_bytes().first()? {
            b'+' => (1, &text[1..]),
            b'-' => (-1, &text[1..]),
            _ => return None,
        };
        let parts = rest.split_once(':');
        let (hours, minutes) = parts.filter(|(hours, _)| hours.len() == 2 && rest.len() == 5)?;
        let hours = i16::try_from(number(hours)?).ok()?;
        let minutes = i16::try_from(number(minutes)?).ok()?;
        let total = hours * 60 + minutes;
        (minutes < 60 && total <= 18 * 60).then_some(Offset { minutes: sign * total })
    }

    /// The offset in milliseconds.
    pub fn ms(self) -> i64 {
        i64::from(self.minutes) * 60_000
    }
}

/// Writes `+08:00`.
impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.minutes < 0 { '-' } else { '+' };
        let minutes = self.minutes.unsigned_abs();
        write!(f, "{sign}{:02}:{:02}", minutes / 60, minutes % 60)
    }
}

/// A time as it is written in a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DateTime {
    ms: u64,
    offset: Offset,
}

impl DateTime {
    /// The time `ms` milliseconds after 1970 (UTC), as it is written where the clocks are `offset` ahead.
    pub fn new(ms: u64, offset: Offset) -> DateTime {
        DateTime { ms, offset }
    }

    /// When a date begins where the clocks are `offset` ahead, in milliseconds since 1970. Negative if that is before.
    pub(crate) fn midnight_ms(date: Date, offset: Offset) -> i64 {
        date.days().saturating_mul(DAY_MS as i64).saturating_sub(offset.ms())
    }

    /// Its date there.
    pub fn date(self) -> Date {
        Date::from_days(self.local_ms().div_euclid(DAY_MS as i64))
    }

    /// Whether a day begins there.
    pub fn is_midnight(self) -> bool {
        self.local_ms().rem_euclid(DAY_MS as i64) == 0
    }

    fn local_ms(self) -> i64 {
        let ms = i64::try_from(self.ms).unwrap_or(i64::MAX);
        ms.saturating_add(self.offset.ms())
    }
}

/// Writes `2019-09-19T11:44:12.366+08:00`, and `Z` for UTC.
impl fmt::Display for DateTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.local_ms().rem_euclid(DAY_MS as i64);
        let (hours, minutes, seconds) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1_000 % 60);
        write!(f, "{}T{hours:02}:{minutes:02}", self.date())?;
        write!(f, ":{seconds:02}.{:03}", ms % 1_000)?;
        match self.offset.minutes {
            0 => f.write_str("Z"),
            _ => write!(f, "{}", self.offset),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_dates_have_their_days() {
        for (text, days) in [
            ("1970-01-01", 0),
            ("1969-12-31", -1),
            ("2000-02-29", 11_016),
            ("2000-03-01", 11_017),
            ("2015-01-01", 16_436),
            ("2100-03-01", 47_541),
            ("9999-12-31", 2_932_896),
            ("0000-03-01", -719_468),
        ] {
            let date = Date::parse(text).unwrap();
            assert_eq!((date.days(), date.to_string()), (days, text.to_owned()));
            assert_eq!(Date::from_days(days), date);
        }
    }

    #[test]
    fn days_that_are_not_in_the_calendar_are_no_dates() {
        for text in [
            "2015-02-29",
            "1900-02-29",
            "2015-04-31",
            "2015-00-01",
            "2015-13-01",
            "2015-01-00",
            "2015-1-1",
            "15-01-01",
            "2015-01",
            "2015-01-01-01",
            "+015-01-01",
            "-001-01-01",
            "2015-01- 1",
            "2015- 1-01",
            " 015-01-01",
            "",
        ] {
            assert_eq!(Date::parse(text), None, "{text}");
        }
        assert_eq!(Date::from_number(20_150_229), None);
        assert_eq!(Date::from_number(u64::MAX), None);
        assert_eq!(Date::from_days(i64::MAX).year(), 262_142);
    }

    #[test]
    fn the_last_date_up_to_a_number_is_a_day_of_the_calendar() {
        let last = |number| Date::last_up_to(number).map(Date::as_number);
        assert_eq!(last(20_160_423), Some(20_160_423));
        assert_eq!(last(20_150_231), Some(20_150_228));
        assert_eq!(last(20_150_300), Some(20_150_228));
        assert_eq!(last(20_150_099), Some(20_141_231));
        assert_eq!(last(92_233_719), Some(92_231_231));
        assert_eq!(last(99_999_999), Some(99_991_231));
        assert_eq!(last(10_100), None);
    }

    #[test]
    fn offsets_are_at_most_18_hours() {
        for (text, ms) in [("+08:00", 28_800_000), ("-03:30", -12_600_000), ("+18:00", 64_800_000)]
        {
            let offset = Offset::parse(text).unwrap();
            assert_eq!((offset.ms(), offset.to_string()), (ms, text.to_owned()));
        }
        for text in ["+18:01", "08:00", "+8:00", "+08:60", "+0800", "", "é8:00", "+1é:0"] {
            assert_eq!(Offset::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_time_is_written_with_its_offset() {
        let china = Offset::parse("+08:00").unwrap();
        let written = |ms, offset| DateTime::new(ms, offset).to_string();
        assert_eq!(written(1_568_864_652_366, china), "2019-09-19T11:44:12.366+08:00");
        assert_eq!(written(1_568_864_652_366, Offset::default()), "2019-09-19T03:44:12.366Z");
        let west = Offset::parse("-01:00").unwrap();
        assert_eq!(written(0, west), "1969-12-31T23:00:00.000-01:00");
        // The time is far beyond any that is written, but there is no panic.
        assert!(written(u64::MAX, china).contains('T'));
    }

    proptest! {
        #[test]
        fn days_numbers_and_dates_are_one_to_one(days in 0_i64..90_000_000) {
            let date = Date::from_days(days);
            prop_assert_eq!(date.days(), days);
            prop_assert_eq!(Date::from_number(date.as_number()), Some(date));
            prop_assert_eq!(Date::last_up_to(date.as_number()), Some(date));
            prop_assert!(Date::from_days(days + 1) > date);
        }
    }
}
