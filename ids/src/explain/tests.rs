//! The explanations of some formats, word by word.

use crate::Format;

fn explained(text: &str) -> String {
    Format::parse(text).unwrap().explain().to_string()
}

#[test]
fn a_format_of_workers_is_explained() {
    let expected = "\
name        snowflake
format      bits epoch=1288834974657 zero:1=0 time-ms:41 worker:10 sequence:12
source      whoever holds a worker id
ids         4096000 a second for each worker
workers     1024, 0 to 1023
size        63 bits
text        number
first       2010-11-04T01:42:54.658Z
last        2080-07-10T17:30:30.208Z

field     bits    greatest             meaning
zero      1       0                    always 0
time-ms   41      2199023255551        milliseconds since the epoch
worker    10      1023                 who makes the id
sequence  12      4095                 counts the ids
";
    assert_eq!(explained("snowflake"), expected);
}

#[test]
fn a_counter_that_runs_on_is_explained() {
    let expected = "\
name        yuewen-route
format      digits epoch=2015-01-01 offset=+08:00 text=groups counter=runs-on counter-per=type time-s:10 sequence:4 type:2 worker:1 database:2
source      whoever holds a worker id
ids         10000 a second for each worker and type
workers     10, 0 to 9
parameters  type, database
counter     runs on over the seconds, and from 9999 to 0
";
    assert!(explained("yuewen-route").starts_with(expected), "{}", explained("yuewen-route"));
}

#[test]
fn a_format_of_keys_with_a_date_is_explained() {
    let expected = "\
format      digits epoch=2016-01-01 offset=+08:00 text=groups step=100 date:8 table:3 database:2 sequence:6
source      the leader, for each key, with the day's date
ids         9999 for each key, 100 apart
parameters  table, database
size        63 bits
text        groups
first       2016-01-01T00:00:00.000+08:00
last        9223-12-31T23:59:59.999+08:00

field     digits  greatest             meaning
date      8       92231231             the date, YYYYMMDD
table     3       999                  chosen by the caller
database  2       99                   chosen by the caller
sequence  6       999900               counts the ids
";
    assert_eq!(explained("yuewen-chapter epoch=2016-01-01"), expected);
}

#[test]
fn seconds_have_as_many_ids_as_the_counter_has_values() {
    let rate = |text| Format::parse(text).unwrap().ids_per_second();
    assert_eq!(rate("yuewen-route"), Some(10_000));
    assert_eq!(rate("rongcloud"), Some(4_096_000));
    assert_eq!(rate("yuewen-chapter"), None);
}
