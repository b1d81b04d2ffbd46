//! openraft's types as this product uses them.

use std::fmt;

use openraft::type_config::alias;
use serde::{Deserialize, Serialize};

use super::raft_runtime::Runtime;
use crate::sequence::{Command, NodeId, Outcome};

openraft::declare_raft_types!(
    /// The types of our Raft.
    ///
    /// One leader per term, as in the Raft paper. With openraft's other kind of leader id a delayed
    /// vote request that a leadership transfer allowed could override a leader of the same term
    /// within its lease, because its node's id is the greater one.
    pub Types:
        D = Command,
        R = Outcome,
        NodeId = NodeId,
        Node = Member,
        Term = u64,
        LeaderId = openraft::impls::leader_id_std::LeaderId<u64, NodeId>,
        AsyncRuntime = Runtime,
);

/// Where a member is, and which data directory it has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Where its peers reach it, "host:port".
    pub peer_address: String,
    /// Where clients reach it, "host:port".
    pub client_address: String,
    /// Made at random with its data directory: the same node with another directory is another one.
    pub incarnation: u64,
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (peers: {})", self.client_address, self.peer_address)
    }
}

/// A vote.
pub type Vote = alias::VoteOf<Types>;
/// Where an entry stands in the log.
pub type LogId = alias::LogIdOf<Types>;
/// A log entry.
pub type Entry = alias::EntryOf<Types>;
/// A membership: who belongs to the group, and who of them votes.
pub type Membership = openraft::Membership<NodeId, Member>;
/// A membership and where it stands in the log.
pub type StoredMembership = alias::StoredMembershipOf<Types>;
/// What a snapshot covers.
pub type SnapshotMeta = alias::SnapshotMetaOf<Types>;
