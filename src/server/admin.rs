//! `ratchet.v1.Admin`: namespaces, members, status and leadership. Each method passes its request to the
//! node, which has the leader carry it out, but for `Found`: the asked node does that.

use tokio::time::Instant;
use tonic::{Request, Response, Status};

use super::{administer::service, deadline::budget_of, services::Services};
use crate::proto::{
    peer::administer_request::Request as Administer,
    v1::{self, admin_server::Admin},
};

service! {
    impl Admin for Services {
        async fn found(
            &self, request: Request<v1::FoundRequest>,
        ) -> Result<Response<v1::FoundResponse>, Status> {
            let deadline = Instant::now() + budget_of(&request, &self.context.config);
            Ok(Response::new(self.context.found(deadline).await?))
        }
    }
    create_namespace: CreateNamespaceRequest => CreateNamespace, Namespace;
    get_namespace: GetNamespaceRequest => GetNamespace, Namespace;
    list_namespaces: ListNamespacesRequest => ListNamespaces, ListNamespacesResponse;
    update_namespace: UpdateNamespaceRequest => UpdateNamespace, Namespace;
    delete_namespace: DeleteNamespaceRequest => DeleteNamespace, DeleteNamespaceResponse;
    status: StatusRequest => Status, StatusResponse;
    add_node: AddNodeRequest => AddNode, MembershipResponse;
    promote_node: NodeRequest => PromoteNode, MembershipResponse;
    remove_node: NodeRequest => RemoveNode, MembershipResponse;
    update_node: UpdateNodeRequest => UpdateNode, MembershipResponse;
    transfer_leadership: TransferLeadershipRequest => TransferLeadership, TransferLeadershipResponse;
    list_keys: ListKeysRequest => ListKeys, ListKeysResponse;
    gaps: GapsRequest => Gaps, GapsResponse;
    explain: ExplainRequest => Explain, Explanation;
}
