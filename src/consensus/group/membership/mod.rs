//! The membership of the group: reading it, founding it, and changing it.
//!
//! * `change`: what an operator can change, and when a change is refused.
//! * `nodes`: what this node knows of each member.
//! * `fitness`: whether a majority of the voters after a change could go on.
//! * `proposal`: founds the cluster, and carries a change out while the lease holds.

mod change;
mod fitness;
mod nodes;
mod proposal;

pub use change::MembershipChange;
pub use nodes::{LogState, NodeState};
