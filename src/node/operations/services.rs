//! The services of a node that carry operations out.
//!
//! The service that an operation names is found here: code that serves operations names none of them.

use std::sync::Arc;

use crate::{
    consensus::RpcHandler,
    node::{
        Access,
        grants::Grants,
        handover::Handovers,
        leader_ids::LeaderIds,
        members::{Members, formation::Founding},
        namespaces::Namespaces,
        seams::Reload,
        status::Status,
        terms::LedTerms,
        way::Way,
    },
};

/// The services of one Raft group: a node with several has several of these.
pub struct GroupServices {
    /// It answers the group's peers.
    pub rpc_handler: Arc<RpcHandler>,
    /// The terms that this node leads.
    pub led: Arc<LedTerms>,
    /// The way to the leader.
    pub way: Arc<Way>,
    /// Transfers of the leadership.
    pub handovers: Arc<Handovers>,
    /// Worker ids, and the numbers of ids.
    pub leader_ids: LeaderIds,
    /// The namespaces and their keys.
    pub namespaces: Namespaces,
    /// The changes of grants, tokens and quotas.
    pub grants: Grants,
}

/// The services that carry operations out.
pub struct OperationServices {
    /// The check of callers.
    pub access: Arc<Access>,
    /// Those of members.
    pub members: Arc<Members>,
    /// The founding of the cluster.
    pub founding: Arc<Founding>,
    /// Those of the Raft group.
    pub of_group: GroupServices,
    /// The status.
    pub status: Arc<Status>,
    /// The reader of the certificates.
    pub certificates: Arc<dyn Reload>,
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
    Arc<Founding>: founding,
    Arc<Handovers>: of_group.handovers,
    LeaderIds: of_group.leader_ids,
    Namespaces: of_group.namespaces,
    Grants: of_group.grants,
    Arc<Status>: status,
    Arc<dyn Reload>: certificates,
}

/// For operations that need no service.
impl AsRef<()> for OperationServices {
    fn as_ref(&self) -> &() {
        &()
    }
}
