//! Who belongs to the group: reading the membership, founding it, and changing it.
//!
//! From the bottom up:
//!
//! * `change`: what an operator can change, and the voters that there are afterwards.
//! * `nodes`: what this node knows of each member.
//! * `successor`: which voter the leadership goes to.
//! * `fitness`: whether a majority of the voters after a change could go on.
//! * `carry_out`: founds the cluster, and carries a change out while the lease holds.

mod carry_out;
mod change;
mod fitness;
mod nodes;
mod successor;

pub use change::MembershipChange;
pub use nodes::{LogState, NodeState, Role};
