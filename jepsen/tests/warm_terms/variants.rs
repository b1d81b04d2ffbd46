//! The protocol with all its margins, and with each of them left out.

use crate::{
    properties::EVENT,
    rules::{Check::*, Event::*, Margin::*, *},
    search::*,
};
use stateright::{Checker, HasDiscoveries::Any};

/// Every state within the bounds keeps the promise.
fn holds(name: &str, rules: Rules) {
    let checker = search_and_tell(name, rules, Any);
    assert!(!is_broken(&checker));
    assert!(checker.unique_state_count() > 5_000, "vacuous");
}

/// There is a way to break the promise.
fn breaks(name: &str, rules: Rules) {
    let checker = search_and_tell(name, rules, Any);
    assert!(is_broken(&checker), "this margin is not necessary");
    if matches!(rules.check, Unique | Order) {
        // The search for `Strict` forgets more. It finds a way as well.
        let check = Strict;
        let strict = search(Rules { check, ..rules }, Any);
        assert!(is_broken(&strict), "forgotten");
    }
}

/// It happens, with all margins kept.
fn happens(name: &str, event: Event) {
    for live_epochs in [1, 2] {
        let check = Happens(event);
        let rules = Rules { check, live_epochs, ..FEW };
        let checker = search_and_tell(name, rules, Any);
        assert!(checker.discovery(EVENT).is_some(), "{event:?} never happens");
    }
}

/// It happens in one of the parts that most searches leave out.
fn happens_with(name: &str, (event, rules): (Event, Rules)) {
    let checker = search_and_tell(name, Rules { check: Happens(event), ..rules }, Any);
    assert!(checker.discovery(EVENT).is_some(), "{event:?} never happens");
}

const FEW: Rules = Rules { terms: 4, numbers: 4, ..K1 };
const GAPS: Rules = Rules { check: Gap, ..FEW };
const TWICE: Rules = Rules { check: Unique, terms: 3, ..FEW };
const RELEASES: Rules = Rules { with: &[Part::Releases], terms: 3, ..FEW };
const FLOORS: Rules = Rules { with: &[Part::Floors], terms: 3, ..FEW };
/// Rules with floors alone: then no step is skipped.
const FLOORS_ALONE: Rules =
    Rules { steps: &[], idle_steps: 0, check: Gap, terms: 5, numbers: 5, ..FLOORS };
const DELETIONS: Rules = Rules { with: &[Part::Deletions], terms: 3, ..FEW };
const RECENT: Rules = Rules { with: &[Part::RecentRecords], terms: 3, ..FEW };
const GAPLESS: Rules = Rules { with: &[Part::Gapless], steps: &[], idle_steps: 0, ..FEW };

searches! {
    numbers_are_unique_and_ordered_if_a_section_stays_live_for_one_epoch: holds(K1);
    numbers_are_unique_and_ordered_if_a_section_stays_live_for_two_epochs: holds(K2);
    numbers_are_unique_and_ordered_if_a_section_stays_live_for_eight_epochs: holds(K8);
    they_are_so_with_three_nodes: holds(Rules { nodes: 3, terms: 3, ..K1 });
    they_are_so_if_the_step_changes: holds(Rules { steps: &[1, 2], terms: 3, ..K1 });
    they_are_so_if_a_bump_brings_more_than_a_step: holds(Rules { extra: 2, terms: 4, ..K1 });
    they_are_so_with_three_nodes_and_four_terms: holds(Rules { nodes: 3, terms: 4, numbers: 4, ..K2 });
    #[ignore = "two minutes, 7 644 591 states: cargo test -p ratchet-jepsen --test warm_terms -- --ignored"]
    they_are_so_up_to_seven_numbers: holds(Rules { numbers: 7, ..K2 });
    #[ignore = "a minute, 1 694 812 states: cargo test -p ratchet-jepsen --test warm_terms -- --ignored"]
    they_are_so_if_the_step_changes_over_four_terms: holds(Rules { steps: &[1, 2], terms: 4, ..K2 });
    they_are_so_if_the_max_is_reached_and_raised: holds(Rules { max: 2, ..FEW });
    an_epoch_skips_one_step_at_most_if_a_section_stays_live_for_one_epoch: holds(Rules { check: Gap, ..K1 });
    an_epoch_skips_one_step_at_most_if_a_section_stays_live_for_two_epochs: holds(Rules { check: Gap, ..K2 });
    an_epoch_skips_one_step_at_most_if_a_section_stays_live_for_eight_epochs: holds(Rules { check: Gap, ..K8 });
    so_it_does_with_greater_steps: holds(Rules { check: Gap, steps: &[2], terms: 4, numbers: 8, ..K2 });
    an_idle_section_skips_k_steps_and_the_rest_of_its_last_chunk: breaks(Rules { check: Gap, idle_steps: 2, steps: &[2], numbers: 9, ..K2 });

    chunks_of_two_epochs_are_used: happens(EpochChunksUsed);
    a_successor_goes_on_in_the_chunk_that_it_took_over: happens(SuccessorWentOn);
    a_section_that_is_not_live_any_more_is_bumped: happens(BumpedBeyondK);
    a_section_is_checkpointed: happens(Checkpointed);
    an_epoch_that_was_returned_is_used_again: happens(ReturnedUsed);
    a_bump_that_was_under_way_when_the_memory_was_lost_is_used: happens(TakenOnceAbandoned);

    numbers_are_unique_and_ordered_if_sections_are_evicted: holds(RELEASES);
    they_are_so_if_floors_are_raised: holds(FLOORS);
    they_are_so_if_the_namespace_is_deleted_and_created_again: holds(DELETIONS);
    they_are_so_if_records_are_found_in_memory: holds(RECENT);
    they_are_so_if_those_stay_live_for_two_epochs: holds(Rules { live_epochs: 2, ..RECENT });
    gapless_numbers_are_unique_and_ordered: holds(GAPLESS);
    gapless_numbers_are_not_skipped: holds(Rules { check: Gap, terms: 5, numbers: 5, ..GAPLESS });
    a_section_that_is_evicted_skips_one_step_at_most: holds(Rules { check: Gap, ..RELEASES });
    a_key_that_is_raised_alone_skips_nothing_beyond_the_floor: holds(FLOORS_ALONE);
    a_section_that_was_evicted_is_bumped_again: happens_with((BumpedOnceReleased, RELEASES));
    floors_are_raised_in_two_epochs: happens_with((RaisedInTwoEpochs, FLOORS));
    a_key_is_bumped_once_its_namespace_was_created_again: happens_with((BumpedOnceDeleted, DELETIONS));
    an_epochs_chunk_is_found_in_memory: happens_with((RecentRecordUsed, RECENT));
    gapless_numbers_are_taken_in_two_epochs: happens_with((TookInTwoEpochs, GAPLESS));

    a_call_that_takes_while_its_section_leaves_takes_what_is_given_again: breaks(Rules { without: &[NothingTakenWhileEvicting], check: Unique, ..RELEASES });
    a_hand_off_with_a_release_under_way_leaves_what_the_release_took_back: breaks(Rules { without: &[ReleaseAwaited], check: Unique, ..RELEASES });
    a_release_that_does_not_say_what_was_used_gives_it_again: breaks(Rules { without: &[ReleaseToWhatWasUsed], check: Unique, ..RELEASES });
    a_floor_that_gives_a_step_is_skipped_for_ever_by_a_key_that_nobody_uses: breaks(Rules { without: &[FloorGivesNoStep], ..FLOORS_ALONE });
    a_floor_that_is_answered_before_it_is_committed_is_not_kept: breaks(Rules { without: &[RaisedOnceCommitted], check: Order, ..FLOORS });
    a_tombstone_that_ignores_epochs_begins_the_namespace_too_low: breaks(Rules { without: &[TombstoneCountsEpochs], check: Unique, ..DELETIONS });
    a_record_in_memory_that_is_not_replaced_is_stale: breaks(Rules { without: &[WrittenReplaces], live_epochs: 2, check: Unique, ..RECENT });
    #[ignore = "a minute, 2 302 775 states: cargo test -p ratchet-jepsen --test warm_terms -- --ignored"]
    a_record_that_was_read_before_a_newer_one_was_written_is_stale: breaks(Rules { without: &[FillLooksAgain], live_epochs: 2, check: Unique, ..RECENT });
    a_take_that_gives_a_step_skips_it: breaks(Rules { without: &[TakeGivesNoStep], check: Gap, ..GAPLESS });
    a_take_that_is_answered_before_it_is_committed_is_given_twice: breaks(Rules { without: &[TookOnceCommitted], check: Unique, ..GAPLESS });

    a_record_read_before_ones_own_entry_is_applied_is_stale: breaks(Rules { without: &[ReadAfterOwnEntry], ..TWICE });
    a_chunk_of_an_epoch_that_is_not_ones_own_is_the_successors: breaks(Rules { without: &[OwnEpoch], live_epochs: 2, ..TWICE });
    a_bump_without_a_look_at_the_record_is_safe: holds(Rules { without: &[ReadBeforeBump], ..FEW });
    a_bump_without_a_look_at_the_record_skips_the_epochs_chunk: breaks(Rules { without: &[ReadBeforeBump], ..GAPS });
    a_record_read_again_gives_the_epochs_chunk_twice: breaks(Rules { without: &[TouchOnce], ..TWICE });
    a_current_that_counts_the_own_epoch_is_above_what_follows: breaks(Rules { without: &[CurrentBelowOwnEpoch], check: Order, ..TWICE });

    an_unlogged_chunk_of_an_earlier_epoch_that_is_not_counted_is_given_twice: breaks(Rules { without: &[EarlierEpochsCount], ..TWICE });
    so_it_is_if_sections_stay_live_for_two_epochs: breaks(Rules { without: &[EarlierEpochsCount], live_epochs: 2, ..TWICE });
    a_leader_with_a_greater_k_takes_what_the_state_machine_does_not_count: breaks(Rules { without: &[SameK], terms: 4, ..TWICE });
    a_checkpointed_chunk_that_is_clipped_by_the_max_is_given_again_once_it_is_raised: breaks(Rules { without: &[NotClipped], max: 1, ..TWICE });
    a_trim_never_asks_to_go_below_the_floor: holds(Rules { without: &[TrimAboveFloor], ..FEW });
    a_trim_that_counts_as_written_in_its_own_epoch_is_safe: holds(Rules { without: &[TrimStaysLive], ..FEW });
    a_trim_that_counts_as_written_in_its_own_epoch_skips_nothing: holds(Rules { without: &[TrimStaysLive], ..GAPS });

    a_term_that_logs_for_itself_alone_needs_no_check_of_the_writer: holds(Rules { without: &[WriterAlone], ..FEW });
    a_leader_that_ends_once_needs_no_check_of_the_hand_off: holds(Rules { without: &[NoWriteAfterHandOff], ..FEW });
    a_hand_off_that_closes_the_ledger_needs_no_leader_that_ends_once: holds(Rules { without: &[EndsOnce], ..FEW });
    a_second_hand_off_returns_what_was_used: breaks(Rules { without: &[NoWriteAfterHandOff, EndsOnce], ..TWICE });
    an_epoch_that_is_not_counted_after_a_hand_off_to_a_successor_is_used_twice: breaks(Rules { without: &[EpochAfterHandOffCounts], ..TWICE });
    a_successor_one_term_late_takes_the_chunk_of_another_terms_epoch: breaks(Rules { without: &[EpochClearsHandOff], terms: 4, ..TWICE });
    a_successor_one_term_late_is_out_of_order: breaks(Rules { without: &[EpochClearsHandOff], check: Order, ..TWICE });
    a_memory_that_is_used_once_needs_no_hand_off_that_is_used_once: holds(Rules { without: &[TakeOverClearsHandOff], ..FEW });
    a_hand_off_that_is_used_once_needs_no_memory_that_is_used_once: holds(Rules { without: &[MemoryUsedOnce], ..FEW });
    a_hand_off_used_twice_hands_out_the_memory_twice: breaks(Rules { without: &[TakeOverClearsHandOff, MemoryUsedOnce], ..TWICE });

    a_successor_that_was_not_named_has_an_older_memory: breaks(Rules { without: &[NamedSuccessor, Digest], nodes: 3, ..TWICE });
    a_digest_alone_names_the_memory: holds(Rules { without: &[NamedSuccessor], nodes: 3, terms: 3, numbers: 4, ..K1 });
    a_name_alone_would_do_if_the_successor_has_all: holds(Rules { without: &[Digest], ..FEW });
    a_digest_would_do_if_the_successor_lacks_the_difference: holds(Rules { without: &[SentWhole], ..FEW });
    a_successor_that_lacks_the_difference_repeats_it: breaks(Rules { without: &[SentWhole, Digest], ..TWICE });
    a_successor_that_lost_its_memory_starts_the_epochs_chunk_again: breaks(Rules { without: &[TakesOverWhatItHolds], ..TWICE });

    a_hand_off_before_the_gate_is_empty_is_overtaken_by_a_call: breaks(Rules { without: &[EmptyToHandOff], ..TWICE });
    a_trim_before_the_gate_is_empty_is_overtaken_by_a_call: breaks(Rules { without: &[EmptyToTrim], ..TWICE });
    a_hand_off_with_a_bump_under_way_is_safe: holds(Rules { without: &[BumpsAwaited], ..FEW });
    a_hand_off_with_a_bump_under_way_skips_its_chunk: breaks(Rules { without: &[BumpsAwaited], ..GAPS });
    a_write_after_the_trim_is_safe: holds(Rules { without: &[WritesEndBeforeTrims], ..FEW });
    a_write_after_the_trim_skips_its_chunk: breaks(Rules { without: &[WritesEndBeforeTrims], ..GAPS });
    a_trim_and_a_successor_hand_out_the_same_numbers: breaks(Rules { without: &[TrimsOrSuccessor], extra: 2, ..TWICE });
    a_trim_and_a_successor_agree_if_a_chunk_never_exceeds_a_step: holds(Rules { without: &[TrimsOrSuccessor], ..FEW });
    an_epoch_returned_without_trims_is_used_twice: breaks(Rules { without: &[TrimsBeforeReturn], ..TWICE });
    a_chunk_that_is_used_up_must_be_trimmed_too: breaks(Rules { without: &[UsedUpIsTrimmed], ..TWICE });
    a_gate_opened_again_hands_out_what_was_handed_off: breaks(Rules { without: &[ClosedForGood], ..TWICE });

    a_memory_that_is_lost_is_not_found_again_in_the_record: breaks(Rules { without: &[AbandonedTouchesNothing], ..TWICE });
    a_current_of_a_memory_that_is_lost_is_below_what_was_handed_out: breaks(Rules { without: &[AbandonedAnswersNoCurrent], check: Order, ..TWICE });
    a_bump_once_the_memory_is_lost_is_safe: holds(Rules { without: &[AbandonedBumpsNothing], ..FEW });
    a_bump_once_the_memory_is_lost_skips_a_second_step: breaks(Rules { without: &[AbandonedBumpsNothing], steps: &[2], numbers: 8, ..GAPS });
    a_trim_once_the_memory_is_lost_returns_what_was_used: breaks(Rules { without: &[AbandonedTrimsNothing], ..TWICE });
    a_hand_off_once_the_memory_is_lost_hides_what_was_used: breaks(Rules { without: &[AbandonedHandsNothingOff], ..TWICE });
    an_epoch_returned_once_the_memory_is_lost_is_used_twice: breaks(Rules { without: &[AbandonedReturnsNothing], ..TWICE });
}
