//! Dumps as mysqldump and `mysql --batch` write them.

use super::*;
use crate::cli::import::rows::RowOf;
use ratchet_client::{Key, api as v1};

fn names() -> Expected {
    let namespace = v1::Namespace {
        name: "tags".into(),
        key_kind: v1::KeyKind::Name.into(),
        max: 1_000_000,
        start: 1,
        increment: 1,
        ..v1::Namespace::default()
    };
    Expected::new(&namespace).unwrap()
}

fn rows(text: &str, table: &Table) -> Result<Vec<String>, String> {
    let mut rows = Vec::new();
    let taken = read(text.as_bytes(), table, &names(), |row| {
        rows.push(match row {
            Ok(row) => {
                let RowOf::Key(Key::Name(name)) = row.of else { panic!("a name") };
                format!("{}: {} {}", row.line, name.escape_ascii(), row.number)
            }
            Err(bad) => format!("{}: {}", bad.line, bad.why),
        });
        true
    });
    taken.map(|()| rows).map_err(|error| error.to_string())
}

#[test]
fn the_rows_of_insert_statements_are_read_with_their_lines() {
    let dump = "-- MySQL dump 10.13; it's here\n\
                DROP TABLE IF EXISTS `leaf_alloc`;\n\
                CREATE TABLE `leaf_alloc` (\n  `biz_tag` varchar(128) DEFAULT '',\n  `max_id` bigint\n);\n\
                INSERT INTO `leaf_alloc` VALUES ('order',2001,2000,'it''s; \\'one\\'','2018-01-01 00:00:00'),\n\
                ('pay(ment),x',7,1,NULL,'2018'),('fresh',0,1,'','');\n\
                INSERT INTO `other` VALUES ('a',1,1,'','');\n\
                INSERT INTO leaf_alloc (max_id, biz_tag) VALUES (9, 'b');\n\
                INSERT INTO leaf_alloc (max_id, biz_tag) VALUES (-9, 'c'), (1, 'd', 2);\n";
    let found = rows(dump, &LEAF).unwrap();
    assert_eq!(found[0], "7: order 2001");
    assert_eq!(found[1], "8: pay(ment),x 7");
    assert_eq!(found[2], "10: b 9");
    assert!(found[3].starts_with("11: number '-9' is none between 1 and 1000000"), "{found:?}");
    assert!(found[4].contains("has 3 fields; its columns are 2"), "{found:?}");
    assert_eq!(found.len(), 5);
}

#[test]
fn the_rows_of_tab_separated_text_are_read_by_its_header() {
    let text =
        "id\tbiz_type\tbegin_id\tmax_id\tstep\n1\ta\\tb\t1\t2001\t2000\n\n2\ttest\t1\tx\t1\n";
    let found = rows(text, &TINYID).unwrap();
    assert_eq!(found[0], "2: a\\tb 2001");
    assert!(found[1].starts_with("4: number 'x' is none"), "{found:?}");
    let wrong = rows("a\tb\n1\t2\n", &TINYID).unwrap_err();
    assert!(wrong.contains("no columns biz_type and max_id"), "{wrong}");
}

#[test]
fn what_is_no_dump_of_the_table_is_refused() {
    let refused = rows("a,1\n", &LEAF).unwrap_err();
    assert!(refused.contains("no INSERT INTO leaf_alloc"), "{refused}");
    let cut = rows("INSERT INTO leaf_alloc VALUES ('a',1", &LEAF).unwrap_err();
    assert!(cut.contains("line 1: ',' or ')' is missing"), "{cut}");
}

#[test]
fn a_tag_that_looks_like_a_range_of_ids_is_a_name_or_no_id() {
    let dump = "INSERT INTO leaf_alloc VALUES ('0-9',7,1,'','');\n";
    assert_eq!(rows(dump, &LEAF).unwrap(), ["1: 0-9 7"]);
    let sections = v1::Namespace {
        name: "small".into(),
        key_kind: v1::KeyKind::Id.into(),
        section_size: 10,
        ..v1::Namespace::default()
    };
    let expected = Expected::new(&sections).unwrap();
    let mut refused = Vec::new();
    let note = |row: MaybeRow| {
        refused.push(row.unwrap_err().why);
        true
    };
    read(dump.as_bytes(), &LEAF, &expected, note).unwrap();
    let why =
        format!("key '0-9' is no id; namespace \"small\" takes integers from 0 to {}", u64::MAX);
    assert_eq!(refused, [why]);
}
