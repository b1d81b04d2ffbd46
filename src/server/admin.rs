//! `ratchet.v1.Admin`: namespaces, members, status and leadership. Each method passes its request to the
//! node, which has the leader carry it out, but for `Found`: the asked node does that.

use std::sync::Arc;

use tokio::time::Instant;
use tonic::{Request, Response, Status};

use super::{administer::administer, deadline::budget_of};
use crate::{
    node::NodeContext,
    proto::{
        peer::{administer_reply::Reply, administer_request::Request as Administer},
        v1::{self, admin_server::Admin},
    },
};

/// The service `ratchet.v1.Admin`.
pub struct AdminService {
    context: Arc<NodeContext>,
}

impl AdminService {
    /// Creates the service of the node that `context` belongs to.
    pub fn new(context: Arc<NodeContext>) -> Self {
        AdminService { context }
    }
}

/// Defines the methods. Each but `found` wraps its request, passes it on, and unwraps the one kind of reply that fits.
macro_rules! methods {
    ($($name:ident: $request:ident => $wrap:ident, $reply:ident($answer:ident);)*) => {
        #[tonic::async_trait]
        impl Admin for AdminService {
            async fn found(
                &self,
                request: Request<v1::FoundRequest>,
            ) -> Result<Response<v1::FoundResponse>, Status> {
                let deadline = Instant::now() + budget_of(&request, &self.context.config);
                self.context.found(deadline).await.map(Response::new)
            }

            $(async fn $name(
                &self,
                request: Request<v1::$request>,
            ) -> Result<Response<v1::$answer>, Status> {
                administer(&self.context, request, Administer::$wrap, |reply| {
                    let Reply::$reply(answer) = reply else { return None };
                    Some(answer)
                })
                .await
            })*
        }
    };
}

methods! {
    create_namespace: CreateNamespaceRequest => CreateNamespace, Namespace(Namespace);
    get_namespace: GetNamespaceRequest => GetNamespace, Namespace(Namespace);
    list_namespaces: ListNamespacesRequest => ListNamespaces, Namespaces(ListNamespacesResponse);
    update_namespace: UpdateNamespaceRequest => UpdateNamespace, Namespace(Namespace);
    delete_namespace: DeleteNamespaceRequest
        => DeleteNamespace, DeletedNamespace(DeleteNamespaceResponse);
    status: StatusRequest => Status, Status(StatusResponse);
    add_node: AddNodeRequest => AddNode, Membership(MembershipResponse);
    promote_node: NodeRequest => PromoteNode, Membership(MembershipResponse);
    remove_node: NodeRequest => RemoveNode, Membership(MembershipResponse);
    update_node: UpdateNodeRequest => UpdateNode, Membership(MembershipResponse);
    transfer_leadership: TransferLeadershipRequest
        => TransferLeadership, Transfer(TransferLeadershipResponse);
    list_keys: ListKeysRequest => ListKeys, Keys(ListKeysResponse);
    gaps: GapsRequest => Gaps, Gaps(GapsResponse);
    explain: ExplainRequest => Explain, Explanation(Explanation);
}
