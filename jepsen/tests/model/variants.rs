//! The protocol with all its margins, and with each of them left out.

use crate::{
    rules::{Margin::*, Step::*, *},
    search::*,
};
use stateright::{Checker, HasDiscoveries::AnyFailures};

/// Every state within the bounds keeps the promise.
fn holds(name: &str, rules: Rules) {
    let checker = search_and_tell(name, rules, AnyFailures);
    assert!(!is_broken(&checker));
    assert!(checker.unique_state_count() > 50_000, "vacuous");
}

/// Besides, the events that the search is about do happen.
fn holds_and_happens(name: &str, rules: Rules) {
    let checker = search_and_tell(name, rules, AnyFailures);
    checker.assert_properties();
    assert!(checker.unique_state_count() > 500_000, "vacuous");
}

/// There is a way to break the promise.
fn breaks(name: &str, rules: Rules) {
    let checker = search_and_tell(name, rules, AnyFailures);
    assert!(is_broken(&checker), "this margin is not necessary");
}

searches! {
    the_lease_fence_keeps_the_promise: holds_and_happens(Rules { calls: BOTH, ..LEASE });
    the_lease_fence_keeps_it_over_three_terms: holds(Rules { terms: 3, handovers: 0, ..LEASE });
    the_quorum_fence_keeps_the_promise_without_any_clock: holds_and_happens(Rules { calls: BOTH, ..QUORUM });

    without_a_fence_a_deposed_leader_goes_on: breaks(Rules { steps: &[Invoke, Take, Answer], ..LEASE });
    a_fence_asked_before_the_call_says_nothing: breaks(Rules { steps: &[Check, Pause, Invoke, Take, Answer], ..LEASE });
    a_round_sent_before_the_call_says_nothing: breaks(Rules { steps: &[Check, Pause, Invoke, Take, Answer], ..QUORUM });
    a_fence_asked_before_the_take_lets_current_read_too_much: breaks(Rules { steps: CHECK_FIRST, calls: BOTH, ..LEASE });
    a_round_sent_before_the_take_lets_current_read_too_much: breaks(Rules { steps: CHECK_FIRST, calls: BOTH, ..QUORUM });
    a_fence_asked_before_the_take_would_do_for_next_alone: holds(Rules { steps: CHECK_FIRST, ..LEASE });

    a_lease_as_long_as_the_followers_outlives_theirs_under_drift: breaks(Rules { leader_lease: 3, ..LEASE });
    a_lease_as_long_as_the_followers_would_do_with_perfect_clocks: holds(Rules { leader_lease: 3, rates: (1, 1), ..LEASE });
    a_longer_lease_breaks_with_perfect_clocks: breaks(Rules { leader_lease: 4, rates: (1, 1), ..LEASE });
    drift_beyond_the_margin_breaks_the_lease: breaks(Rules { rates: (1, 3), ..LEASE });
    a_pause_that_a_clock_misses_breaks_the_lease: breaks(Rules { rates: (0, 1), ..LEASE });
    a_lease_since_the_acknowledgement_arrived_is_too_long: breaks(Rules { without: &[LeaseSinceSending], ..LEASE });
    an_acknowledgement_counted_for_a_later_message_is_too_long: breaks(Rules { without: &[AckOfItsOwnMessage], ..LEASE });
    a_restarted_node_that_votes_at_once_breaks_its_promise: breaks(Rules { without: &[SilenceAfterRestart], ..LEASE });
    a_candidate_that_ignores_its_own_promise_breaks_it: breaks(Rules { without: &[CandidateKeepsPromise], ..LEASE });
    a_lease_that_outlives_its_holders_vote_is_void_too_late: breaks(Rules { without: &[LaterTermVoids], ..LEASE });
    a_round_that_counts_a_leader_that_voted_later_is_no_majority: breaks(Rules { without: &[LaterTermVoids], ..QUORUM });

    a_chunk_from_the_applied_table_was_handed_out_before: breaks(Rules { without: &[ChunkFromApply], ..QUORUM });
    a_chunk_granted_to_a_later_term_comes_too_late: breaks(Rules { without: &[ChunkInItsTerm], ..QUORUM });

    an_allocator_left_open_answers_after_its_successor: breaks(Rules { without: &[ClosedToTransfer], ..LEASE });
    an_allocator_opened_again_answers_after_its_successor: breaks(Rules { without: &[ClosedForGood], ..LEASE });
    an_allocator_opened_again_hands_out_what_was_trimmed: breaks(Rules { without: &[ClosedForGood], ..QUORUM });
    a_trim_below_what_was_taken_returns_what_is_yet_answered: breaks(Rules { without: &[TrimCountsTaken], ..QUORUM });
    a_trim_logged_in_a_later_term_takes_that_terms_numbers: breaks(Rules { without: &[TrimInItsTerm], ..QUORUM });
    a_trim_by_anyone_in_any_term_takes_other_terms_numbers: breaks(Rules { without: &[TrimInItsTerm, TrimByOwner], ..QUORUM });
    a_trim_that_only_its_own_term_logs_needs_no_other_guard: holds(Rules { without: &[TrimByOwner], calls: BOTH, ..QUORUM });
}
