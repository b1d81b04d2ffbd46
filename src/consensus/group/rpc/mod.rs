//! Answers the RPCs of this group's peers.
//!
//! From the bottom up:
//!
//! * `sender_check`: refuses messages that are not for this node, not from a member, or that no honest node sends.
//! * `handler`: answers one Raft RPC.
//! * `memory`: sends a leader's memory, and says from whom one is taken.
//! * `snapshot_receiver`: takes in a snapshot, part by part.

mod handler;
mod memory;
mod sender_check;
mod snapshot_receiver;

pub use memory::MemoryOrigin;
pub use snapshot_receiver::ArrivingSnapshot;
