//! Messages with an id.

use expect_test::expect;

use super::script::check;

#[test]
fn a_message_with_an_id_is_sent_again_as_it_was_whatever_waits_beside_it() {
    check(
        "ask 7 1
         ask 7 2
         send named
         ask 7 1
         lose 1
         resend
         refuse 2 NO_LEADER
         resend
         refuse 3 OUTCOME_UNKNOWN UNKNOWN
         resend
         send named
         answer 4 5
         answer 5 8",
        expect![[r#"
            ask 7 1 -> caller 1
            ask 7 2 -> caller 2
            send named -> batch 1 of book: 7 3 (id 1)
            ask 7 1 -> caller 3
            lose 1 -> to send again as it was
            resend -> batch 2 of book: 7 3 (id 1)
            refuse 2 NO_LEADER -> ask another server; to send again as it was
            resend -> batch 3 of book: 7 3 (id 1)
            refuse 3 OUTCOME_UNKNOWN UNKNOWN -> ask another server; to send again as it was
            resend -> batch 4 of book: 7 3 (id 1)
            send named -> batch 5 of book: 7, one each (id 2)
            answer 4 5 -> caller 1: 5; caller 2: 6..7; Gapless
            answer 5 8 -> caller 3: 8; Gapless
        "#]],
    );
}

#[test]
fn callers_whose_time_is_up_learn_that_the_outcome_is_unknown_and_the_others_get_their_numbers() {
    check(
        "ask 7 2
         wait 1
         ask 7 1
         send named
         lose 1
         wait 4998
         wait 1
         resend
         answer 2 1",
        expect![[r#"
            ask 7 2 -> caller 1
            wait 1 ->
            ask 7 1 -> caller 2
            send named -> batch 1 of book: 7 3 (id 1)
            lose 1 -> to send again as it was
            wait 4998 ->
            wait 1 -> caller 1: error: a:1: no answer in time; whether it was carried out is not known
            resend -> batch 2 of book: 7 3 (id 1)
            answer 2 1 -> caller 2: 3; Gapless
        "#]],
    );
}

#[test]
fn a_message_that_certainly_took_nothing_fails_as_any_other_and_one_that_may_have_does_not() {
    check(
        "ask 7 1
         ask 8 1
         send named
         refuse 1 WRONG_STATE
         ask 7 1
         send named
         refuse 2 NO_LEADER
         wait 5000
         ask 7 1
         send named
         lose 3
         resend
         refuse 4 WRONG_STATE
         ask 7 1
         send named
         lose 5
         wait 5000
         resend",
        expect![[r#"
            ask 7 1 -> caller 1
            ask 8 1 -> caller 2
            send named -> batch 1 of book: 7, 8, one each (id 1)
            refuse 1 WRONG_STATE -> caller 1: error: a:1: refused; caller 2: error: a:1: refused
            ask 7 1 -> caller 3
            send named -> batch 2 of book: 7, one each (id 2)
            refuse 2 NO_LEADER -> 1 to send again; ask another server
            wait 5000 -> caller 3: error: a:1: no answer in time
            ask 7 1 -> caller 4
            send named -> batch 3 of book: 7, one each (id 3)
            lose 3 -> to send again as it was
            resend -> batch 4 of book: 7, one each (id 3)
            refuse 4 WRONG_STATE -> caller 4: error: a:1: refused; whether it was carried out is not known
            ask 7 1 -> caller 5
            send named -> batch 5 of book: 7, one each (id 4)
            lose 5 -> to send again as it was
            wait 5000 -> caller 5: error: a:1: no answer in time; whether it was carried out is not known
            resend -> nothing is to be sent again
        "#]],
    );
}

#[test]
fn a_namespace_that_knows_no_ids_is_asked_without_and_one_that_needs_them_with_an_id() {
    check(
        "ask 7 1
         ask 8 1
         send named
         refuse 1 REQUEST_ID_UNSUPPORTED
         send
         refuse 2 REQUEST_ID_REQUIRED
         send named
         answer 3 1 1",
        expect![[r#"
            ask 7 1 -> caller 1
            ask 8 1 -> caller 2
            send named -> batch 1 of book: 7, 8, one each (id 1)
            refuse 1 REQUEST_ID_UNSUPPORTED -> 2 to send again; Ordinary
            send -> batch 2 of book: 7, 8, one each
            refuse 2 REQUEST_ID_REQUIRED -> 2 to send again; Gapless
            send named -> batch 3 of book: 7, 8, one each (id 2)
            answer 3 1 1 -> caller 1: 1; caller 2: 1; Gapless
        "#]],
    );
}

#[test]
fn a_request_that_nobody_waits_for_any_more_is_not_sent() {
    check(
        "ask 7 1
         ask 8 1
         leave 1
         send
         answer 1 3
         ask 9 1
         leave 3
         send",
        expect![[r#"
            ask 7 1 -> caller 1
            ask 8 1 -> caller 2
            leave 1 ->
            send -> batch 1 of book: 8, one each
            answer 1 3 -> caller 2: 3
            ask 9 1 -> caller 3
            leave 3 ->
            send -> nothing waits
        "#]],
    );
}

#[test]
fn a_message_that_took_nothing_takes_nothing_later_for_a_caller_whose_time_is_up() {
    check(
        "ask 7 2
         wait 1
         ask 7 1
         send named
         refuse 1 NO_LEADER
         wait 4999
         send named
         answer 2 1",
        expect![[r#"
            ask 7 2 -> caller 1
            wait 1 ->
            ask 7 1 -> caller 2
            send named -> batch 1 of book: 7 3 (id 1)
            refuse 1 NO_LEADER -> 2 to send again; ask another server
            wait 4999 -> caller 1: error: a:1: no answer in time
            send named -> batch 2 of book: 7, one each (id 2)
            answer 2 1 -> caller 2: 1; Gapless
        "#]],
    );
}

#[test]
fn a_message_says_when_it_was_made_by_the_servers_clock_and_is_made_anew_if_it_knew_a_wrong_time() {
    check(
        "ask 7 1
         send named
         refuse 1 REQUEST_ID_EXPIRED clock=90000
         send named
         answer 2 1
         wait 4000
         ask 7 1
         send named
         lose 3
         resend
         refuse 4 REQUEST_ID_EXPIRED clock=200000
         ask 7 1
         send named",
        expect![[r#"
            ask 7 1 -> caller 1
            send named -> batch 1 of book: 7, one each (id 1)
            refuse 1 REQUEST_ID_EXPIRED clock=90000 -> 1 to send again; Gapless
            send named -> batch 2 of book: 7, one each (id 2, made at 90000)
            answer 2 1 -> caller 1: 1; Gapless
            wait 4000 ->
            ask 7 1 -> caller 2
            send named -> batch 3 of book: 7, one each (id 3, made at 91500)
            lose 3 -> to send again as it was
            resend -> batch 4 of book: 7, one each (id 3, made at 91500)
            refuse 4 REQUEST_ID_EXPIRED clock=200000 -> caller 2: error: a:1: refused; whether it was carried out is not known
            ask 7 1 -> caller 3
            send named -> batch 5 of book: 7, one each (id 4, made at 200000)
        "#]],
    );
}

/// A server that lags may take the namespace for an older one, which knew no ids.
#[test]
fn a_message_that_may_be_done_keeps_its_id_once_a_server_has_said_that_ids_are_remembered() {
    check(
        "ask 7 1
         send learnt
         refuse 1 REQUEST_ID_EXPIRED clock=90000
         send learnt
         lose 2
         resend
         refuse 3 REQUEST_ID_UNSUPPORTED
         resend
         answer 4 1",
        expect![[r#"
            ask 7 1 -> caller 1
            send learnt -> batch 1 of book: 7, one each (id 1)
            refuse 1 REQUEST_ID_EXPIRED clock=90000 -> 1 to send again; Gapless
            send learnt -> batch 2 of book: 7, one each (id 2, made at 90000)
            lose 2 -> to send again as it was
            resend -> batch 3 of book: 7, one each (id 2, made at 90000)
            refuse 3 REQUEST_ID_UNSUPPORTED -> ask another server; to send again as it was
            resend -> batch 4 of book: 7, one each (id 2, made at 90000)
            answer 4 1 -> caller 1: 1; Gapless
        "#]],
    );
}

/// No answer has told the mode of the namespace: the message itself knows that its id may be remembered.
#[test]
fn a_message_that_may_be_done_keeps_its_id_behind_a_server_without_memory_and_one_that_lags() {
    check(
        "ask 7 1
         send learnt
         lose 1
         resend
         refuse 2 REQUEST_IDS_FULL
         resend
         refuse 3 REQUEST_ID_UNSUPPORTED
         resend
         answer 4 1",
        expect![[r#"
            ask 7 1 -> caller 1
            send learnt -> batch 1 of book: 7, one each (id 1)
            lose 1 -> to send again as it was
            resend -> batch 2 of book: 7, one each (id 1)
            refuse 2 REQUEST_IDS_FULL -> ask another server; to send again as it was
            resend -> batch 3 of book: 7, one each (id 1)
            refuse 3 REQUEST_ID_UNSUPPORTED -> ask another server; to send again as it was
            resend -> batch 4 of book: 7, one each (id 1)
            answer 4 1 -> caller 1: 1; Gapless
        "#]],
    );
}
