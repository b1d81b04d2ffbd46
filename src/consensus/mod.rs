//! Raft: the group's life, its peers, its lease, and the state machine.
//!
//! Uses storage and below. All of openraft's types stay in here and in storage. Two invariants carry
//! the promise: a chunk comes from the answer to one's own proposal in one's own term
//! ([`Group::propose`]), and a lease rests on acknowledgements of the very messages that were
//! answered ([`TermLease`]).
//!
//! What Raft's library does not promise, and what is done about it here:
//!
//! * A restarted node forgets the lease that it granted: whoever starts a [`Group`] on a store that
//!   holds a vote keeps silent for one follower lease first.
//! * Raft's clock of acknowledgements can run ahead: [`LeaseClock`] counts its own.
//! * Raft obeys any sender and any term: senders must be members, and terms come step by step
//!   ([`Group::handle_rpc`]).
//! * Leadership transfer overrides leases, and an election can follow a vote that was granted while
//!   the lease held: the lease is void before Raft is told ([`Group::handle_rpc`], [`Group::transfer`]).
//! * Raft knows no margin for drift: the leader's lease is shorter than the followers', and every
//!   message carries the latter, so that nodes that disagree refuse each other.
//! * A watched state hides changes in between: everything is compared by term.
//! * Heartbeats go on while the disk hangs: [`watchdog`].
//! * A snapshot that cannot be built stops Raft: none is built ([`StateMachine`]), and the log is
//!   bounded by [`log_limit`].

mod group;
mod lease;
pub mod log_limit;
mod membership;
mod network;
mod rpc;
mod state_machine;
mod terms;
pub mod watchdog;

pub use group::{Group, GroupConfig, Leadership, ProposeError, Voters};
pub use lease::{LeaseClock, Quorums, Silence, TermLease};
pub use membership::{LogState, MembershipChange, NodeState, Role};
pub use network::{GrpcTransport, MESSAGE_BYTES_MAX, RaftRpc, Sender, Transport};
pub use rpc::ArrivingSnapshot;
pub use state_machine::StateMachine;
