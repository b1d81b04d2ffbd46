//! Where the members are. Raft keeps its client of a peer when the peer moves, so the client looks the
//! address up here for each message.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;

use crate::{
    sequence::NodeId,
    storage::{LogId, StoredMembership},
};

/// The peer addresses of the members.
#[derive(Default)]
pub struct MemberAddresses(Mutex<FollowedAddresses>);

#[derive(Default)]
struct FollowedAddresses {
    /// The log entry of the membership that the addresses come from.
    membership: Option<LogId>,
    /// Peer addresses by incarnation: a node with another data directory is another member.
    by_incarnation: BTreeMap<u64, String>,
    /// The members' ids.
    members: Vec<NodeId>,
}

impl MemberAddresses {
    /// Takes the addresses over from `membership`. Returns all of them, each with its node, if it is another membership than
    /// before.
    pub fn follow(&self, membership: &StoredMembership) -> Option<BTreeSet<(NodeId, String)>> {
        let mut addresses = self.0.lock();
        if addresses.membership == *membership.log_id() {
            return None;
        }
        let members = membership.membership();
        *addresses = FollowedAddresses {
            membership: *membership.log_id(),
            members: members.nodes().map(|(id, _)| *id).collect(),
            by_incarnation: (members.nodes())
                .map(|(_, member)| (member.incarnation, member.peer_address.clone()))
                .collect(),
        };
        let all = members.nodes().map(|(id, member)| (*id, member.peer_address.clone()));
        Some(all.collect())
    }

    /// The members.
    pub fn members(&self) -> Vec<NodeId> {
        self.0.lock().members.clone()
    }

    /// Where the member with the data directory `incarnation` is.
    pub fn of(&self, incarnation: u64) -> Option<String> {
        self.0.lock().by_incarnation.get(&incarnation).cloned()
    }
}
