//! The membership of the group: reading it, founding it, and changing it.
//!
//! * `change`: what an operator can change, and when a change is refused.
//! * `nodes`: what this node knows of each member.
//! * `fitness`: whether a majority of the voters after a change could go on.
//! * `proposal`: founds the cluster, and carries a change out while the lease holds.
//!
//! Invariant: one change at a time, of those that this node proposes.

mod change;
mod fitness;
mod nodes;
mod proposal;

use std::sync::Arc;

use openraft::{Raft, RaftMetrics, async_runtime::watch::WatchReceiver};
use tokio::sync::Mutex;

pub use self::{
    change::MembershipChange,
    nodes::{LogState, NodeState},
};
use crate::{
    consensus::{lease::LeaseClock, state_machine::StateMachine, this_node::ThisNode},
    storage::{AppliedView, Types},
};

/// The membership of a group, as this node knows it, and changes of it.
pub struct GroupMembership {
    this_node: Arc<ThisNode>,
    raft: Raft<Types, StateMachine>,
    /// Which majorities it needs follows the membership.
    lease: Arc<LeaseClock>,
    /// Knows which nodes were removed.
    view: AppliedView,
    /// Held while the membership changes.
    turn: Mutex<()>,
}

impl GroupMembership {
    /// That of the group of `raft`, which has one.
    pub(super) fn new(
        this_node: Arc<ThisNode>, raft: Raft<Types, StateMachine>, lease: Arc<LeaseClock>,
        view: AppliedView,
    ) -> Arc<Self> {
        Arc::new(GroupMembership { this_node, raft, lease, view, turn: Mutex::default() })
    }

    /// Raft's own view of the group.
    fn raft_metrics(&self) -> RaftMetrics<Types> {
        self.raft.metrics().borrow_watched().clone()
    }
}
