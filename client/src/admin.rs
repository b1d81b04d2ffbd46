//! Everything but taking numbers: the last number of a key, namespaces, membership, leadership, and grants.

use bytes::Bytes;

use crate::{
    api::{
        self as v1, access_client::AccessClient, admin_client::AdminClient,
        sequencer_client::SequencerClient,
    },
    client::Client,
    error::Error,
    key::Key,
    unary_call::ask,
};

impl Client {
    /// The last number handed out for a key; `None` if there is none yet.
    ///
    /// # Errors
    /// [`Error::Server`] if the cluster refuses the request or does not answer in time.
    pub async fn current(
        &self, namespace: &str, key: impl Into<Key>,
    ) -> Result<Option<u64>, Error> {
        let request = v1::CurrentRequest {
            namespace: namespace.to_owned(),
            key: Some(key.into().into()),
            // Any server answers, and the members come in the metadata.
            route_version: u64::MAX,
            members_version: None,
        };
        Ok(ask!(self, false, SequencerClient::current, request).await?.last)
    }

    /// All namespaces.
    ///
    /// # Errors
    /// [`Error::Server`] if no server answers in time.
    pub async fn list_namespaces(&self) -> Result<Vec<v1::Namespace>, Error> {
        let asked = v1::ListNamespacesRequest {};
        Ok(ask!(self, false, AdminClient::list_namespaces, asked).await?.namespaces)
    }
}

/// Methods that pass one request on.
macro_rules! calls {
    ($service:ident; $($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*) -> $answer:ident:
        $request:expr => $method:ident, changes: $changes:literal;)*) => {
        impl Client {
            $($(#[$doc])*
            ///
            /// # Errors
            /// [`Error::Server`] if the cluster refuses the request or does not answer in time;
            /// [`Error::OutcomeUnknown`] if something is changed, or not, and it is not known which.
            pub async fn $name(&self, $($arg: $type),*) -> Result<v1::$answer, Error> {
                ask!(self, $changes, $service::$method, $request).await
            })*
        }
    };
}

pub(crate) use calls;

calls! {
    AdminClient;
    /// One namespace.
    get_namespace(namespace: String) -> Namespace: v1::GetNamespaceRequest { namespace } => get_namespace, changes: false;
    /// Creates a namespace.
    create_namespace(request: v1::CreateNamespaceRequest) -> Namespace: request => create_namespace, changes: true;
    /// Changes a namespace.
    update_namespace(request: v1::UpdateNamespaceRequest) -> Namespace: request => update_namespace, changes: true;
    /// Deletes a namespace. With `forget`, one that is created under the name again may hand out the same numbers again:
    /// then make a new client, because this one remembers the greatest number of each key, and refuses lower ones.
    delete_namespace(namespace: String, confirm: String, forget: bool) -> DeleteNamespaceResponse:
        v1::DeleteNamespaceRequest { namespace, confirm, forget } => delete_namespace, changes: true;
    /// The status of the cluster as the leader sees it; without a leader, as the server that was asked does.
    status() -> StatusResponse: v1::StatusRequest {} => status, changes: false;
    /// Founds a cluster of the asked node and the others in its setting `peers`. Asked again, it changes nothing.
    found() -> FoundResponse: v1::FoundRequest::default() => found, changes: true;
    /// Founds a cluster as [`Client::found`] does, in which nobody may do anything without a token. One with this SHA-256 may
    /// do everything; there is no other one yet.
    found_with_token(admin_token_sha256: Bytes) -> FoundResponse:
        v1::FoundRequest { admin_token_sha256 } => found, changes: true;
    /// Adds a node as a learner.
    add_node(id: u64, peer_address: String) -> MembershipResponse:
        v1::AddNodeRequest { id, peer_address } => add_node, changes: true;
    /// Makes a learner a voter. With `force`, even if the cluster may lose its majority.
    promote_node(id: u64, force: bool) -> MembershipResponse:
        v1::PromoteNodeRequest { id, force } => promote_node, changes: true;
    /// Removes a node. With `force`, even if the cluster may lose its majority.
    remove_node(id: u64, force: bool) -> MembershipResponse:
        v1::RemoveNodeRequest { id, force } => remove_node, changes: true;
    /// Updates the addresses of a member that has moved. `None` keeps the peer address.
    update_node(id: u64, peer_address: Option<String>) -> MembershipResponse:
        v1::UpdateNodeRequest { id, peer_address } => update_node, changes: true;
    /// Transfers the leadership to node `to`; with `None`, to the voter with the longest log.
    transfer(to: Option<u64>) -> TransferLeadershipResponse:
        v1::TransferLeadershipRequest { to } => transfer_leadership, changes: true;
    /// Has the server that is asked read the files of its certificates again, at once. Build the client with that one server,
    /// and without [`follow_leader`](crate::Builder::follow_leader).
    reload() -> ReloadResponse: v1::ReloadRequest {} => reload, changes: false;
    /// A page of the keys of a namespace that have a ceiling.
    list_keys(request: v1::ListKeysRequest) -> ListKeysResponse: request => list_keys, changes: false;
    /// The cluster's knowledge of a key.
    explain(namespace: String, key: Key) -> Explanation:
        v1::ExplainRequest { namespace, key: Some(key.into()) } => explain,
        changes: false;
    /// How many numbers of a namespace were handed out and skipped on each of the last `days` days, 31 at most. With 0,
    /// on all days whose accounts are kept.
    gaps(namespace: String, days: u32) -> GapsResponse:
        v1::GapsRequest { namespace, days } => gaps, changes: false;
    /// The keys of a namespace that the settings of the asked server write out for clients of other id generators.
    list_mapped_keys(namespace: String) -> ListMappedKeysResponse:
        v1::ListMappedKeysRequest { namespace } => list_mapped_keys, changes: false;
}

calls! {
    AccessClient;
    /// Adds a token, by its SHA-256. The same request again changes nothing.
    create_token(request: v1::CreateTokenRequest) -> Principal: request => create_token, changes: true;
    /// Removes a token. `None` as the id is enough if one token alone has the name.
    revoke_token(name: String, id: Option<String>) -> RevokeTokenResponse:
        v1::RevokeTokenRequest { name, id } => revoke_token, changes: true;
    /// Replaces the grants of `anonymous`, of an address range of it, or of a certificate.
    set_grants(request: v1::SetGrantsRequest) -> Principal: request => set_grants, changes: true;
    /// Replaces the limits on the use of a principal.
    set_quotas(request: v1::SetQuotasRequest) -> SetQuotasResponse: request => set_quotas, changes: true;
    /// All principals, and their grants.
    list_principals() -> ListPrincipalsResponse: v1::ListPrincipalsRequest {} => list_principals, changes: false;
}
