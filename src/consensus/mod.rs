//! Raft: the group, its peers, its lease, and the state machine.
//!
//! Uses storage and the modules below it. Openraft's types stay in here and in storage. Two invariants carry
//! the promise: a chunk comes from the answer to this node's own proposal in its own term
//! ([`Group::propose`]), and a lease rests on acknowledgements of the very messages that were answered
//! ([`TermLease`]).
//!
//! A folder uses those in the rows below it (`tests/architecture/rooms.rs`). From the top down, a blank line between two rows:
//!
//! * [`log_limit`]: the purge of the log.
//!
//! * `group`: one Raft group, with its `membership` and its `rpc` from the peers.
//!
//! * `network`: messages to the peers.
//! * `state_machine`: the application of committed entries to the table.
//!
//! * `lease`: the lease of a leader, and the silence of a follower.
//! * `terms`: the terms that an honest peer can name.
//! * `this_node`: what all groups of a node share.
//!
//! The list of things that openraft does not promise, and of what this module does about each:
//!
//! * *A restarted node forgets its promise to the leader.* If the store holds a vote, the caller of
//!   [`Group::start`] keeps silent for as long as a promise lasts before the call.
//! * *Openraft's clock of acknowledgements can run ahead.* [`LeaseClock`] keeps a record of its own, and appends
//!   go one at a time (`network/peer.rs`).
//! * *A restarted leader can go on in its old term.* That is switched off, and so are all other features
//!   that would end a term without the allocator's knowledge ([`GroupConfig`], `group/config.rs`).
//! * *Openraft obeys every sender and every term.* Senders must be members, and a term may not be absurdly
//!   high ([`RpcHandler::handle`]; `group/rpc/sender_check.rs`, `terms.rs`).
//! * *Openraft panics if a peer's log gets shorter.* Such an answer is kept from it
//!   (`network/peer.rs`).
//! * *A leadership transfer overrides leases, and an election can follow a vote that was granted while the
//!   lease held.* The lease is void before Raft is told ([`RpcHandler::handle`], [`Group::transfer`]).
//! * *An append renews promises although the leader's lease is void, and its answer the leader's refusal to vote.* Those of a
//!   term that was given up fail, but for one voter's (`group/transfer.rs`).
//! * *Openraft knows no margin for drift.* The leader's lease is shorter than the followers' promises. Every message
//!   says how long they last, and nodes that disagree refuse each other ([`RpcHandler::check_header`]).
//! * *A watched state hides changes in between.* Everything is compared by term ([`Group::leadership`]).
//! * *A membership is in force before a watcher hears of it.* The lease needs the majority of the proposed
//!   voters from before the proposal ([`GroupMembership::change`]).
//! * *Heartbeats go on while the disk hangs.* So they should, and the leadership goes to another node if that helps
//!   ([`Group::quicker_successor`], [`Group::watch_disk`]).
//! * *Raft answers a heartbeat once all that it wrote before is on the disk, and waits for a vote no longer than half an
//!   election timeout.* Heartbeats are answered before ([`RpcHandler::handle`]), and slow votes are asked for ahead of the
//!   election (`group/canvass.rs`). When it is held is decided by `group/election.rs`, not by Raft's timer.
//! * *A snapshot that cannot be built stops Raft.* None is built: a snapshot is a view of the table
//!   ([`StateMachine`]), and the log is bounded by [`log_limit`].

mod group;
mod lease;
pub mod log_limit;
mod network;
mod state_machine;
mod terms;
mod this_node;

pub use group::{
    ArrivingSnapshot, Group, GroupConfig, GroupMembership, LeaderChange, Leadership, LogState,
    MembershipChange, MemoryOrigin, NodeState, ProposeError, RpcHandler, Voters, send_memory,
};
pub use lease::{LeaseClock, PeerSilence, Quorums, TermLease};
pub use network::{Destination, MESSAGE_BYTES_MAX, MessageSender, RaftRpc, Transport};
pub use state_machine::StateMachine;
pub use this_node::{Budget, ClockDistance, NodeBudget, ThisNode};
