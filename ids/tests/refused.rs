//! Formats that are refused, and the messages.

use ratchet_ids::Format;

/// The formats that are refused, and the messages.
const REFUSED: [(&str, &str); 60] = [
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
        r#"there is no option "start": the options are epoch, offset, text, step, counter and counter-per"#,
    ),
    ("snowflake epoch=1 epoch=1", "the option epoch is given twice: write it once"),
    (
        "snowflake epoch=2015-02-29",
        r#"epoch="2015-02-29" cannot be read: write a date such as 2015-01-01, or milliseconds since 1970, up to the year 9999"#,
    ),
    (
        "snowflake epoch=253402300800000",
        r#"epoch="253402300800000" cannot be read: write a date such as 2015-01-01, or milliseconds since 1970, up to the year 9999"#,
    ),
    (
        "snowflake epoch=",
        r#"epoch="" cannot be read: write a date such as 2015-01-01, or milliseconds since 1970, up to the year 9999"#,
    ),
    (
        "snowflake epoch=-1",
        r#"epoch="-1" cannot be read: write a date such as 2015-01-01, or milliseconds since 1970, up to the year 9999"#,
    ),
    (
        "snowflake epoch=1970-01-01 offset=+08:00",
        "epoch=1970-01-01 at offset=+08:00 is before 1970 in UTC: choose a later epoch",
    ),
    (
        "snowflake offset=8",
        r#"offset="8" cannot be read: write hours and minutes such as +08:00, up to 18:00"#,
    ),
    (
        "snowflake text=hex",
        r#"text="hex" cannot be read: write number, groups, base32, base32-unambiguous or uuid"#,
    ),
    ("yuewen-chapter step=0", r#"step="0" cannot be read: write a number from 1 on"#),
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
    ("bits time-ms:49 sequence:5", "time-ms:49 is too wide or empty: its width is 1 to 48 bits"),
    ("digits time-s:13 sequence:5", "time-s:13 is too wide or empty: its width is 1 to 12 digits"),
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
    ("bits worker:10 sequence:12", "the format has no time: add time-s, time-ms or date"),
    ("digits date:8 time-s:5 sequence:5", "the format has date and time-s: keep one of them"),
    ("digits time-ms:8 time-s:5 sequence:5", "the format has time-ms and time-s: keep one of them"),
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
    ("snowflake step=2", "step=2 needs a date: leave it out, or use date:8 in place of the time"),
    ("digits step=100 date:8 sequence:2", "step=100 does not fit into sequence:2: choose 1 to 99"),
    ("snowflake counter=on", r#"counter="on" cannot be read: write restarts or runs-on"#),
    (
        "rongcloud counter=runs-on",
        "counter=runs-on needs a worker: without one the leader counts the ids of each key; leave it out",
    ),
    (
        "rongcloud counter-per=type",
        "counter-per=type needs a worker: without one the leader counts the ids of each key; leave it out",
    ),
    (
        "yuewen-route counter-per=worker",
        r#"counter-per=worker names no parameter: the format's parameters are ["type", "database"]"#,
    ),
    (
        "bits counter-per=a time-ms:41 worker:5 sequence:5 a:11",
        "counter-per=a needs 2048 counters: name a parameter that has at most 1024 values",
    ),
    (
        "snowflake counter-per=shard",
        r#"counter-per=shard names no parameter: the format's parameters are []"#,
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
    ("snowflake text=uuid", "text=uuid needs 128 bits: the fields have 64"),
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
