//! A cursor by itself, without its section.

use expect_test::{Expect, expect};

use super::*;
use crate::allocator::tests::transcript::{check, number, set, show};

fn transcript(expected: Expect) {
    let mut config = NamespaceConfig::new("book");
    let mut cursor = Cursor::new();
    check(expected, |words| {
        match words {
            ["namespace", fields @ ..] => set(&mut config, fields),
            ["raise", "to", lowest] => cursor.raise_to(number(lowest)),
            ["fast", "limit", limit] => cursor.set_fast_limit(number(limit)),
            ["stop", "fast", "path"] => cursor.stop_fast_path(),
            ["take", count] => {
                return match cursor.take(&config, number(count)) {
                    Some(range) => show(range),
                    None => "ask the section".into(),
                };
            }
            ["last", "above", lowest] => {
                let last = cursor.last(number(lowest), config.increment);
                return format!("{last:?}");
            }
            other => panic!("unknown command {other:?}"),
        }
        String::new()
    });
}

#[test]
fn a_cursor_hands_out_numbers_up_to_its_fast_limit_and_no_further() {
    transcript(expect![[r#"
        take 1 -> ask the section
        last above 1 -> None
        fast limit 10
        take 1 -> 1..1
        take 4 -> 2..5
        take 6 -> ask the section
        take 5 -> 6..10
        take 1 -> ask the section
        last above 1 -> Some(10)
        # A cursor never moves down.
        raise to 3
        fast limit 20
        take 1 -> 11..11
        raise to 15
        take 1 -> 15..15
        stop fast path
        take 1 -> ask the section
    "#]]);
}

#[test]
fn a_cursor_stops_at_a_max_below_its_fast_limit() {
    transcript(expect![[r#"
        namespace max=5
        fast limit 10
        take 6 -> ask the section
        take 4 -> 1..4
        take 2 -> ask the section
        take 1 -> 5..5
    "#]]);
}

#[test]
fn a_cursor_keeps_the_increment_and_does_not_overflow() {
    transcript(expect![[r#"
        namespace increment=100 start=5
        raise to 5
        fast limit 905
        take 1 -> 5..5
        take 2 -> 105..205
        last above 5 -> Some(205)
        take 18446744073709551615 -> ask the section
        take 8 -> ask the section
        take 7 -> 305..905
    "#]]);
}
