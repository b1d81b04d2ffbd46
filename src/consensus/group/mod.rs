//! One Raft group on this node: starting it, proposing to it, who belongs to it and who leads it, what its peers ask, and giving
//! the leadership up.
//!
//! From the bottom up:
//!
//! * `config`, `leadership`: the limits of a group, who leads it and who votes.
//! * `group`: [`Group`] itself, proposals, and why they fail.
//! * `majority`: what a majority of the voters says: whether it still follows this leader, their disks and clocks.
//! * `canvass`: asks the voters before Raft does: whether they would vote, and, where disks are slow, for their votes.
//! * `election`: when this node stands for election.
//! * `slow_disk`: whether another node had better lead because the disk here is slow; the end of a term whose disk hangs.
//! * `succession`: which voter can lead next, and how it comes to that.
//! * `membership`: who belongs to the group, and how that is changed.
//! * `rpc`: answers the RPCs of the group's peers.
//! * `start`: starts a group, and follows what Raft says.

mod canvass;
mod config;
mod election;
#[expect(clippy::module_inception, reason = "it is the file of the type")]
pub(super) mod group;
mod leadership;
mod majority;
mod membership;
mod rpc;
mod slow_disk;
mod start;
mod succession;

pub use config::GroupConfig;
pub use group::{Group, ProposeError};
pub use leadership::{Leadership, Takeover, Voters};
pub use membership::{LogState, MembershipChange, NodeState};
pub use rpc::{ArrivingSnapshot, MemoryOrigin};
