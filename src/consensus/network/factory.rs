//! Makes a [`Peer`] for each target that Raft asks for, and holds what the peers share.

use std::sync::Arc;

use openraft::RaftNetworkFactory;

use super::{
    acknowledged::AcknowledgedIndexes, addresses::MemberAddresses, candidacy::Candidacy,
    log_holds::LogHolds, peer::Peer, peer_clocks::PeerClocks, peer_disks::PeerDisks,
    rpc_client::RpcClient, sender::Sender, snapshot_sender::SnapshotSender, transport::Transport,
};
use crate::{
    consensus::lease::LeaseClock,
    metrics::Metrics,
    sequence::NodeId,
    storage::{Member, StoredMembership, Types},
};

/// This node's network to its peers.
#[derive(Clone)]
pub struct Network {
    sender: Arc<Sender>,
    transport: Arc<dyn Transport>,
    lease: Arc<LeaseClock>,
    metrics: Arc<Metrics>,
    addresses: Arc<MemberAddresses>,
    acknowledged: Arc<AcknowledgedIndexes>,
    disks: Arc<PeerDisks>,
    log_holds: Arc<LogHolds>,
    candidacy: Arc<Candidacy>,
    clocks: Arc<PeerClocks>,
    snapshot_bytes_per_second: u64,
}

impl Network {
    /// A network for the node `sender`. Acknowledgements are recorded in `lease`; what is sent is counted
    /// in `metrics`. Snapshots are sent with `snapshot_bytes_per_second`.
    pub fn new(
        sender: Arc<Sender>, transport: Arc<dyn Transport>, lease: Arc<LeaseClock>,
        metrics: Arc<Metrics>, snapshot_bytes_per_second: u64,
    ) -> Self {
        Network {
            sender,
            transport,
            lease,
            metrics,
            addresses: Arc::default(),
            acknowledged: Arc::default(),
            disks: Arc::default(),
            log_holds: Arc::default(),
            candidacy: Arc::default(),
            clocks: Arc::default(),
            snapshot_bytes_per_second,
        }
    }

    /// Follows the members to their addresses, and closes connections to other addresses.
    pub fn follow(&self, membership: &StoredMembership) {
        if let Some(addresses) = self.addresses.follow(membership) {
            self.transport.keep(addresses);
        }
    }

    /// Who this node is.
    pub fn sender(&self) -> &Arc<Sender> {
        &self.sender
    }

    /// Since when this node asks for votes.
    pub fn candidacy(&self) -> &Candidacy {
        &self.candidacy
    }

    /// What peers say of their disks.
    pub fn disks(&self) -> &PeerDisks {
        &self.disks
    }

    /// What the peers' wall clocks show.
    pub fn clocks(&self) -> &PeerClocks {
        &self.clocks
    }

    /// Where what is sent is counted.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// What is kept of the log for peers that are sent snapshots.
    pub fn log_holds(&self) -> &LogHolds {
        &self.log_holds
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
        let snapshots = SnapshotSender::new(
            client.clone(),
            self.metrics.clone(),
            self.acknowledged.clone(),
            self.log_holds.clone(),
            self.snapshot_bytes_per_second,
        );
        Peer {
            client,
            lease: self.lease.clone(),
            acknowledged: self.acknowledged.clone(),
            disks: self.disks.clone(),
            snapshots,
            candidacy: self.candidacy.clone(),
            clocks: self.clocks.clone(),
        }
    }
}

impl RaftNetworkFactory<Types> for Network {
    type Network = Peer;

    async fn new_client(&mut self, target: NodeId, node: &Member) -> Peer {
        self.peer(target, node)
    }
}
