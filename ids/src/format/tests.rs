//! The properties of formats, and the formats that are refused.

use super::*;

fn parse(text: &str) -> Format {
    Format::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn the_text_of_each_built_in_format_is_its_full_text() {
    assert_eq!(Format::built_in().count(), 10);
    for (name, text) in Format::built_in() {
        let format = parse(name);
        assert_eq!((format.to_string().as_str(), format.name()), (text, Some(name)));
        assert_eq!(parse(text), format);
    }
}

#[test]
fn built_in_formats_have_the_reach_that_their_fields_give_them() {
    for (name, source, bits, tick_ms, capacity, workers, last) in [
        // The last second is bounded by 2^63 - 1, not by its ten digits.
        ("yuewen-route", Source::Worker, 63, 1_000, 10_000, 10, "2307-04-12T23:47:15.999+08:00"),
        (
            "yuewen-published",
            Source::Worker,
            60,
            1_000,
            10_000,
            100,
            "2331-11-21T17:46:39.999+08:00",
        ),
        ("yuewen-strict", Source::Key, 63, 1_000, 10_000, 0, "2307-04-12T23:47:15.999+08:00"),
        ("yuewen-chapter", Source::Date, 63, 86_400_000, 9_999, 0, "9223-12-31T23:59:59.999+08:00"),
        (
            "yuewen-exception",
            Source::Worker,
            60,
            1_000,
            16_384,
            16,
            "2151-02-07T06:28:15.999+08:00",
        ),
        ("snowflake", Source::Worker, 63, 1, 4_096, 1_024, "2080-07-10T17:30:30.208Z"),
        (
            "uid-generator",
            Source::Worker,
            63,
            1_000,
            8_192,
            4_194_304,
            "2024-11-20T21:24:15.999+08:00",
        ),
        ("rongcloud", Source::Key, 80, 1, 4_096, 0, "2109-05-15T07:35:11.103Z"),
        ("uuid7", Source::Worker, 128, 1, 4_096, 16_384, "10889-08-02T05:31:50.655Z"),
    ] {
        let format = parse(name);
        assert_eq!(format.source(), source, "{name}");
        assert_eq!((format.bits(), format.tick_ms()), (bits, tick_ms), "{name}");
        assert_eq!((format.capacity(), format.workers_max()), (capacity, workers), "{name}");
        let ends = format.date_time(format.last_ms()).to_string();
        assert_eq!(ends, last, "{name}");
    }
}

#[test]
fn the_first_time_lies_after_the_epoch() {
    let first = |text| {
        let format = parse(text);
        format.date_time(format.first_ms()).to_string()
    };
    assert_eq!(first("snowflake"), "2010-11-04T01:42:54.658Z");
    assert_eq!(first("yuewen-route"), "2015-01-01T00:00:01.000+08:00");
    assert_eq!(first("yuewen-chapter epoch=2016-01-01"), "2016-01-01T00:00:00.000+08:00");
    // The time 0 lies in the day before 1970-01-01 there.
    assert_eq!(first("yuewen-chapter offset=-05:00"), "1970-01-01T00:00:00.000-05:00");
}

#[test]
fn parameters_are_the_fields_without_a_meaning_of_their_own() {
    let parameters = |name| parse(name).parameters().collect::<Vec<_>>().join(" ");
    assert_eq!(parameters("yuewen-route"), "type database");
    assert_eq!(parameters("yuewen-strict"), "machine database");
    assert_eq!(parameters("rongcloud"), "type");
    assert_eq!(parameters("snowflake"), "");
}

#[test]
fn options_may_stand_anywhere_and_replace_those_of_a_built_in_format() {
    let text = "bits zero:1=0 time-ms:41 epoch=2020-01-01 worker:10 sequence:12";
    let own = parse("snowflake epoch=2020-01-01");
    assert_eq!(parse(text), own);
    assert_eq!(own.name(), None);
    // The date of the epoch is that of the new offset.
    let moved = parse("yuewen-route offset=+00:00 text=number");
    assert_eq!(
        moved.to_string(),
        "digits epoch=2015-01-01 counter=runs-on counter-per=type time-s:10 sequence:4 type:2 worker:1 database:2"
    );
    let restarts = parse("yuewen-published counter=restarts offset=+00:00");
    assert_eq!(
        restarts.to_string(),
        "digits epoch=2015-01-01 time-s:10 worker:2 sequence:4 database:2"
    );
    assert!(!restarts.counter_runs_on() && moved.counter_runs_on());
    assert_eq!((restarts.counter_per(), moved.counter_per()), (None, Some("type")));
    // An epoch in milliseconds that is midnight is written as a date.
    assert_eq!(parse("snowflake epoch=1577836800000"), own);
    assert_eq!(
        parse("snowflake epoch=1577836800001").to_string(),
        "bits epoch=1577836800001 zero:1=0 time-ms:41 worker:10 sequence:12"
    );
}

#[test]
fn a_format_that_has_not_begun_or_has_ended_is_refused_for_use() {
    let format = parse("bits epoch=2020-01-01 time-s:20 worker:1 sequence:1");
    let (first, last) = (format.first_ms(), format.last_ms());
    assert_eq!(format.check_epoch(first), Ok(()));
    assert_eq!(format.check_epoch(last), Ok(()));
    let refused = |now_ms| format.check_epoch(now_ms).unwrap_err().to_string();
    assert_eq!(
        refused(first - 1),
        "the format begins at 2020-01-01T00:00:01.000Z, and now it is 2020-01-01T00:00:00.999Z: \
         choose an earlier epoch"
    );
    assert_eq!(
        refused(last + 1),
        "the format ended at 2020-01-13T03:16:15.999Z, and now it is 2020-01-13T03:16:16.000Z: \
         choose a later epoch, or a wider time"
    );
    assert!(format.check_epoch(0).is_err());
    assert!(format.check_epoch(u64::MAX).is_err());
}

#[test]
fn a_format_has_at_most_1024_bytes() {
    let padded = |length| format!("{:<length$}", "snowflake");
    assert_eq!(Format::parse(&padded(1_024)), Format::parse("snowflake"));
    let refused = Format::parse(&padded(1_025)).unwrap_err();
    assert_eq!(refused.to_string(), "the format has 1025 bytes: write it in at most 1024");
}

#[test]
fn a_format_must_last_a_day() {
    // 2^17 seconds are more than a day, 2^16 are less.
    assert!(Format::parse("bits time-s:17 worker:1 sequence:1").is_ok());
    assert!(Format::parse("bits time-s:16 worker:1 sequence:1").is_err());
    // The numbers of a key must stay within 2^63 - 1 as well: 2^27 milliseconds x 2^36 ids, less than two days.
    assert!(Format::parse("bits text=base32 time-ms:42 sequence:36 key:22").is_ok());
    assert!(Format::parse("bits text=base32 time-ms:42 sequence:37 key:21").is_err());
    // The second date lies after the greatest one that fits.
    assert!(Format::parse("yuewen-chapter epoch=9223-12-30").is_ok());
    assert!(Format::parse("yuewen-chapter epoch=9223-12-31").is_err());
}
