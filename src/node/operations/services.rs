//! The services of a node that carry operations out.
//!
//! The service that an operation names is found here: code that serves operations names none of them.

use std::sync::Arc;

use futures::Stream;

use crate::{
    consensus::RpcHandler,
    node::{
        Access,
        grants::Grants,
        handover::Handovers,
        leader_ids::LeaderIds,
        members::{Members, formation::Formation},
        namespaces::Namespaces,
        seams::CertificateReader,
        status::Status,
        terms::LedTerms,
        way::Way,
    },
    proto::{
        Refusal,
        peer::{MemoryPart, MemoryReply},
        v1,
    },
};

/// The services of one Raft group: a node with several has several of these. The node alone sees the parts; its methods are for
/// the interfaces.
pub struct GroupServices {
    /// It answers the group's peers.
    pub(in crate::node) rpc_handler: Arc<RpcHandler>,
    /// The terms that this node leads.
    pub(in crate::node) led: Arc<LedTerms>,
    /// The way to the leader.
    pub(in crate::node) way: Arc<Way>,
    /// Transfers of the leadership.
    pub(in crate::node) handovers: Arc<Handovers>,
    /// Worker ids, and the numbers of ids.
    pub(in crate::node) leader_ids: LeaderIds,
    /// The namespaces and their keys.
    pub(in crate::node) namespaces: Namespaces,
    /// The changes of grants, tokens and quotas.
    pub(in crate::node) grants: Grants,
}

impl GroupServices {
    /// It answers the group's peers.
    pub fn rpc_handler(&self) -> &Arc<RpcHandler> {
        &self.rpc_handler
    }

    /// Transfers of the leadership. The interfaces have them carried out as operations; tests ask for them here.
    pub fn handovers(&self) -> &Arc<Handovers> {
        &self.handovers
    }

    /// Takes in the memory of the leader that this node follows. Returns what has arrived and is kept.
    ///
    /// # Errors
    /// Those of `LedTerms::take_memory`.
    pub async fn take_memory(
        &self, parts: impl Stream<Item = Result<MemoryPart, Refusal>> + Send + Unpin,
    ) -> Result<MemoryReply, Refusal> {
        self.led.take_memory(parts).await
    }

    /// The first `limit` namespaces in the order of their creation, as far as this node has applied it, and how many there are
    /// in all.
    pub fn first_namespaces(&self, limit: usize) -> (Vec<v1::Namespace>, usize) {
        self.namespaces.first(limit)
    }
}

/// The services that carry operations out.
pub struct OperationServices {
    /// The check of callers.
    pub access: Arc<Access>,
    /// Those of members.
    pub members: Arc<Members>,
    /// How this node comes into a cluster.
    pub formation: Arc<Formation>,
    /// Those of the Raft group.
    pub of_group: GroupServices,
    /// The status.
    pub status: Arc<Status>,
    /// The reader of the certificates.
    pub certificates: Arc<dyn CertificateReader>,
}

/// The services that operations name, and where they are.
macro_rules! services {
    ($($service:ty: $($part:ident).+,)*) => {
        $(impl AsRef<$service> for OperationServices {
            fn as_ref(&self) -> &$service {
                &self.$($part).+
            }
        })*
    };
}

services! {
    Members: members,
    Arc<Formation>: formation,
    Arc<Handovers>: of_group.handovers,
    LeaderIds: of_group.leader_ids,
    Namespaces: of_group.namespaces,
    Grants: of_group.grants,
    Arc<Status>: status,
    Arc<dyn CertificateReader>: certificates,
}

/// For operations that need no service.
impl AsRef<()> for OperationServices {
    fn as_ref(&self) -> &() {
        &()
    }
}
