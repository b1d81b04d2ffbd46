//! The voters of the last membership that is applied on this node, for clients' routes.
//!
//! Invariant: the version of the voters only grows.

use std::{
    collections::BTreeMap,
    sync::atomic::{
        AtomicU64,
        Ordering::{Acquire, Release},
    },
};

use openraft::RaftMetrics;

use crate::{
    ordered_watch,
    sequence::NodeId,
    storage::{Member, Types},
};

/// The voters of a membership that is committed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Voters {
    /// 1 + the index of the membership's log entry, the same on all nodes; 0 while none is known.
    pub version: u64,
    /// The voters, and where they are. While one membership replaces another, the voters of both.
    pub members: BTreeMap<NodeId, Member>,
}

/// Publishes the voters.
#[derive(Default)]
pub struct AppliedVoters {
    voters: ordered_watch::Sender<Voters>,
    /// The version of `voters`, which is read with every answer.
    version: AtomicU64,
}

impl AppliedVoters {
    /// The voters, now and from now on.
    pub fn subscribe(&self) -> ordered_watch::Receiver<Voters> {
        self.voters.subscribe()
    }

    /// The version of the voters: one atomic load.
    pub fn version(&self) -> u64 {
        self.version.load(Acquire)
    }

    /// Follows what Raft says. A membership counts once it is applied: until then a later leader may
    /// replace it with another one at the same index.
    pub fn follow(&self, seen: &RaftMetrics<Types>) {
        let membership = &seen.membership_config;
        let index = membership.log_id().as_ref().map(|id| id.index);
        let applied = seen.last_applied.as_ref().map(|id| id.index);
        let version = index.map_or(0, |index| index + 1);
        if index > applied || version <= self.version() {
            return;
        }
        let voters = membership.membership().voter_ids();
        let members = voters.filter_map(|id| {
            let member = membership.membership().get_node(&id)?;
            Some((id, member.clone()))
        });
        let members = members.collect();
        self.voters.send_replace(Voters { version, members });
        self.version.store(version, Release);
    }
}
