//! Where Redis clients reach the members.

use super::{NodeContext, leader_search::leader_of};
use crate::sequence::NodeId;

/// A member that serves Redis clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RespNode {
    /// Its id.
    pub id: NodeId,
    /// True if it leads, as far as this node knows.
    pub leads: bool,
    /// Its name or address.
    pub host: String,
    /// Its port for Redis clients.
    pub port: u16,
}

impl NodeContext {
    /// The members that serve Redis clients, as far as they have told: the leader first, the others by their ids.
    pub fn resp_nodes(&self) -> Vec<RespNode> {
        let leader = leader_of(&self.group.leadership().borrow());
        let members = self.group.members().into_keys();
        let mut nodes: Vec<RespNode> = members
            .filter_map(|id| {
                let address = self.introduction_of(id)?.resp_address;
                let (host, port) = address.rsplit_once(':')?;
                Some(RespNode {
                    id,
                    leads: leader == Some(id),
                    host: host.trim_matches(['[', ']']).to_owned(),
                    port: port.parse().ok()?,
                })
            })
            .collect();
        nodes.sort_by_key(|node| (!node.leads, node.id));
        nodes
    }
}
