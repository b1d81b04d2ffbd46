//! Days and times, as people write them.

/// The milliseconds of a day.
const DAY_MS: u64 = 86_400_000;

/// The date and the time of a moment, in milliseconds since 1970, in UTC: "2026-03-01 14:05:09".
pub fn date_and_time(ms: u64) -> String {
    let seconds = ms % DAY_MS / 1_000;
    let (hours, minutes) = (seconds / 3_600, seconds / 60 % 60);
    format!("{} {hours:02}:{minutes:02}:{:02}", date(ms / DAY_MS), seconds % 60)
}

/// The date of a day, in days since 1970: "2026-03-01".
pub fn date(day: u64) -> String {
    // The calendar repeats itself every 400 years, which begin on the 1st of March here, so that a leap day is the last
    // day of a year.
    let day = day + 719_468;
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{of_month:02}")
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
    }
}
