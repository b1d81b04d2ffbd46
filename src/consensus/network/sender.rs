//! Who this node is, as the header of every message to a peer says.

use std::sync::Arc;

use crate::{
    proto::peer::Header,
    sequence::{NodeId, SetId},
    storage::{Member, Store},
};

/// This node, as the sender of messages to peers.
#[derive(Clone)]
pub struct Sender {
    /// The cluster's name.
    pub cluster: String,
    /// The set.
    pub set: SetId,
    /// This node.
    pub node: NodeId,
    /// Knows this node's incarnation.
    pub store: Arc<Store>,
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
            from_incarnation: self.store.incarnation(),
        }
    }
}
