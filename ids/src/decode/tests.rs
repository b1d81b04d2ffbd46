//! Ids that our users' systems made, and texts that are refused.

use crate::Format;

fn format(text: &str) -> Format {
    Format::parse(text).unwrap()
}

/// The time of an id, and its fields as `name=value`.
fn decoded(format: &Format, text: &str) -> (String, String) {
    let id = format.decode(text).unwrap();
    assert_eq!(format.print(id.id()).to_string(), text.to_uppercase());
    let fields = id.fields().map(|(field, value)| format!("{}={value}", field.name()));
    let fields: Vec<String> = fields.collect();
    (id.date_time().to_string(), fields.join(" "))
}

#[test]
fn ids_of_other_systems_decode_to_what_they_say() {
    for (name, text, time, fields) in [
        (
            "yuewen-route",
            "343429497-9998-01-1-00",
            "2025-11-18T21:04:57.000+08:00",
            "time-s=343429497 sequence=9998 type=1 worker=1 database=0",
        ),
        (
            "yuewen-strict",
            "343429497-9998-01-1-00",
            "2025-11-18T21:04:57.000+08:00",
            "time-s=343429497 sequence=9998 key=1 machine=1 database=0",
        ),
        (
            "yuewen-published",
            "14712051400167204",
            "2019-08-30T18:48:34.000+08:00",
            "time-s=147120514 worker=0 sequence=1672 database=4",
        ),
        (
            "yuewen-chapter",
            "20160423-000-00-000100",
            "2016-04-23T00:00:00.000+08:00",
            "date=20160423 table=0 database=0 sequence=100",
        ),
        (
            "rongcloud",
            "BD8U-FCOJ-LDC5-L789",
            "2019-09-19T03:44:12.366Z",
            "time-ms=1568864652366 sequence=2774 type=1 key=1744137",
        ),
        // The same id in the other letters.
        (
            "rongcloud-article",
            "DFAY-HESM-PFE7-P9AB",
            "2019-09-19T03:44:12.366Z",
            "time-ms=1568864652366 sequence=2774 type=1 key=1744137",
        ),
        // A post of 2022.
        (
            "snowflake",
            "1541815603606036480",
            "2022-06-28T16:07:40.105Z",
            "zero=0 time-ms=367597485448 worker=378 sequence=0",
        ),
    ] {
        let found = decoded(&format(name), text);
        assert_eq!(found, (time.to_owned(), fields.to_owned()), "{name}");
    }
}

#[test]
fn a_uuid_holds_its_version_and_variant() {
    let uuid7 = format("uuid7");
    // The example of RFC 9562, A.6.
    let text = "017f22e2-79b0-7cc3-98c4-dc0c0c07398f";
    let id = uuid7.decode(text).unwrap();
    assert_eq!(uuid7.print(id.id()).to_string(), text);
    assert_eq!(id.date_time().to_string(), "2022-02-22T19:22:22.000Z");
    assert_eq!(id.value("version"), Some(7));
    assert_eq!(id.parts().sequence, 0xcc3);
    assert_eq!(id.parts().random, 0xdc0c_0c07_398f);
    assert_eq!(uuid7.decode(&text.to_uppercase()).unwrap(), id);
}

#[test]
fn letters_may_be_in_lower_case() {
    let format = format("rongcloud");
    let id = format.decode("bd8u-fcoj-ldc5-l789").unwrap();
    assert_eq!(format.print(id.id()).to_string(), "BD8U-FCOJ-LDC5-L789");
}

#[test]
fn what_is_no_id_of_a_format_is_refused_with_the_reason() {
    for (name, text, message) in [
        ("snowflake", "", "the id is empty: write it as ids of the format are printed"),
        (
            "snowflake",
            "12a4",
            "the letter 'a' at place 3 does not belong there: check the id, and that it is one of this format",
        ),
        (
            "snowflake",
            "+1",
            "the letter '+' at place 1 does not belong there: check the id, and that it is one of this format",
        ),
        (
            "snowflake",
            "1é",
            "the letter 'é' at place 2 does not belong there: check the id, and that it is one of this format",
        ),
        (
            "snowflake",
            "0012",
            "the id has a zero in front: leave it out, or check that the id is of this format",
        ),
        ("snowflake", "0", "0 is no id: the first one is greater"),
        (
            "snowflake",
            "9223372036854775808",
            "the id is too large: the greatest one of this format is 9223372036854775807",
        ),
        (
            "snowflake",
            "999999999999999999999999999999999999999999999999999999999999",
            "the id is too large: the greatest one of this format is 9223372036854775807",
        ),
        (
            "snowflake",
            "123456789012345678901234567890123456789012345678901234567890123456789012345678901",
            "the text has 81 bytes, and no id has more than 80: give one id alone",
        ),
        (
            "yuewen-route",
            "343429497-9998-01-1",
            "the id has 4 groups, not 5: check that it is whole, and of this format",
        ),
        (
            "yuewen-route",
            "343429497-998-01-1-00",
            r#"the group "998" is no sequence: its width is 4"#,
        ),
        (
            "yuewen-route",
            "34342949799-9998-01-1-00",
            r#"the group "34342949799" is no time-s: its width is 10"#,
        ),
        ("yuewen-route", "-9998-01-1-00", r#"the group "" is no time-s: its width is 10"#),
        (
            "yuewen-route",
            "0343429497-9998-01-1-00",
            "the id has a zero in front: leave it out, or check that the id is of this format",
        ),
        (
            "yuewen-route",
            "9223372036-9998-01-1-00",
            "the id is too large: the greatest one of this format is 9223372036854775807",
        ),
        (
            "yuewen-route",
            "343429497_9998-01-1-00",
            "the letter '_' at place 10 does not belong there: check the id, and that it is one of this format",
        ),
        (
            "yuewen-chapter",
            "20150229-000-00-000100",
            "there is no date 20150229 from 1970 on: the id is of another format",
        ),
        (
            "yuewen-chapter",
            "19691231-000-00-000100",
            "there is no date 19691231 from 1970 on: the id is of another format",
        ),
        (
            "rongcloud",
            "BD8U-FCOJ-LDC5-L78",
            "the id has 18 letters, not 19: check that it is whole, and of this format",
        ),
        (
            "rongcloud",
            "BD8UF-COJ-LDC5-L789",
            "the letter 'F' at place 5 does not belong there: check the id, and that it is one of this format",
        ),
        (
            "rongcloud",
            "BD8W-FCOJ-LDC5-L789",
            "the letter 'W' at place 4 does not belong there: check the id, and that it is one of this format",
        ),
        (
            "rongcloud-article",
            "BD8U-FC0J-LDC5-L789",
            "the letter '0' at place 8 does not belong there: check the id, and that it is one of this format",
        ),
        (
            "uuid7",
            "017f22e2-79b0-4cc3-98c4-dc0c0c07398f",
            "version is 4, not 7: the id is of another format",
        ),
        (
            "uuid7",
            "017f22e279b07cc398c4dc0c0c07398f",
            "the letter '7' at place 9 does not belong there: check the id, and that it is one of this format",
        ),
    ] {
        let refused = format(name).decode(text).expect_err(text);
        assert_eq!(refused.to_string(), message, "{name} {text}");
    }
}
