//! What formats say of themselves, and which ones are refused.

use super::*;

fn parse(text: &str) -> Format {
    Format::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn the_text_of_each_built_in_format_is_its_full_text() {
    assert_eq!(Format::built_in().count(), 10);
    for (name, text) in Format::built_in() {
        let format = parse(name);
        assert_eq!(
            (format.to_string().as_str(), format.name()),
            (text, Some(name))
        );
        assert_eq!(parse(text), format);
    }
}

#[test]
fn built_in_formats_have_the_reach_that_their_fields_give_them() {
    for (name, source, bits, tick_ms, capacity, workers, last) in [
        // The last second is bounded by 2^63 - 1, not by its ten digits.
        (
            "yuewen-route",
            Source::Worker,
            63,
            1_000,
            10_000,
            10,
            "2307-04-12T23:47:15.999+08:00",
        ),
        (
            "yuewen-published",
            Source::Worker,
            60,
            1_000,
            10_000,
            100,
            "2331-11-21T17:46:39.999+08:00",
        ),
        (
            "yuewen-strict",
            Source::Key,
            63,
            1_000,
            10_000,
            0,
            "2307-04-12T23:47:15.999+08:00",
        ),
        (
            "yuewen-chapter",
            Source::Date,
            63,
            86_400_000,
            9_999,
            0,
            "9223-12-31T23:59:59.999+08:00",
        ),
        (
            "yuewen-exception",
            Source::Worker,
            60,
            1_000,
            16_384,
            16,
            "2151-02-07T06:28:15.999+08:00",
        ),
        (
            "snowflake",
            Source::Worker,
            63,
            1,
            4_096,
            1_024,
            "2080-07-10T17:30:30.208Z",
        ),
        (
            "uid-generator",
            Source::Worker,
            63,
            1_000,
            8_192,
            4_194_304,
            "2024-11-20T21:24:15.999+08:00",
        ),
        (
            "rongcloud",
            Source::Key,
            80,
            1,
            4_096,
            0,
            "2109-05-15T07:35:11.103Z",
        ),
        (
            "uuid7",
            Source::Worker,
            128,
            1,
            4_096,
            16_384,
            "10889-08-02T05:31:50.655Z",
        ),
    ] {
        let format = parse(name);
        assert_eq!(format.source(), source, "{name}");
        assert_eq!((format.bits(), format.tick_ms()), (bits, tick_ms), "{name}");
        assert_eq!(
            (format.capacity(), format.workers_max()),
            (capacity, workers),
            "{name}"
        );
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
    assert_eq!(
        first("yuewen-chapter epoch=2016-01-01"),
        "2016-01-01T00:00:00.000+08:00"
    );
    // The time 0 lies in the day before 1970-01-01 there.
    assert_eq!(
        first("yuewen-chapter offset=-05:00"),
        "1970-01-01T00:00:00.000-05:00"
    );
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
        "digits epoch=2015-01-01 time-s:10 sequence:4 type:2 worker:1 database:2"
    );
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

/// What is refused, and the message.
const REFUSED: [(&str, &str); 54] = [
    (
        "",
        r#"there is no format "": begin with bits or digits, or name one of yuewen-route, yuewen-published, yuewen-strict, yuewen-chapter, yuewen-exception, snowflake, uid-generator, rongcloud, rongcloud-article, uuid7"#,
    ),
    (
        "snowflakes",
        r#"there is no format "snowflakes": begin with bits or digits, or name one of yuewen-route, yuewen-published, yuewen-strict, yuewen-chapter, yuewen-exception, snowflake, uid-generator, rongcloud, rongcloud-article, uuid7"#,
    ),
    (
        "snowflake shard:3",
        r#""shard:3" follows the name snowflake: after a name write options only, or write all fields after bits or digits"#,
    ),
    (
        "snowflake snowflake",
        r#""snowflake" follows the name snowflake: after a name write options only, or write all fields after bits or digits"#,
    ),
    (
        "snowflake start=5",
        r#"there is no option "start": the options are epoch, offset, text and step"#,
    ),
    (
        "snowflake epoch=1 epoch=1",
        "the option epoch is given twice: write it once",
    ),
    (
        "snowflake epoch=2015-02-29",
        "epoch=2015-02-29 cannot be read: write a date such as 2015-01-01, or milliseconds since 1970, up to the year 9999",
    ),
    (
        "snowflake epoch=253402300800000",
        "epoch=253402300800000 cannot be read: write a date such as 2015-01-01, or milliseconds since 1970, up to the year 9999",
    ),
    (
        "snowflake epoch=",
        "epoch= cannot be read: write a date such as 2015-01-01, or milliseconds since 1970, up to the year 9999",
    ),
    (
        "snowflake epoch=-1",
        "epoch=-1 cannot be read: write a date such as 2015-01-01, or milliseconds since 1970, up to the year 9999",
    ),
    (
        "snowflake epoch=1970-01-01 offset=+08:00",
        "epoch=1970-01-01 at offset=+08:00 is before 1970 in UTC: choose a later epoch",
    ),
    (
        "snowflake offset=8",
        "offset=8 cannot be read: write hours and minutes such as +08:00, up to 18:00",
    ),
    (
        "snowflake text=hex",
        "text=hex cannot be read: write number, groups, base32, base32-unambiguous or uuid",
    ),
    (
        "yuewen-chapter step=0",
        "step=0 cannot be read: write a number from 1 on",
    ),
    (
        "bits time-ms",
        r#""time-ms" is no field: write name:width, or name:width=value for a constant, with a name of a-z, 0-9 and '-' that begins with a letter and has at most 32"#,
    ),
    (
        "bits time-ms:x",
        r#""time-ms:x" is no field: write name:width, or name:width=value for a constant, with a name of a-z, 0-9 and '-' that begins with a letter and has at most 32"#,
    ),
    (
        "bits Time:3",
        r#""Time:3" is no field: write name:width, or name:width=value for a constant, with a name of a-z, 0-9 and '-' that begins with a letter and has at most 32"#,
    ),
    (
        "bits a:3=x",
        r#""a:3=x" is no field: write name:width, or name:width=value for a constant, with a name of a-z, 0-9 and '-' that begins with a letter and has at most 32"#,
    ),
    (
        "bits a:3=",
        r#""a:3=" is no field: write name:width, or name:width=value for a constant, with a name of a-z, 0-9 and '-' that begins with a letter and has at most 32"#,
    ),
    (
        "bits :3",
        r#"":3" is no field: write name:width, or name:width=value for a constant, with a name of a-z, 0-9 and '-' that begins with a letter and has at most 32"#,
    ),
    (
        "bits a:99999999999",
        r#""a:99999999999" is no field: write name:width, or name:width=value for a constant, with a name of a-z, 0-9 and '-' that begins with a letter and has at most 32"#,
    ),
    (
        "bits abcdefghijklmnopqrstuvwxyz-123456:1",
        r#""abcdefghijklmnopqrstuvwxyz-123456:1" is no field: write name:width, or name:width=value for a constant, with a name of a-z, 0-9 and '-' that begins with a letter and has at most 32"#,
    ),
    (
        "bits time-ms:41 a:3 a:4 sequence:5",
        "two fields are named a: name each field differently, and write each kind once",
    ),
    (
        "bits time-ms:41 sequence:5 sequence:5",
        "two fields are named sequence: name each field differently, and write each kind once",
    ),
    (
        "bits time-ms:41 worker:5 worker:5 sequence:1",
        "two fields are named worker: name each field differently, and write each kind once",
    ),
    (
        "bits time-ms:41 key:5 key:5 sequence:1",
        "two fields are named key: name each field differently, and write each kind once",
    ),
    (
        "bits time-ms:49 sequence:5",
        "time-ms:49 is too wide or empty: its width is 1 to 48 bits",
    ),
    (
        "digits time-s:13 sequence:5",
        "time-s:13 is too wide or empty: its width is 1 to 12 digits",
    ),
    (
        "bits time-ms:41 worker:0 sequence:5",
        "worker:0 is too wide or empty: its width is 1 to 63 bits",
    ),
    (
        "digits time-s:10 sequence:20",
        "sequence:20 is too wide or empty: its width is 1 to 19 digits",
    ),
    (
        "bits time-ms:41 worker:10 sequence:0",
        "sequence:0 has no room for an id: give it a width of at least 1",
    ),
    (
        "digits date:6 sequence:5",
        "date:6 in digits holds no date: write date:8 in a format of digits, for YYYYMMDD",
    ),
    (
        "bits date:8 sequence:5",
        "date:8 in bits holds no date: write date:8 in a format of digits, for YYYYMMDD",
    ),
    (
        "bits time-ms:48 sequence:63 a:18",
        "the fields have 129 bits together: an id has at most 128, so make some of them narrower",
    ),
    (
        "digits time-s:10 sequence:19 a:10",
        "the fields have 39 digits together: an id has at most 38, so make some of them narrower",
    ),
    (
        "bits zero:1=2 time-ms:41 worker:10 sequence:12",
        "zero:1=2 does not fit: the greatest value of this width is 1",
    ),
    (
        "digits a:2=100 time-s:10 sequence:2",
        "a:2=100 does not fit: the greatest value of this width is 99",
    ),
    (
        "bits time-ms:41 worker:10=3 sequence:12",
        "worker cannot be the constant 3, because it is a kind of field: give the constant another name",
    ),
    (
        "bits worker:10 sequence:12",
        "the format has no time: add time-s, time-ms or date",
    ),
    (
        "digits date:8 time-s:5 sequence:5",
        "the format has date and time-s: keep one of them",
    ),
    (
        "digits time-ms:8 time-s:5 sequence:5",
        "the format has time-ms and time-s: keep one of them",
    ),
    (
        "bits time-ms:41 worker:10",
        "the format has no sequence, so ids of one time would be equal: add sequence:width",
    ),
    (
        "bits sequence:12 time-ms:41 worker:10",
        "sequence stands before time-ms, so later ids could be smaller: write it after time-ms",
    ),
    (
        "bits time-ms:41 random:6 sequence:6",
        "random stands before sequence, so later ids could be smaller: write it after sequence",
    ),
    (
        "bits time-ms:41 worker:3 key:3 sequence:6",
        "the format has worker and key, so ids would come from two sources: whoever holds a worker id makes the one kind, the leader the other; keep one of the fields",
    ),
    (
        "digits date:8 worker:3 sequence:6",
        "the format has worker and date, so ids would come from two sources: whoever holds a worker id makes the one kind, the leader the other; keep one of the fields",
    ),
    (
        "snowflake step=2",
        "step=2 needs a date: leave it out, or use date:8 in place of the time",
    ),
    (
        "digits step=100 date:8 sequence:2",
        "step=100 does not fit into sequence:2: choose 1 to 99",
    ),
    (
        "snowflake text=groups",
        "text=groups does not go with bits: write the format in digits, or choose another text",
    ),
    (
        "yuewen-route text=uuid",
        "text=uuid does not go with digits: write the format in bits, or choose another text",
    ),
    (
        "snowflake text=base32",
        "text=base32 needs a multiple of 20 bits, for groups of four letters of 5 bits: the fields have 64",
    ),
    (
        "snowflake text=uuid",
        "text=uuid needs 128 bits: the fields have 64",
    ),
    (
        "bits time-s:16 worker:10 sequence:12",
        "ids of this format would end less than a day after its epoch: make the time wider, or the other fields narrower where a number must stay within 2^63 - 1",
    ),
    (
        "rongcloud text=number",
        "ids of this format would end less than a day after its epoch: make the time wider, or the other fields narrower where a number must stay within 2^63 - 1",
    ),
];

#[test]
fn what_is_no_format_is_refused_with_field_value_and_remedy() {
    for (text, message) in REFUSED {
        let refused = Format::parse(text).expect_err(text).to_string();
        assert_eq!(refused, message, "{text}");
    }
}

#[test]
fn a_format_has_at_most_1024_bytes() {
    let padded = |length| format!("{:<length$}", "snowflake");
    assert_eq!(Format::parse(&padded(1_024)), Format::parse("snowflake"));
    let refused = Format::parse(&padded(1_025)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the format has 1025 bytes: write it in at most 1024"
    );
}

#[test]
fn a_format_must_last_a_day() {
    // 2^17 seconds are more than a day, 2^16 are less.
    assert!(Format::parse("bits time-s:17 worker:1 sequence:1").is_ok());
    assert!(Format::parse("bits time-s:16 worker:1 sequence:1").is_err());
    // The numbers of a key must stay within 2^63 - 1 as well: 2^27 milliseconds x 2^36 ids, less than two days.
    assert!(Format::parse("bits text=base32 time-ms:42 sequence:36 key:22").is_ok());
    assert!(Format::parse("bits text=base32 time-ms:42 sequence:37 key:21").is_err());
    // A date after the greatest one that fits.
    assert!(Format::parse("yuewen-chapter epoch=9223-12-30").is_ok());
    assert!(Format::parse("yuewen-chapter epoch=9223-12-31").is_err());
}
