//! Where a request came from: a client, or a peer that took this node for the leader.

use crate::sequence::NamespaceId;

/// Where a request came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A client: it may be forwarded.
    Client,
    /// A peer that took this node for the leader: it may not.
    Peer {
        /// The namespace that it takes the name for, if the leader is to compare.
        namespace: Option<NamespaceId>,
        /// It has asked before, and the node that was asked may have carried the request out.
        again: bool,
    },
}

impl Origin {
    /// True if a peer takes the `namespace` that this node has for another one.
    pub fn mistakes(self, namespace: NamespaceId) -> bool {
        match self {
            Origin::Client => false,
            Origin::Peer { namespace: taken_for, .. } => {
                taken_for.is_some_and(|id| id != namespace)
            }
        }
    }
}
