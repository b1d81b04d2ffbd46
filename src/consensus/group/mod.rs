//! One Raft group on this node: starting it, proposing to it, who belongs to it and who leads it, what its peers ask, and
//! giving the leadership up.
//!
//! From the bottom up:
//!
//! * `config`: the limits of a group.
//! * `leadership`, `leader_change`, `voters`: who leads it, how this node came to lead it, and who votes.
//! * `group`: [`Group`] itself, proposals, and why they fail.
//! * `confirmation`: whether a majority of the voters still follows this leader.
//! * `voter_disks`, `voter_clocks`: how the disks and clocks of a majority of the voters are.
//! * `canvass`: asks the voters before Raft does: whether they would vote, and, where disks are slow, for their votes.
//! * `election`: when this node stands for election.
//! * `slow_disk`: whether another node had better lead because the disk here is slow; the end of a term whose disk hangs.
//! * `successor`: which voter can lead next.
//! * `transfer`: how it comes to that; the end of a term that was given up.
//! * `membership`: who belongs to the group, and how that is changed.
//! * `rpc`: answers the RPCs of the group's peers.
//! * `raft_watch`: follows what Raft says.
//! * `start`: starts a group.

mod canvass;
mod config;
mod confirmation;
mod election;
#[expect(clippy::module_inception, reason = "it is the file of the type")]
pub(super) mod group;
mod leader_change;
mod leadership;
mod membership;
mod raft_watch;
mod rpc;
mod slow_disk;
mod start;
mod successor;
mod transfer;
mod voter_clocks;
mod voter_disks;
mod voters;

pub use config::GroupConfig;
pub use group::{Group, ProposeError};
pub use leader_change::LeaderChange;
pub use leadership::Leadership;
pub use membership::{LogState, MembershipChange, NodeState};
pub use rpc::{ArrivingSnapshot, MemoryOrigin};
pub use voters::Voters;
