//! Everything but taking numbers: reading them, namespaces, membership, leadership.

use crate::{
    api::{self as v1, admin_client::AdminClient, sequencer_client::SequencerClient},
    client::Client,
    error::Error,
    key::Key,
};

impl Client {
    /// The last number handed out for a key; `None` for none yet.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn current(
        &self,
        namespace: &str,
        key: impl Into<Key>,
    ) -> Result<Option<u64>, Error> {
        let request = v1::CurrentRequest {
            namespace: namespace.to_owned(),
            key: Some(key.into().into()),
            // Any server will do; which there are is of use.
            route_version: u64::MAX,
            members_version: self.pool().members_version(),
        };
        let answer: v1::CurrentResponse = self
            .pool()
            .call(false, request, async |channel, request| {
                SequencerClient::new(channel).current(request).await
            })
            .await?;
        if let Some(route) = &answer.route {
            self.pool().learn(route);
        }
        Ok(answer.last)
    }

    /// All namespaces.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn list_namespaces(&self) -> Result<Vec<v1::Namespace>, Error> {
        self.pool()
            .call(
                false,
                v1::ListNamespacesRequest {},
                async |channel, request| AdminClient::new(channel).list_namespaces(request).await,
            )
            .await
            .map(|all: v1::ListNamespacesResponse| all.namespaces)
    }
}

/// A method that passes one request on.
macro_rules! calls {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*) -> $answer:ident:
        $request:expr => $method:ident, changes: $changes:literal;)*) => {
        impl Client {
            $($(#[$doc])*
            ///
            /// # Errors
            /// [`Error`].
            pub async fn $name(&self, $($arg: $type),*) -> Result<v1::$answer, Error> {
                self.pool().call($changes, $request, async |channel, request| {
                    AdminClient::new(channel).$method(request).await
                })
                .await
            })*
        }
    };
}

calls! {
    /// One namespace.
    get_namespace(name: String) -> Namespace: v1::GetNamespaceRequest { name } => get_namespace, changes: false;
    /// Creates a namespace.
    create_namespace(request: v1::CreateNamespaceRequest) -> Namespace: request => create_namespace, changes: true;
    /// Changes a namespace.
    update_namespace(request: v1::UpdateNamespaceRequest) -> Namespace: request => update_namespace, changes: true;
    /// The cluster, as the leader sees it, or the server asked.
    status() -> StatusResponse: v1::StatusRequest {} => status, changes: false;
    /// Adds a learner.
    add_node(id: u64, peer_address: String) -> MembershipResponse:
        v1::AddNodeRequest { id, peer_address } => add_node, changes: true;
    /// Makes a learner a voter; with `force`, even where that may leave the cluster without a
    /// majority.
    promote_node(id: u64, force: bool) -> MembershipResponse:
        v1::NodeRequest { id, force } => promote_node, changes: true;
    /// Removes a node; with `force`, even where that may leave the cluster without a majority.
    remove_node(id: u64, force: bool) -> MembershipResponse:
        v1::NodeRequest { id, force } => remove_node, changes: true;
    /// Takes in where a member is now.
    update_node(id: u64, peer_address: Option<String>) -> MembershipResponse:
        v1::UpdateNodeRequest { id, peer_address } => update_node, changes: true;
    /// Hands the leadership to `to`, or to the voter with the longest log.
    transfer(to: Option<u64>) -> TransferLeadershipResponse:
        v1::TransferLeadershipRequest { to } => transfer_leadership, changes: true;
}
