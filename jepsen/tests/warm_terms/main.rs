//! A model of warm terms that is searched exhaustively: epochs, checkpoints, trims, hand-offs and successors, and apart
//! from one another releases, floors, deletions, records in memory and gapless keys.
//!
//! Every order of events within the bounds is tried. With all margins kept, no order breaks a promise;
//! with one of them left out, the search prints the shortest way to break it
//! (`cargo test -p ratchet-jepsen --test warm_terms -- --nocapture`). The other model (`tests/model`) has
//! the time: leases, fences, promises. This one has the numbers.
//!
//! **The promises.** `Check::Strict`: a number is above all of the same term before it and all of earlier terms, and below
//! all of later terms, in any order in which they are handed out. So no number is handed out twice, although *nothing* stops
//! a deposed leader: there is no fence in this model, and a deposed leader hands out the numbers in its memory, and reads
//! records, at any time. Order follows as well: the fence, which the other model proves, refuses a number of a term once a
//! later term has answered. `Check::Gap`: since the last number that was handed out, at most one step is skipped for each
//! epoch that was counted, and nothing where none was (a successor, an epoch that was returned). A section that nobody
//! touches skips at most K steps and the rest of its last chunk: K + 1 steps in all, and no fewer (`an_idle_section_...`).
//! `Current` is answered with each read: not less than the numbers that were handed out before, and less than the numbers
//! that are handed out later.
//!
//! **Modelled.** One section; two nodes, or three. Raft's log: a leader logs for its own term, as long as no later term has a
//! leader. Each leader applies the committed entries one at a time, late or never, also when it is deposed; that is when the
//! answers to its proposals arrive. It reads the record in its own table, which may be behind or ahead, and uses the record
//! later. A bump and a checkpoint may be under way at a time. Any node is elected at any time. A memory is sent as often as
//! the leader likes, while it serves too, so that a node may hold an older one. A restart loses a memory that was received. A
//! leader's own memory is lost at any moment before its last entry, while its term goes on (`Abandon`): its lease ended, or
//! its bumper failed. The gate is closed then. A call that is inside goes on, and gets the numbers of a bump that was under
//! way. The rest looks like a memory that has touched nothing.
//!
//! **Parts** are modelled in searches of their own (`Part`, `parts.rs`), since each adds states to all others:
//! * `Releases`: a section is evicted while its term goes on, twice at most. Its release is logged, and answered late or
//!   never.
//! * `Floors`: a leader raises the key's floor by a bump that brings nothing else; all of it is passed over. The floor
//!   counts as answered when the leader of the last term learns of it.
//! * `Deletions`: the namespace is deleted, and created again under its name. The leader that proposed it hands out numbers
//!   of the old one until it has applied the entry. Others know the new one from the start of their terms.
//! * `RecentRecords`: a node has the record in memory, too. Records that it applies are added, but for those that its own
//!   term wrote; a record that is there is replaced. While it does not lead, it reads the record from its table, and adds it
//!   at any later moment. A leader looks there first.
//! * `Gapless`: each number is taken by an entry, and handed out when the answer to that arrives, also by a leader that is
//!   deposed. There are no chunks.
//!
//! **Not modelled**: several sections (nothing that an entry does to one looks at another, but for `keys_max`), a record that
//! is read while its section is being evicted, and the parts together.
//!
//! **Abstracted, and why nothing is lost.**
//! * An entry is committed when it is logged. One that is lost is one that was never logged.
//! * A new leader logs its first entry when it is elected. One that logs nothing changes nothing.
//! * A call takes a number in one step. A call inside a closing gate could have done the same before; only without
//!   `EmptyToHandOff` or `EmptyToTrim`, or once the memory is lost, does one stay inside.
//! * The entries that a term had set out to log when its memory was lost (a checkpoint, trims that it had listed) are logged
//!   before. Nothing that happens between the two can tell.
//! * `Check::Gap` does not count numbers that are taken once the memory is lost: the lease is void before, so that no such
//!   number is answered.
//! * The digest is the memory itself. The hand-off's term is left out: nothing is decided by it.
//! * A leader does not retry: an entry that is refused changes nothing, and only a refused `TakeOver` is
//!   followed by another first entry, an epoch.
//! * The parts of a state that cannot matter any more are forgotten (`forget.rs`): records where nothing is read, the last
//!   term's handover (nor does it lose its memory), and a deposed leader once later terms have passed all that it may yet
//!   take. Nodes have no names: states that differ in the nodes' numbers alone are one. Each test that breaks a promise also
//!   checks that the search that forgets finds it.
//!
//! **Bounded.** K is 1, 2, or 8 as in the program: with 8, no section ceases to be live within five terms, and with 1 and 2
//! it does. A step is 1 number unless said otherwise. Numbers above the bound are not taken.
//!
//! | search, with all margins kept | states |
//! | --- | --- |
//! | two nodes, five terms, five numbers; K = 1 | 1 979 998 |
//! | ... K = 2 | 2 546 219 |
//! | ... K = 8 | 2 715 635 |
//! | three nodes, three terms, five numbers; K = 1 | 80 465 |
//! | three nodes, four terms, four numbers; K = 2 | 944 116 |
//! | a step of 1 or 2 with each bump; two nodes, three terms, five numbers; K = 1 | 95 938 |
//! | bumps of three numbers, two of them for calls that wait; two nodes, four terms, five numbers; K = 1 | 118 444 |
//! | a `max` of 2 that is raised; two nodes, four terms, four numbers; K = 1 | 129 624 |
//! | `Gap`, two nodes, five terms, five numbers; K = 1 | 190 207 |
//! | ... K = 2 | 217 295 |
//! | ... K = 8 | 226 188 |
//! | ... steps of 2, four terms, eight numbers; K = 2 | 310 772 |
//! | `Releases`: two nodes, three terms, four numbers; K = 1 | 87 612 |
//! | ... `Gap` | 60 409 |
//! | `Floors`: the same | 24 354 |
//! | ... `Gap`, floors alone, five terms, five numbers | 28 056 |
//! | `Deletions`: two nodes, three terms, four numbers; K = 1 | 76 991 |
//! | `RecentRecords`: two nodes, three terms, four numbers; K = 1 | 382 661 |
//! | ... K = 2 | 392 906 |
//! | `Gapless`: two nodes, four terms, four numbers; K = 1 | 83 891 |
//! | ... `Gap`, five terms, five numbers | 8 782 |
//! | by hand (`--ignored`): two nodes, five terms, seven numbers; K = 2 | 7 644 591 |
//! | ... a step of 1 or 2 with each bump; two nodes, four terms, five numbers; K = 2 | 1 694 812 |
//!
//! Where a margin is needed, `Check::Unique` or `Check::Order` shows a real violation: the same number handed
//! out twice, or a smaller one later. Where leaving it out only costs numbers, `Check::Gap` shows it.
//!
//! | margin | without it | test |
//! | --- | --- | --- |
//! | `ReadAfterOwnEntry` | a table that is behind shows an older `max_seq`: its epoch's chunk was handed out | `a_record_read_before_...` |
//! | `OwnEpoch` | a deposed leader counts with the epoch in its table: the successor's chunk (K = 2; the fence is a second guard) | `a_chunk_of_an_epoch_that_is_not_...` |
//! | `TouchOnce` | a second read finds the epoch's chunk again, from its start | `a_record_read_again_...` |
//! | `ReadBeforeBump` | the epoch's chunk is skipped. Safe | `a_bump_without_a_look_...` |
//! | `CurrentBelowOwnEpoch` | `Current` of a section that the term has not touched answers a ceiling that includes the own epoch's chunk: above the next number | `a_current_that_counts_...` |
//! | `EarlierEpochsCount` | the next epoch, or a bump, starts from `max_seq`: the chunk of the epoch between was handed out | `an_unlogged_chunk_...`, `so_it_is_...` |
//! | `SameK` | a leader with a greater K takes a chunk that the state machine does not count | `a_leader_with_a_greater_k_...` |
//! | `NotClipped` | a checkpoint writes less than the epoch's chunk, whose rest is taken once `max` is raised, and given again by the next epoch | `a_checkpointed_chunk_that_is_clipped_...` |
//! | `TrimAboveFloor` | nothing: a leader asks for no less than it used. A second guard | `a_trim_never_asks_...` |
//! | `TrimStaysLive` | nothing: with `s := S` instead of `S - 1` each section costs a bump after its epoch is returned. For speed | `a_trim_that_counts_...` |
//! | `WriterAlone` | nothing: Raft's leader proposes for its own term alone, and only after its first entry is applied. A second guard | `a_term_that_logs_...` |
//! | `NoWriteAfterHandOff`, `EndsOnce` | each is the other's second guard; without both, a hand-off to a successor becomes the return of an epoch that was used | `a_leader_that_ends_once_...`, `a_hand_off_that_closes_...`, `a_second_hand_off_...` |
//! | `EpochAfterHandOffCounts` | the epoch's chunk is handed out again | `an_epoch_that_is_not_counted_...` |
//! | `EpochClearsHandOff` | a successor one term late takes the other term's epoch, or goes on below its numbers | `a_successor_one_term_late_...` |
//! | `TakeOverClearsHandOff`, `MemoryUsedOnce` | each is the other's second guard; without both, the successor starts again where it began | `a_memory_that_...`, `a_hand_off_that_is_used_...`, `a_hand_off_used_twice_...` |
//! | `NamedSuccessor` | nothing, as long as the digest is checked. Without both, a node with an older memory takes over | `a_digest_alone_...`, `a_successor_that_was_not_named_...` |
//! | `Digest`, `SentWhole` | each is the other's second guard; without both, the successor lacks the numbers that were handed out since | `a_name_alone_...`, `a_digest_would_do_...`, `a_successor_that_lacks_...` |
//! | `TakesOverWhatItHolds` | a restarted successor takes the epoch's chunk from its start | `a_successor_that_lost_...` |
//! | `EmptyToHandOff`, `EmptyToTrim` | a call inside takes a number that the successor has as well | `a_hand_off_before_...`, `a_trim_before_...` |
//! | `BumpsAwaited`, `WritesEndBeforeTrims` | the chunk of a bump that was under way, or of a checkpoint or bump that is logged after the trim, is skipped in a graceful change. Safe | `a_hand_off_with_...`, `a_write_after_...` |
//! | `TrimsOrSuccessor` | the successor's chunk reaches above the trimmed section's next one, if it is longer than a step (with bumps of one step, nothing) | `a_trim_and_a_successor_...` |
//! | `TrimsBeforeReturn` | the next term takes the same epoch's chunk | `an_epoch_returned_...` |
//! | `UsedUpIsTrimmed` | the same: a chunk of which nothing is left needs its trim too, or the section looks untouched | `a_chunk_that_is_used_up_...` |
//! | `ClosedForGood` | the old leader hands out the numbers that it handed off | `a_gate_opened_again_...` |
//! | `AbandonedTouchesNothing` | a call inside reads the record, and finds the epoch's chunk again, from its start | `a_memory_that_is_lost_...` |
//! | `AbandonedAnswersNoCurrent` | the record says where the epoch began: below the numbers that the term handed out | `a_current_of_a_memory_...` |
//! | `AbandonedBumpsNothing` | the rest of the chunk and a whole step beyond it are skipped: two steps in one change. Safe | `a_bump_once_the_memory_...` |
//! | `AbandonedTrimsNothing` | the trim goes down to the floor: below the numbers that were handed out | `a_trim_once_the_memory_...` |
//! | `AbandonedHandsNothingOff` | the successor has a memory from before the first touch, and the digest of nothing fits | `a_hand_off_once_the_memory_...` |
//! | `AbandonedReturnsNothing` | the section looks untouched: the next term takes the same epoch's chunk | `an_epoch_returned_once_...` |
//! | `NothingTakenWhileEvicting` | a call takes a number that the release takes back | `a_call_that_takes_while_...` |
//! | `ReleaseAwaited` | the successor has numbers that the release took back, and a bump gives them again | `a_hand_off_with_a_release_...` |
//! | `ReleaseToWhatWasUsed` | the ceiling falls below the numbers that were handed out | `a_release_that_does_not_say_...` |
//! | `FloorGivesNoStep` | epochs give chunks of a key that nobody uses, which are skipped | `a_floor_that_gives_a_step_...` |
//! | `RaisedOnceCommitted` | the next leader hands out numbers below the floor | `a_floor_that_is_answered_...` |
//! | `TombstoneCountsEpochs` | the new namespace begins below numbers that an epoch gave, and nobody logged | `a_tombstone_that_ignores_epochs_...` |
//! | `WrittenReplaces`, `FillLooksAgain` | a record in memory is older than the one that the node's own term wrote: its epoch's chunk was handed out (K = 2) | `a_record_in_memory_...`, `a_record_that_was_read_...` |
//! | `TakeGivesNoStep` | the next number is taken above the chunk that an epoch would give | `a_take_that_gives_a_step_...` |
//! | `TookOnceCommitted` | the next leader takes the same number | `a_take_that_is_answered_...` |

mod actions;
mod forget;
mod judge;
mod ledger;
mod parts;
mod properties;
mod record;
mod rules;
#[path = "../common/search.rs"]
mod search;
mod state;
mod transcript;
mod variants;
