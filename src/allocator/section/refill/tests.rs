//! The arithmetic of the refill rule.

use expect_test::{Expect, expect};

use super::*;
use crate::allocator::tests::transcript::{check, number, time};

fn transcript(expected: Expect) {
    check(expected, |words| match words {
        ["first", "margin", "of", step] => first_margin(number(step)).to_string(),
        ["margin", "of", step, "after", lasted, "bump", bump_time] => {
            margin(number(step), time(lasted), time(bump_time)).to_string()
        }
        ["step", step, "within", min, max, "after", lasted] => {
            next_step(number(step), (number(min), number(max)), time(lasted)).to_string()
        }
        ["fill", "to", unused, "with", left, "left"] => {
            show(BumpSize::fill(number(unused), number(left)))
        }
        ["cover", a, b, "and", c, d] => {
            let size = |numbers, unused_max| BumpSize {
                numbers: number(numbers),
                unused_max: number(unused_max),
                up_to: 0,
            };
            show(size(a, b).covering(size(c, d)))
        }
        ["bumps", "for", numbers, "of", step, "margin", margin] => {
            let brings = number(step) - number(margin);
            number(numbers).div_ceil(brings).to_string()
        }
        other => panic!("unknown command {other:?}"),
    });
}

fn show(size: BumpSize) -> String {
    format!("bump {}, at most {} unused", size.numbers, size.unused_max)
}

#[test]
fn the_faster_numbers_go_the_greater_the_margin_within_its_bounds() {
    transcript(expect![[r#"
        first margin of 10000 -> 625
        # Bound from below: 1/16 of the step.
        margin of 10000 after 3600s bump 1ms -> 625
        margin of 10000 after 32ms bump 1ms -> 625
        # What is used up in two bumps' time.
        margin of 10000 after 28ms bump 1ms -> 714
        margin of 10000 after 56ms bump 2ms -> 714
        # Bound from above: 1/11 of the step.
        margin of 10000 after 22ms bump 1ms -> 909
        margin of 10000 after 1ms bump 1ms -> 909
        margin of 10000 after 0ms bump 1ms -> 909
        margin of 18446744073709551615 after 0ms bump 3600s -> 1676976733973595601
        # A bump whose time is not known yet.
        margin of 10000 after 28ms bump 0ms -> 625
        # Small steps have no margin.
        margin of 10 after 1ms bump 1ms -> 0
    "#]]);
}

#[test]
fn the_margin_costs_7_to_10_bumps_for_a_million_numbers() {
    transcript(expect![[r#"
        bumps for 1000000 of 10000 margin 0 -> 100
        bumps for 1000000 of 10000 margin 625 -> 107
        bumps for 1000000 of 10000 margin 909 -> 110
    "#]]);
}

#[test]
fn a_step_doubles_after_a_short_chunk_and_halves_after_a_long_one_within_the_bounds() {
    transcript(expect![[r#"
        step 100 within 60 1000 after 100ms -> 200
        step 800 within 60 1000 after 100ms -> 1000
        step 1000 within 60 1000 after 100ms -> 1000
        step 100 within 60 1000 after 249ms -> 200
        step 100 within 60 1000 after 250ms -> 100
        step 100 within 60 1000 after 2000ms -> 100
        step 100 within 60 1000 after 2001ms -> 60
        step 125 within 60 1000 after 10s -> 62
        step 62 within 60 1000 after 10s -> 60
        # Without bounds of its own, a namespace's step is both.
        step 100 within 100 100 after 1ms -> 100
        step 100 within 100 100 after 3600s -> 100
        # Bounds that were changed hold at once.
        step 100 within 200 1000 after 1s -> 200
        step 18446744073709551615 within 1 18446744073709551615 after 1ms -> 18446744073709551615
    "#]]);
}

#[test]
fn a_bump_fills_up_to_what_is_asked_for_and_brings_one_number_at_least() {
    transcript(expect![[r#"
        fill to 160 with 9 left -> bump 151, at most 160 unused
        fill to 100 with 0 left -> bump 100, at most 100 unused
        fill to 100 with 100 left -> bump 1, at most 101 unused
        fill to 100 with 300 left -> bump 1, at most 301 unused
        fill to 1 with 18446744073709551615 left -> bump 1, at most 18446744073709551615 unused
        cover 151 160 and 30 400 -> bump 151, at most 400 unused
        cover 30 400 and 151 160 -> bump 151, at most 400 unused
    "#]]);
}
