//! A model of the protocol that is searched exhaustively: chunks, leases, restarts, drift and handover.
//!
//! Every order of events within the bounds is tried. With all margins kept, no order breaks the
//! promise; with any one of them left out, the search prints the shortest way to break it
//! (`cargo test -p ratchet-jepsen --test model -- --nocapture`).
//!
//! **Modelled.** Three nodes and one section. Time passes in ticks in which each node's clock
//! advances by its own rate; only the rest of a promise or lease is kept, so time is unbounded. A
//! leader's heartbeat (at most one under way) and its acknowledgement arrive late or never; a node
//! that acknowledges promises to keep out of elections. A call reads the term's allocator, takes,
//! pauses, passes the fence, answers; a paused leader is one that takes no step. A call that begins
//! remembers the greatest answer so far: its own must be greater (for `Current`, not less), and no
//! number may be handed out twice.
//!
//! **Abstracted, and why nothing is lost.**
//! * The log: an entry is committed when a leader and a follower are in its term, and applied with
//!   it. Raft sees to the rest: an elected leader knows all that was committed.
//! * An election is one step. A voter refuses the old leader from its vote on; a slow election is
//!   one whose winner pauses.
//! * A call pauses only where `Pause` stands. Had it begun earlier, or been answered later, less
//!   would be asked of it, and of others.
//! * A restart takes no time. A node that is down longer is one that votes and takes no part later.
//! * The last term's leader passes its fence unasked: nobody can come after it, so this adds orders
//!   and hides none.
//!
//! **Bounded.** Two terms with the lease fence (three where nothing is handed over), three with the
//! quorum fence; one restart, one handover, four or six numbers, one call per node at a time.
//!
//! Time is in units; the lease is 2 and a promise 3, and in a tick a clock advances by 1 or 2. After
//! `k` ticks a lease has lost at least `k` and a promise at most `2k`: at 1 both hold, at 2 the lease
//! has ended. One unit more of lease, or of drift, and a promise ends first.
//!
//! | margin | without it | test |
//! | --- | --- | --- |
//! | the fence | a deposed leader answers 1 after its successor answered 3 | `without_a_fence_...` |
//! | it is asked after the call began | so it does: the fence was up, once | `a_fence_asked_before_the_call_...`, `a_round_sent_...` |
//! | it is asked after the take | `Current` reads the successor's ceiling: above the numbers that are handed out later. (`Next` alone would be safe: a leader that answered before the call began has let the fence down before) | `a_fence_asked_before_the_take_...` |
//! | leader's lease < followers' | a voter's fast clock frees it while the leader's slow one still counts. (Equal ones need perfect clocks) | `a_lease_as_long_as_...` |
//! | drift is bounded | the same; or a pause that the leader's clock misses | `drift_...`, `a_pause_...` |
//! | `LeaseSinceSending` | the lease runs from the acknowledgement's arrival; the promise began before | `a_lease_since_...` |
//! | `AckOfItsOwnMessage` | one acknowledgement counts for a message sent later | `an_acknowledgement_...` |
//! | `SilenceAfterRestart` | a restarted node has forgotten its promise, and votes | `a_restarted_node_...` |
//! | `CandidateKeepsPromise` | a node forgets it for its own candidacy | `a_candidate_...` |
//! | `LaterTermVoids` | a leader votes for its successor, and goes on under its lease (or counts itself in a quorum round) | `a_lease_that_outlives_...`, `a_round_that_...` |
//! | `ChunkFromApply` | a new leader goes on with the chunk found in its applied table: used | `a_chunk_from_...` |
//! | `ChunkInItsTerm` | a late answer to an old term's bump is granted to a new term | `a_chunk_granted_...` |
//! | `ClosedToTransfer` | a transfer overrides promises, and the old leader goes on | `an_allocator_left_open_...` |
//! | `ClosedForGood` | a transfer that seemed to fail succeeds after all; and a trimmed number is taken | `an_allocator_opened_again_...` |
//! | `TrimCountsTaken` | a number that was taken and is answered yet lies above the trim | `a_trim_below_...` |
//! | `TrimInItsTerm` | a later term logs the trim and loses its own numbers | `a_trim_logged_...` |
//! | `TrimByOwner` | nothing, as long as `TrimInItsTerm` is kept: a second guard, and not enough alone | `a_trim_by_anyone_...`, `a_trim_that_only_...` |
//!
//! The quorum fence asks a majority after the take. Its tests have no clocks: no promise is ever
//! kept, which equals unlimited drift.

mod actions;
mod calls;
mod properties;
mod rules;
#[path = "../common/search.rs"]
mod search;
mod state;
mod transcript;
mod variants;
