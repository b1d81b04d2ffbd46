//! One Raft group on this node: starting it, proposing to it, who leads it, and giving the leadership up.
//!
//! From the bottom up:
//!
//! * `config`, `error`, `leadership`, `voters`, `leader_heard`, `takeover`, `raft_state`: the types that a group has.
//! * `group`: [`Group`] itself, and proposals.
//! * `clocks`: how far a time lies from what the voters' clocks show.
//! * `confirm`: asks a majority whether it still follows this leader.
//! * `disks`: whether enough voters have room on their disks.
//! * `transfer`: hands the leadership to another node.
//! * `leadership_watch`: follows what Raft says, and ends terms that were given up.
//! * `election_turns`, `election`: when this node stands for election.
//! * `start`: starts a group.

mod clocks;
mod config;
mod confirm;
mod disks;
mod election;
mod election_turns;
mod error;
#[expect(clippy::module_inception, reason = "it is the file of the type")]
mod group;
mod leader_heard;
mod leadership;
mod leadership_watch;
pub(super) mod raft_state;
mod start;
mod takeover;
mod transfer;
mod voters;

pub use config::GroupConfig;
pub use error::ProposeError;
pub use group::Group;
pub use leadership::Leadership;
pub use takeover::Takeover;
pub use voters::Voters;
