//! The sender in the header of every message to a peer: this node.

use std::sync::Arc;

use crate::{
    consensus::this_node::ThisNode,
    proto::peer::Header,
    sequence::{NodeId, SetId},
    storage::Member,
};

/// This node, as the sender of messages to the peers of a group.
pub struct MessageSender {
    /// This node.
    pub this_node: Arc<ThisNode>,
    /// The set that the group serves.
    pub set: SetId,
    /// How long a follower keeps out of elections, in milliseconds.
    pub election_timeout_ms: u64,
}

impl MessageSender {
    /// The header of a message to node `to`, which is `member`.
    pub fn header(&self, to: NodeId, member: &Member) -> Header {
        Header {
            cluster: self.this_node.cluster.clone(),
            set: self.set.into(),
            from: self.this_node.id,
            to,
            to_incarnation: member.incarnation,
            election_timeout_ms: self.election_timeout_ms,
            from_incarnation: self.this_node.store.incarnation(),
        }
    }
}
