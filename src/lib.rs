//! Ratchet: a Raft-replicated sequencer. Strictly increasing 64-bit numbers, one sequence per key.
//!
//! A request walks down this list of modules and back up; a module may use those below it, never
//! those above. ARCHITECTURE.md walks one request through them.

pub mod cli;
pub mod server;

pub mod node;

pub mod allocator;

pub mod consensus;

pub mod storage;

pub mod sequence;

pub mod clock;
pub mod metrics;
pub mod planted;
pub mod proto;
pub mod random;
pub mod tasks;
pub mod version;
pub mod watch;
