//! One Raft group on this node: starting it, proposing to it, who leads it, and giving the leadership up.
//!
//! From the bottom up:
//!
//! * `config`, `leadership`: the limits of a group, who leads it and who votes.
//! * `group`: [`Group`] itself, proposals, and why they fail.
//! * `majority`: what a majority of the voters says: whether it still follows this leader, their disks and clocks.
//! * `election`: when this node stands for election.
//! * `start`: starts a group, follows what Raft says, and gives the leadership up: to another node, or when the disk hangs.

mod config;
mod election;
#[expect(clippy::module_inception, reason = "it is the file of the type")]
pub(super) mod group;
mod leadership;
mod majority;
mod start;

pub use config::GroupConfig;
pub use group::{Group, ProposeError};
pub use leadership::{Leadership, Takeover, Voters};
