//! Who belongs to the group: reading the membership, founding it, and changing it.
//!
//! * `change`: what an operator can change; founds the cluster, and carries a change out while the lease holds.
//! * `nodes`: what this node knows of each member, which voter the leadership goes to, and whether a majority of the voters
//!   after a change could go on.

mod change;
mod nodes;

pub use change::MembershipChange;
pub use nodes::{LogState, NodeState};
