//! A value that does not fit into an id is refused by the name of its field. The rest is in `tests/round_trip.rs`.

use super::*;

fn format(text: &str) -> Format {
    Format::parse(text).unwrap()
}

#[test]
fn what_a_caller_chooses_must_be_complete_known_and_fit() {
    let route = format("yuewen-route");
    for (parameters, message) in [
        (&[("type", 1)][..], "the parameter database is missing: give it a value from 0 to 99"),
        (
            &[("type", 1), ("database", 0), ("kind", 3)],
            r#"there is no parameter "kind": the format's parameters are ["type", "database"]"#,
        ),
        // A field that is no parameter is not the caller's to choose.
        (
            &[("type", 1), ("database", 0), ("worker", 3)],
            r#"there is no parameter "worker": the format's parameters are ["type", "database"]"#,
        ),
        (
            &[("type", 1), ("database", 0), ("type", 1)],
            "the parameter type is given twice: give it once",
        ),
        (&[("type", 100), ("database", 0)], "type 100 does not fit: the greatest value is 99"),
    ] {
        let refused = route.fixed(parameters, None).unwrap_err();
        assert_eq!(refused.to_string(), message);
    }
    let chosen = route.fixed(&[("database", 0), ("type", 1)], None);
    assert_eq!(chosen, Ok(Fixed { id: 1_000, counter: 1 }));
    // A format without a field for the key leaves the key out.
    let chosen = route.fixed(&[("database", 0), ("type", 1)], Some(u64::MAX));
    assert_eq!(chosen, Ok(Fixed { id: 1_000, counter: 1 }));
}

#[test]
fn the_key_must_have_an_id_that_fits() {
    let rongcloud = format("rongcloud");
    let refused = |key| rongcloud.fixed(&[("type", 1)], key).unwrap_err().to_string();
    assert_eq!(
        refused(None),
        "the key has no id, and the format has a field for it: use a key with an id from 0 to 4194303"
    );
    assert_eq!(refused(Some(4_194_304)), "key 4194304 does not fit: the greatest value is 4194303");
    assert!(rongcloud.fixed(&[("type", 1)], Some(4_194_303)).is_ok());
}

#[test]
fn parts_that_do_not_fit_are_named() {
    let snowflake = format("snowflake");
    let fixed = snowflake.fixed(&[], None).unwrap();
    let fits = Parts { time_ms: snowflake.first_ms(), worker: 1_023, sequence: 4_095, random: 0 };
    // One millisecond after the epoch, and all bits below.
    assert_eq!(snowflake.encode(&fits, fixed), Ok((2 << 22) - 1));
    for (parts, message) in [
        (Parts { worker: 1_024, ..fits }, "worker 1024 does not fit: the greatest value is 1023"),
        (
            Parts { sequence: 4_096, ..fits },
            "sequence 4096 does not fit: the greatest value is 4095",
        ),
        (Parts { random: 1, ..fits }, "random 1 does not fit: the greatest value is 0"),
        (
            Parts { time_ms: 1_288_834_974_657, ..fits },
            "the time 2010-11-04T01:42:54.657Z is before the format's first one, 2010-11-04T01:42:54.658Z: check the clock, or the format's epoch",
        ),
        (
            Parts { time_ms: 3_487_858_230_209, ..fits },
            "the time 2080-07-10T17:30:30.209Z is after the format's last one, 2080-07-10T17:30:30.208Z: ids need another format",
        ),
    ] {
        let refused = snowflake.encode(&parts, fixed).unwrap_err();
        assert_eq!(refused.to_string(), message);
    }
    let last = Parts { time_ms: 3_487_858_230_208, ..fits };
    assert_eq!(snowflake.encode(&last, fixed), Ok(i64::MAX as u128));
}

#[test]
fn the_numbers_of_a_key_count_times_and_ids() {
    let rongcloud = format("rongcloud");
    let number = rongcloud.number_at(1_568_864_652_366).unwrap();
    assert_eq!(number, 1_568_864_652_366 * 4_096);
    let fixed = rongcloud.fixed(&[("type", 1)], Some(1_744_137)).unwrap();
    let parts = rongcloud.parts_of_number(number + 2_774, 0);
    let id = rongcloud.encode(&parts, fixed).unwrap();
    assert_eq!(rongcloud.print(id).to_string(), "BD8U-FCOJ-LDC5-L789");
    // The next time begins where the numbers of this one end.
    let next = rongcloud.number_at(1_568_864_652_367).unwrap();
    assert_eq!(next, number + 4_096);
    for in_tick in [number, number + 1, number + 4_095] {
        assert_eq!(rongcloud.last_number_beside(in_tick), number + 4_095);
    }
    let last = rongcloud.number_at(rongcloud.last_ms()).unwrap();
    assert_eq!(rongcloud.number_max(), last + 4_095);
    // A number beyond the format's end is a time beyond it, not an earlier one.
    let beyond = rongcloud.parts_of_number(u64::MAX, 0);
    assert!(matches!(rongcloud.encode(&beyond, fixed), Err(EncodeError::Ended { .. })));
}

#[test]
fn an_order_number_stands_beside_the_date_of_its_place() {
    let chapter = format("yuewen-chapter");
    let fixed = chapter.fixed(&[("table", 0), ("database", 0)], Some(7)).unwrap();
    let text = |time_ms| {
        let parts = Parts { time_ms, sequence: 100, ..Parts::default() };
        let id = chapter.encode(&parts, fixed).unwrap();
        chapter.print(id).to_string()
    };
    // 2016-04-23 begins at 16:00 of the day before in UTC.
    let midnight_ms = 1_461_340_800_000;
    assert_eq!(text(midnight_ms), "20160423-000-00-000100");
    assert_eq!(text(midnight_ms - 1), "20160422-000-00-000100");
    assert_eq!(text(0), "19700101-000-00-000100");
}

#[test]
fn the_numbers_of_a_key_are_order_numbers_in_steps_beside_a_date() {
    let chapter = format("yuewen-chapter");
    assert_eq!(chapter.number_max(), 9_999);
    let fixed = chapter.fixed(&[("table", 0), ("database", 0)], Some(7));
    let fixed = fixed.unwrap();
    // 2016-04-23 in China begins at 16:00 of the day before in UTC.
    let day = chapter.day_of(1_461_340_800_000 + 3_600_000);
    assert_eq!(day, 1_461_340_800_000);
    assert_eq!(chapter.day_of(day - 1), day - 86_400_000);
    let id = |number| {
        let parts = chapter.parts_of_number(number, day);
        let id = chapter.encode(&parts, fixed)?;
        Ok(chapter.print(id).to_string())
    };
    assert_eq!(id(1), Ok("20160423-000-00-000100".to_owned()));
    assert_eq!(id(9_999), Ok("20160423-000-00-999900".to_owned()));
    assert!(matches!(id(10_000), Err(EncodeError::TooLarge { .. })));
}
