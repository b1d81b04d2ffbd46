//! Dates of the Gregorian calendar, for times in milliseconds since 1970. Pure.

use std::fmt;

/// How long a day is. Leap seconds are not counted, as everywhere in Unix time.
pub const DAY_MS: u64 = 86_400_000;

/// The days of 400 years, after which the calendar repeats.
const ERA_DAYS: i64 = 146_097;

/// The days from 1 March of the year 0 to 1 January 1970.
const DAYS_TO_1970: i64 = 719_468;

/// A date of the Gregorian calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Date {
    year: i64,
    month: u8,
    day: u8,
}

impl Date {
    /// The date, if there is such a day.
    pub fn new(year: i64, month: u8, day: u8) -> Option<Date> {
        let exists = (1..=12).contains(&month) && (1..=month_days(year, month)).contains(&day);
        exists.then_some(Date { year, month, day })
    }

    /// The date that is written as `2015-01-01`: a year of four digits, from 0000 to 9999.
    pub fn parse(text: &str) -> Option<Date> {
        let mut parts = text.split('-');
        let year = number(parts.next()?, 4)?;
        let month = u8::try_from(number(parts.next()?, 2)?).ok()?;
        let day = u8::try_from(number(parts.next()?, 2)?).ok()?;
        match parts.next() {
            None => Date::new(year.into(), month, day),
            Some(_) => None,
        }
    }

    /// The date that is written as the number YYYYMMDD, if there is such a day.
    pub fn from_number(number: u64) -> Option<Date> {
        let year = i64::try_from(number / 10_000).ok()?;
        let month = u8::try_from(number / 100 % 100).ok()?;
        let day = u8::try_from(number % 100).ok()?;
        Date::new(year, month, day)
    }

    /// The date as a number, YYYYMMDD. A date before the year 0 is 0.
    pub fn as_number(self) -> u64 {
        let year = u64::try_from(self.year).unwrap_or(0);
        year.saturating_mul(10_000) + u64::from(self.month) * 100 + u64::from(self.day)
    }

    /// The last date whose number is at most `number`. `None` if that is before the year 1.
    pub fn last_up_to(number: u64) -> Option<Date> {
        let year = i64::try_from(number / 10_000).ok()?;
        let month = u8::try_from(number / 100 % 100).ok()?;
        let day = u8::try_from(number % 100).ok()?;
        let first = match (month, day) {
            (1..=12, 0) => Date::new(year, month, 1)?,
            (1..=12, _) => return Date::new(year, month, day.min(month_days(year, month))),
            (0, _) => Date::new(year, 1, 1)?,
            _ => Date::new(year + 1, 1, 1)?,
        };
        Some(Date::from_days(first.days() - 1)).filter(|date| date.year > 0)
    }

    /// The date that is `days` after 1970-01-01.
    pub fn from_days(days: i64) -> Date {
        let days = days.saturating_add(DAYS_TO_1970);
        let era = days.div_euclid(ERA_DAYS);
        let day_of_era = days.rem_euclid(ERA_DAYS);
        // Takes out the leap days that came before: each 4th year has one, each 100th has none, the last one has.
        let plain = day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096;
        let year_of_era = plain / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let march_month = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * march_month + 2) / 5 + 1;
        let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
        Date {
            year: era * 400 + year_of_era + i64::from(month <= 2),
            month: month as u8,
            day: day as u8,
        }
    }

    /// How many days the date is after 1970-01-01.
    pub fn days(self) -> i64 {
        // Years that begin in March have their leap day at the end.
        let month = i64::from(self.month);
        let (year, march_month) = match month {
            3.. => (self.year, month - 3),
            _ => (self.year - 1, month + 9),
        };
        let era = year.div_euclid(400);
        let year_of_era = year.rem_euclid(400);
        let day_of_year = (153 * march_month + 2) / 5 + i64::from(self.day) - 1;
        let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
        era * ERA_DAYS + day_of_era - DAYS_TO_1970
    }

    /// The year.
    pub fn year(self) -> i64 {
        self.year
    }
}

/// Writes `2015-01-01`.
impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

fn month_days(year: i64, month: u8) -> u8 {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if is_leap => 29,
        2 => 28,
        _ => 31,
    }
}

/// A number of exactly `length` digits.
fn number(text: &str, length: usize) -> Option<u16> {
    let is_number = text.len() == length && text.bytes().all(|byte| byte.is_ascii_digit());
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
        let (hours, minutes) = rest.split_once(':')?;
        let hours = i16::try_from(number(hours, 2)?).ok()?;
        let minutes = i16::try_from(number(minutes, 2)?).ok()?;
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
            "",
        ] {
            assert_eq!(Date::parse(text), None, "{text}");
        }
        assert_eq!(Date::from_number(20_150_229), None);
        assert_eq!(Date::from_number(u64::MAX), None);
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
        // Far beyond what is written anywhere, but no panic.
        assert!(written(u64::MAX, china).contains('T'));
    }

    proptest! {
        #[test]
        fn days_and_dates_are_one_to_one(days in -1_000_000_000_i64..1_000_000_000) {
            let date = Date::from_days(days);
            prop_assert_eq!(date.days(), days);
            prop_assert_eq!(Date::new(date.year, date.month, date.day), Some(date));
            prop_assert!(Date::from_days(days + 1) > date);
        }
    }
}
