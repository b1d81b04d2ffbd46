//! One Raft group on this node: starting it, proposing to it, who belongs to it and who leads it, what its peers ask, and
//! giving the leadership up.
//!
//! A folder uses those in the rows below it, and calls the methods of [`Group`] that stand there
//! (`tests/architecture/rooms.rs`). From the top down, a blank line between two rows:
//!
//! * `start`: starts a group.
//!
//! * `election`: when this node stands for election.
//! * `raft_watch`: follows the states that Raft reports.
//! * `rpc`: answers the RPCs of the group's peers.
//!
//! * `canvass`: asks the voters before Raft does: whether they would vote, and, where disks are slow, for their votes.
//! * `transfer`: the transfer of the leadership, and the end of a term that was given up.
//!
//! * `slow_disk`: whether another node had better lead because the disk here is slow; the end of a term whose disk hangs.
//!
//! * `confirmation`: whether a majority of the voters still follows this leader.
//! * `successor`: which voter can lead next.
//! * `voter_clocks`: the wall clocks of a majority of the voters.
//! * `voter_disks`: the disks of a majority of the voters.
//!
//! * `group`: [`Group`] itself, and proposals.
//!
//! * `membership`: the members of the group, and changes of them.
//!
//! * `canvassed_term`: the term for which this node asks for votes ahead of the election.
//! * `config`: the limits of a group.
//! * `ending`: how a group ends on this node.
//! * `heard_leader`: the leader that was heard last, and what it told.
//! * `leader_change`: how this node came to lead.
//! * `leadership`: the leader and the term, and how they are published.
//! * `principals_lag`: whether changes of the principals are late here.
//! * `propose_error`: why a proposal failed.
//! * `quorums`: the majorities that a membership in the log needs.
//! * `replication`: how far a member has this leader's log.
//! * `voters`: the members that vote.

mod canvass;
mod canvassed_term;
mod config;
mod confirmation;
mod election;
mod ending;
#[expect(clippy::module_inception, reason = "it is the file of the type")]
pub(super) mod group;
mod heard_leader;
mod leader_change;
mod leadership;
mod membership;
mod principals_lag;
mod propose_error;
mod quorums;
mod raft_watch;
mod replication;
mod rpc;
mod slow_disk;
mod start;
mod successor;
mod transfer;
mod voter_clocks;
mod voter_disks;
mod voters;

pub use config::GroupConfig;
pub use group::Group;
pub use leader_change::LeaderChange;
pub use leadership::Leadership;
pub use membership::{GroupMembership, LogState, MembershipChange, NodeState};
pub use propose_error::ProposeError;
pub use rpc::{ArrivingSnapshot, MemoryOrigin, RpcHandler, send_memory};
pub use voters::Voters;
