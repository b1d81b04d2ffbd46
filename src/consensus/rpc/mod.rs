//! Answers the RPCs of this group's peers.
//!
//! From the bottom up:
//!
//! * `wire`: reads payloads and writes answers.
//! * `sender_check`: refuses messages that are not for this node, or not from a member.
//! * `handler`: answers one Raft RPC.
//! * `memory_receiver`: from whom this node takes a memory.
//! * `snapshot_receiver`: takes in a snapshot, part by part.

mod handler;
mod memory_receiver;
mod sender_check;
mod snapshot_receiver;
mod wire;

pub use memory_receiver::MemoryOrigin;
pub use snapshot_receiver::ArrivingSnapshot;
