//! The batches that are made of requests, and how answers are shared out.

mod named;
mod script;

use expect_test::expect;

use script::check;

#[test]
fn requests_for_one_key_share_a_range_in_the_order_of_asking() {
    check(
        "ask a 1
         ask b 3
         ask a 2
         send
         answer 1 11 40
         send",
        expect![[r#"
            ask a 1 -> caller 1
            ask b 3 -> caller 2
            ask a 2 -> caller 3
            send -> batch 1 of book: a 3, b 3
            answer 1 11 40 -> caller 1: 11; caller 2: 40..42; caller 3: 12..13
            send -> nothing waits
        "#]],
    );
}

#[test]
fn the_numbers_of_a_range_lie_an_increment_apart() {
    check(
        "ask 7 2
         ask 7 1
         ask 7 3
         send
         answer 1 100 increment=10",
        expect![[r#"
            ask 7 2 -> caller 1
            ask 7 1 -> caller 2
            ask 7 3 -> caller 3
            send -> batch 1 of book: 7 6
            answer 1 100 increment=10 -> caller 1: 100..110 by 10; caller 2: 120; caller 3: 130..150 by 10
        "#]],
    );
}

#[test]
fn single_requests_for_different_keys_need_no_counts() {
    check(
        "ask 7 1
         ask 8 1
         send
         answer 1 5 6",
        expect![[r#"
            ask 7 1 -> caller 1
            ask 8 1 -> caller 2
            send -> batch 1 of book: 7, 8, one each
            answer 1 5 6 -> caller 1: 5; caller 2: 6
        "#]],
    );
}

#[test]
fn a_namespace_or_kind_of_key_has_batches_of_its_own_in_turns() {
    check(
        "ask a 1
         ask few/a 1
         ask 7 1
         ask b 1
         send
         send
         send
         send",
        expect![[r#"
            ask a 1 -> caller 1
            ask few/a 1 -> caller 2
            ask 7 1 -> caller 3
            ask b 1 -> caller 4
            send -> batch 1 of book: a, b, one each
            send -> batch 2 of few: a, one each
            send -> batch 3 of book: 7, one each
            send -> nothing waits
        "#]],
    );
}

#[test]
fn a_range_that_would_grow_too_large_is_followed_by_another() {
    // The second range may get lower numbers than the first.
    check(
        "ask 7 1
         ask 7 2
         ask 7 9997
         ask 7 1
         send
         answer 1 101 5",
        expect![[r#"
            ask 7 1 -> caller 1
            ask 7 2 -> caller 2
            ask 7 9997 -> caller 3
            ask 7 1 -> caller 4
            send -> batch 1 of book: 7 10000, 7 1
            answer 1 101 5 -> caller 1: 101; caller 2: 102..103; caller 3: 104..10100; caller 4: 5
        "#]],
    );
}

#[test]
fn a_single_request_may_want_more_than_a_merged_range_has() {
    check(
        "ask 7 20000
         ask 7 1
         send
         answer 1 1 20001",
        expect![[r#"
            ask 7 20000 -> caller 1
            ask 7 1 -> caller 2
            send -> batch 1 of book: 7 20000, 7 1
            answer 1 1 20001 -> caller 1: 1..20000; caller 2: 20001
        "#]],
    );
}

#[test]
fn a_batch_is_limited_in_requests_and_in_bytes_of_keys() {
    check(
        "ask 1..9000 1
         send
         send
         ask wide1..wide3000 1
         send
         send",
        expect![[r#"
            ask 1..9000 1 -> callers 1..9000
            send -> batch 1 of book: 8192 keys, one each
            send -> batch 2 of book: 808 keys, one each
            ask wide1..wide3000 1 -> callers 9001..12000
            send -> batch 3 of book: 1963 keys, one each
            send -> batch 4 of book: 1037 keys, one each
        "#]],
    );
}

#[test]
fn requests_that_shared_a_range_with_too_few_numbers_left_get_ranges_of_their_own() {
    // The third wants too much in any case.
    check(
        "ask 7 1
         ask 7 4
         ask 7 9
         ask 7 2
         send
         answer 1 0 left=0:6
         send
         answer 2 11 12 0 left=2:1
         send",
        expect![[r#"
            ask 7 1 -> caller 1
            ask 7 4 -> caller 2
            ask 7 9 -> caller 3
            ask 7 2 -> caller 4
            send -> batch 1 of book: 7 16
            answer 1 0 left=0:6 -> caller 3: error: a:1: count is 9, and 6 numbers are left: raise max; 3 to send again
            send -> batch 2 of book: 7 1, 7 4, 7 2
            answer 2 11 12 0 left=2:1 -> caller 1: 11; caller 2: 12..15; caller 4: error: a:1: count is 2, and 1 numbers are left: raise max
            send -> nothing waits
        "#]],
    );
}

#[test]
fn requests_that_shared_a_range_that_was_too_large_get_ranges_of_their_own() {
    // For the second key, another range would be refused as well.
    check(
        "ask 7 3
         ask 7 4
         ask 8 1
         ask 8 1
         send
         answer 1 0 0 too-large=0 invalid=1
         send",
        expect![[r#"
            ask 7 3 -> caller 1
            ask 7 4 -> caller 2
            ask 8 1 -> caller 3
            ask 8 1 -> caller 4
            send -> batch 1 of book: 7 7, 8 2
            answer 1 0 0 too-large=0 invalid=1 -> caller 3: error: a:1: it is wrong; caller 4: error: a:1: it is wrong; 2 to send again
            send -> batch 2 of book: 7 3, 7 4
        "#]],
    );
}

#[test]
fn a_key_without_numbers_left_fails_and_other_keys_get_theirs() {
    check(
        "ask 7 1
         ask 8 3
         ask 7 1
         send
         answer 1 0 40 left=0:0
         send",
        expect![[r#"
            ask 7 1 -> caller 1
            ask 8 3 -> caller 2
            ask 7 1 -> caller 3
            send -> batch 1 of book: 7 2, 8 3
            answer 1 0 40 left=0:0 -> caller 1: error: a:1: count is 1, and 0 numbers are left: raise max; caller 2: 40..42; caller 3: error: a:1: count is 1, and 0 numbers are left: raise max
            send -> nothing waits
        "#]],
    );
}

#[test]
fn used_up_places_that_were_not_in_the_message_are_ignored() {
    check(
        "ask 7 1
         ask 7 1
         send
         answer 1 3 left=9:5 left=4294967295:5",
        expect![[r#"
            ask 7 1 -> caller 1
            ask 7 1 -> caller 2
            send -> batch 1 of book: 7 2
            answer 1 3 left=9:5 left=4294967295:5 -> caller 1: 3; caller 2: 4
        "#]],
    );
}

#[test]
fn a_number_not_above_what_the_key_got_before_is_an_error() {
    // Batches 1 and 2 are in flight at the same time: either may get the lower numbers.
    check(
        "ask 7 1
         send
         ask 7 1
         send
         answer 2 20
         answer 1 10
         ask 7 1
         send
         answer 3 20",
        expect![[r#"
            ask 7 1 -> caller 1
            send -> batch 1 of book: 7, one each
            ask 7 1 -> caller 2
            send -> batch 2 of book: 7, one each
            answer 2 20 -> caller 2: 20
            answer 1 10 -> caller 1: 10
            ask 7 1 -> caller 3
            send -> batch 3 of book: 7, one each
            answer 3 20 -> caller 3: error: a:1: 20 was handed out for a key of namespace "book" after 20 had been: the cluster broke its promise; stop using it and report this
        "#]],
    );
}

#[test]
fn an_answer_that_does_not_fit_its_batch_fails_every_request() {
    check(
        "ask 7 1
         ask 8 1
         send
         answer 1 5
         ask 7 1
         send
         answer 2 5 increment=0",
        expect![[r#"
            ask 7 1 -> caller 1
            ask 8 1 -> caller 2
            send -> batch 1 of book: 7, 8, one each
            answer 1 5 -> caller 1: error: a:1: asked for numbers of 2 keys, it answered for 1; caller 2: error: a:1: asked for numbers of 2 keys, it answered for 1
            ask 7 1 -> caller 3
            send -> batch 2 of book: 7, one each
            answer 2 5 increment=0 -> caller 3: error: a:1: it answered with numbers whose increment is 0
        "#]],
    );
}

#[test]
fn an_answer_at_the_end_of_all_numbers_does_not_overflow() {
    check(
        "ask 7 3
         ask 7 1
         send
         answer 1 18446744073709551614 increment=2",
        expect![[r#"
            ask 7 3 -> caller 1
            ask 7 1 -> caller 2
            send -> batch 1 of book: 7 4
            answer 1 18446744073709551614 increment=2 -> caller 1: 18446744073709551614..18446744073709551615 by 2; caller 2: 18446744073709551615
        "#]],
    );
}

#[test]
fn requests_of_an_unavailable_server_are_sent_again_in_their_order() {
    check(
        "ask 7 1
         ask 8 1
         send
         ask 9 1
         fail 1 UNAVAILABLE
         send",
        expect![[r#"
            ask 7 1 -> caller 1
            ask 8 1 -> caller 2
            send -> batch 1 of book: 7, 8, one each
            ask 9 1 -> caller 3
            fail 1 UNAVAILABLE -> 2 to send again; ask another server
            send -> batch 2 of book: 7, 8, 9, one each
        "#]],
    );
}

#[test]
fn a_late_batch_fails_the_requests_whose_time_is_up_alone() {
    check(
        "ask 7 1
         wait 3000
         ask 8 1
         send
         wait 2000
         fail 1 DEADLINE_EXCEEDED
         send
         fail 2 UNAVAILABLE
         wait 2999
         wait 1",
        expect![[r#"
            ask 7 1 -> caller 1
            wait 3000 ->
            ask 8 1 -> caller 2
            send -> batch 1 of book: 7, 8, one each
            wait 2000 ->
            fail 1 DEADLINE_EXCEEDED -> caller 1: error: a:1: it failed; 1 to send again; ask another server
            send -> batch 2 of book: 8, one each
            fail 2 UNAVAILABLE -> 1 to send again; ask another server
            wait 2999 ->
            wait 1 -> caller 2: error: a:1: no answer in time
        "#]],
    );
}

#[test]
fn after_an_invalid_argument_halves_are_sent_until_the_wrong_request_is_alone() {
    check(
        "ask 1..8 1
         send
         fail 1 INVALID_ARGUMENT
         send
         send
         answer 2 1 1 1 1
         fail 3 INVALID_ARGUMENT
         ask 9 1
         send
         send
         answer 4 1 1
         fail 5 INVALID_ARGUMENT
         send
         send
         answer 6 1
         fail 7 INVALID_ARGUMENT
         send",
        expect![[r#"
            ask 1..8 1 -> callers 1..8
            send -> batch 1 of book: 1, 2, 3, 4, 5, 6, 7, 8, one each
            fail 1 INVALID_ARGUMENT -> 8 to send again
            send -> batch 2 of book: 1, 2, 3, 4, one each
            send -> batch 3 of book: 5, 6, 7, 8, one each
            answer 2 1 1 1 1 -> caller 1: 1; caller 2: 1; caller 3: 1; caller 4: 1
            fail 3 INVALID_ARGUMENT -> 4 to send again
            ask 9 1 -> caller 9
            send -> batch 4 of book: 5, 6, one each
            send -> batch 5 of book: 7, 8, one each
            answer 4 1 1 -> caller 5: 1; caller 6: 1
            fail 5 INVALID_ARGUMENT -> 2 to send again
            send -> batch 6 of book: 7, one each
            send -> batch 7 of book: 8, one each
            answer 6 1 -> caller 7: 1
            fail 7 INVALID_ARGUMENT -> caller 8: error: a:1: it failed
            send -> batch 8 of book: 9, one each
        "#]],
    );
}

#[test]
fn a_key_that_is_refused_without_a_leader_is_asked_for_again_while_there_is_time() {
    check(
        "ask 7 1
         wait 4000
         ask 8 1
         ask 9 1
         send
         wait 999
         answer 1 0 5 0 unavailable=0 unavailable=2
         send
         ask 7 1
         send named
         lose 3
         resend
         answer 4 0 unavailable=0",
        expect![[r#"
            ask 7 1 -> caller 1
            wait 4000 ->
            ask 8 1 -> caller 2
            ask 9 1 -> caller 3
            send -> batch 1 of book: 7, 8, 9, one each
            wait 999 ->
            answer 1 0 5 0 unavailable=0 unavailable=2 -> caller 1: error: a:1: no leader; caller 2: 5; 1 to send again; ask another server
            send -> batch 2 of book: 9, one each
            ask 7 1 -> caller 4
            send named -> batch 3 of book: 7, one each (id 1)
            lose 3 -> to send again as it was
            resend -> batch 4 of book: 7, one each (id 1)
            answer 4 0 unavailable=0 -> caller 4: error: a:1: no leader; Gapless
        "#]],
    );
}

#[test]
fn requests_that_come_back_in_another_order_still_expire_in_time() {
    check(
        "ask 7 1
         send
         wait 1000
         ask 8 1
         send
         fail 1 UNAVAILABLE
         fail 2 UNAVAILABLE
         wait 4000
         send",
        expect![[r#"
            ask 7 1 -> caller 1
            send -> batch 1 of book: 7, one each
            wait 1000 ->
            ask 8 1 -> caller 2
            send -> batch 2 of book: 8, one each
            fail 1 UNAVAILABLE -> 1 to send again; ask another server
            fail 2 UNAVAILABLE -> 1 to send again; ask another server
            wait 4000 -> caller 1: error: a:1: no answer in time
            send -> batch 3 of book: 8, one each
        "#]],
    );
}

#[test]
fn any_other_failure_goes_to_every_request_of_the_batch() {
    check(
        "ask 7 1
         ask 8 1
         send
         fail 1 NOT_FOUND
         send",
        expect![[r#"
            ask 7 1 -> caller 1
            ask 8 1 -> caller 2
            send -> batch 1 of book: 7, 8, one each
            fail 1 NOT_FOUND -> caller 1: error: a:1: it failed; caller 2: error: a:1: it failed
            send -> nothing waits
        "#]],
    );
}
