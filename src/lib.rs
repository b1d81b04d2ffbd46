//! Ratchet: a Raft-replicated sequencer. Strictly increasing 64-bit numbers, one sequence per key.
//!
//! A request passes through these modules from top to bottom, and its answer from bottom to top. A module may use
//! those below it, never those above. ARCHITECTURE.md follows one request through them.

pub mod cli;
pub mod server;

pub mod node;

pub mod allocator;

pub mod consensus;

pub mod storage;

pub mod sequence;

pub mod clock;
pub mod laps;
pub mod metrics;
pub mod ordered_watch;
pub mod planted_bugs;
pub mod proto;
pub mod random;
pub mod tasks;
pub mod version;
