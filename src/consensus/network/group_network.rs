//! A group's network: makes a [`Peer`] for each target that Raft asks for, and holds what the peers share. It also follows the
//! members to their addresses.

use std::{sync::Arc, time::Duration};

use openraft::RaftNetworkFactory;

use super::{
    member_addresses::MemberAddresses,
    message_sender::MessageSender,
    peer::Peer,
    peer_state::PeerState,
    rpc_client::RpcClient,
    snapshot_sender::{Haste, SnapshotSender},
    transport::Transport,
};
use crate::{
    consensus::lease::LeaseClock,
    metrics::SetMetrics,
    sequence::NodeId,
    storage::{Member, StoredMembership, Types},
};

/// A group's network to its peers.
#[derive(Clone)]
pub struct Network {
    sender: Arc<MessageSender>,
    transport: Arc<dyn Transport>,
    lease: Arc<LeaseClock>,
    metrics: Arc<SetMetrics>,
    addresses: Arc<MemberAddresses>,
    /// The state that the group keeps of the peers.
    pub peers: Arc<PeerState>,
    snapshot_bytes_per_second: u64,
}

impl Network {
    /// A network for `sender`. Acknowledgements are recorded in `lease`; what is sent is counted
    /// in `metrics`. Snapshots are sent with `snapshot_bytes_per_second`.
    pub fn new(
        sender: Arc<MessageSender>, transport: Arc<dyn Transport>, lease: Arc<LeaseClock>,
        metrics: Arc<SetMetrics>, snapshot_bytes_per_second: u64,
    ) -> Self {
        Network {
            sender,
            transport,
            lease,
            metrics,
            addresses: Arc::default(),
            peers: Arc::default(),
            snapshot_bytes_per_second,
        }
    }

    /// Follows the members to their addresses, and closes connections to other addresses.
    pub fn follow(&self, membership: &StoredMembership) {
        if let Some(addresses) = self.addresses.follow(membership) {
            self.transport.keep(self.sender.set, addresses);
        }
    }

    /// Where the members are.
    pub fn addresses(&self) -> &MemberAddresses {
        &self.addresses
    }

    /// The sender of this node's messages.
    pub fn sender(&self) -> &Arc<MessageSender> {
        &self.sender
    }

    /// The way to the peer `target`, which is `member`.
    pub fn client(&self, target: NodeId, member: &Member) -> RpcClient {
        RpcClient {
            transport: self.transport.clone(),
            addresses: self.addresses.clone(),
            target,
            first_address: member.peer_address.clone(),
            header: self.sender.header(target, member),
        }
    }

    /// The peer `target`, which is `member`.
    pub fn peer(&self, target: NodeId, member: &Member) -> Peer {
        let client = self.client(target, member);
        let haste = Haste {
            lease: self.lease.clone(),
            target,
            heard: Duration::from_millis(self.sender.election_timeout_ms),
        };
        let snapshots = SnapshotSender::new(
            client.clone(),
            self.metrics.clone(),
            self.peers.clone(),
            haste,
            self.snapshot_bytes_per_second,
        );
        let this_node = self.sender.this_node.clone();
        Peer::new(client, self.lease.clone(), this_node, self.peers.clone(), snapshots)
    }
}

impl RaftNetworkFactory<Types> for Network {
    type Network = Peer;

    async fn new_client(&mut self, target: NodeId, node: &Member) -> Peer {
        self.peer(target, node)
    }
}
