//! Who this node is, as the header of every message to a peer says.

use crate::{
    proto::peer::Header,
    sequence::{NodeId, SetId},
    storage::Member,
};

/// This node, as the sender of messages to peers.
#[derive(Debug, Clone)]
pub struct Sender {
    /// The cluster's name.
    pub cluster: String,
    /// The set.
    pub set: SetId,
    /// This node.
    pub node: NodeId,
    /// Identifies this node's data directory.
    pub incarnation: u64,
    /// How long a follower keeps out of elections, in milliseconds.
    pub election_timeout_ms: u64,
}

impl Sender {
    /// The header of a message to node `to`, which is `member`.
    pub fn header(&self, to: NodeId, member: &Member) -> Header {
        Header {
            cluster: self.cluster.clone(),
            set: self.set.into(),
            from: self.node,
            to,
            to_incarnation: member.incarnation,
            election_timeout_ms: self.election_timeout_ms,
            from_incarnation: self.incarnation,
        }
    }
}
