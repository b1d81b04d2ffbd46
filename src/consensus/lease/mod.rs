//! The leader's lease: until when its answers are in order without asking anyone.
//!
//! A follower that hears from a leader keeps out of elections for `election_timeout_ms`: its *promise*. So nobody else
//! can lead until the promises of a majority have run out. The leader counts on that for a *lease*
//! that is shorter, by a margin for clock drift (Gray and Cheriton, "Leases", 1989; Ongaro's Raft
//! dissertation, 6.4.1).
//!
//! The clock of acknowledgements is our own. Raft's clock counts an acknowledgement also for messages
//! that it did not acknowledge. Ours counts it only for the very message that was answered, from the
//! instant *before* that message was sent.
//!
//! From the bottom up:
//!
//! * `quorums`: whose majorities must agree. Pure.
//! * `arithmetic`: which acknowledgements count, and until when the lease is valid. Pure.
//! * `later_terms`: which later terms Raft may know of. Pure.
//! * `term_lease`: [`TermLease`], the lease of one term, as the hot path reads it.
//! * `clock`: [`LeaseClock`], which holds what there is, reads the clock, and keeps the current lease up to date.
//!
//! Invariant: a void lease never becomes valid again, and an acknowledgement of one term never extends
//! the lease of another.

mod arithmetic;
mod clock;
mod later_terms;
mod quorums;
mod term_lease;

pub use clock::{LeaseClock, PeerSilence, UNHEARD};
pub use quorums::Quorums;
pub use term_lease::TermLease;

#[cfg(test)]
mod tests;
