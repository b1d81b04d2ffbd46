//! openraft's types as this product uses them.

use std::fmt;

use openraft::{raft::AppendEntriesResponse, type_config::alias};
use serde::{Deserialize, Serialize};

use super::raft_runtime::Runtime;
use crate::sequence::{Command, EntryOutcome, NodeId};

openraft::declare_raft_types!(
    /// The types of our Raft.
    ///
    /// The leader id allows one leader per term, as in the Raft paper. openraft's other kind lets a
    /// candidate with a greater node id override a leader of the same term. A delayed vote request that
    /// a leadership transfer allowed could then do so within the leader's lease.
    pub Types:
        D = Command,
        R = EntryOutcome,
        NodeId = NodeId,
        Node = Member,
        Term = u64,
        LeaderId = openraft::impls::leader_id_std::LeaderId<u64, NodeId>,
        AsyncRuntime = Runtime,
);

/// Where a member is reached, and which data directory it has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The address for its peers, "host:port".
    pub peer_address: String,
    /// The address for clients, "host:port".
    pub client_address: String,
    /// A random number, drawn when its data directory was created. A node that comes back with another
    /// directory has another incarnation, and is not the same member.
    pub incarnation: u64,
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (peers: {})", self.client_address, self.peer_address)
    }
}

/// A vote.
pub type Vote = alias::VoteOf<Types>;

/// The term that `node` leads, if its vote says that it leads one.
pub fn term_led(vote: &Vote, node: NodeId) -> Option<u64> {
    (vote.committed && vote.leader_id.voted_for == node).then_some(vote.leader_id.term)
}

/// True if the receiver refused an append because it knows a later leader or candidate.
pub fn is_higher_vote(answer: &AppendEntriesResponse<Types>) -> bool {
    matches!(answer, AppendEntriesResponse::HigherVote(_))
}

/// The place of an entry in the log: term, leader and index.
pub type LogId = alias::LogIdOf<Types>;
/// A log entry.
pub type Entry = alias::EntryOf<Types>;
/// The members of the group, and which of them vote.
pub type Membership = openraft::Membership<NodeId, Member>;
/// A membership and its place in the log.
pub type StoredMembership = alias::StoredMembershipOf<Types>;
/// The extent of a snapshot: the last entry and the last membership.
pub type SnapshotMeta = alias::SnapshotMetaOf<Types>;
