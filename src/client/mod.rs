//! A client of the public API.
//!
//! Uses the generated code alone. Invariant: a retry takes new numbers, so that retrying can lose
//! some and never disorder or repeat any.

use std::time::Duration;

use tokio::time::Instant;
use tonic::{
    Code, Request, Response, Status,
    transport::{Channel, Endpoint},
};

use crate::proto::v1::{self, admin_client::AdminClient, sequencer_client::SequencerClient};

/// Why a call was not answered.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// A server's address cannot be one.
    #[error("{0}")]
    Server(String),
    /// A server answered with an error, or none answered.
    #[error("{server}: {message}", message = status.message())]
    Status {
        /// The server asked last.
        server: String,
        /// What it said.
        status: Box<Status>,
    },
}

/// A client of one cluster: asks the first of its servers that answers.
pub struct Client {
    servers: Vec<(String, Channel)>,
    timeout: Duration,
    /// The server that answered last.
    current: usize,
}

impl Client {
    /// A client of the cluster that `servers` ("host:port") belong to. Each call is given up after
    /// `timeout`. Connects at the first call.
    ///
    /// # Errors
    /// [`ClientError::Server`] for an address that cannot be one, or if there is none.
    pub fn new(servers: &[String], timeout: Duration) -> Result<Self, ClientError> {
        let servers: Vec<(String, Channel)> = servers
            .iter()
            .map(|server| {
                let endpoint = Endpoint::from_shared(format!("http://{server}"));
                let endpoint = endpoint.map_err(|error| {
                    ClientError::Server(format!(
                        "server {server:?} is not of the form host:port: {error}"
                    ))
                })?;
                let channel = endpoint
                    .connect_timeout(timeout.min(Duration::from_secs(1)))
                    .tcp_nodelay(true)
                    .connect_lazy();
                Ok((server.clone(), channel))
            })
            .collect::<Result<_, _>>()?;
        if servers.is_empty() {
            return Err(ClientError::Server("no server is given".to_owned()));
        }
        Ok(Client {
            servers,
            timeout,
            current: 0,
        })
    }

    /// Asks one server after the other until one answers, or refuses, or the time is up. A server
    /// that says nothing costs its share of the time; what changes something is then not asked for
    /// again elsewhere, since it may have been done.
    async fn call<Q, A, F>(
        &mut self,
        changes: bool,
        request: Q,
        ask: impl Fn(Channel, Request<Q>) -> F,
    ) -> Result<A, ClientError>
    where
        Q: Clone,
        F: Future<Output = Result<Response<A>, Status>>,
    {
        let deadline = Instant::now() + self.timeout;
        let mut last = None;
        for untried in (1..=self.servers.len() as u32).rev() {
            let (server, channel) = &self.servers[self.current];
            let left = deadline.saturating_duration_since(Instant::now());
            let share = if changes { left } else { left / untried };
            let mut message = Request::new(request.clone());
            message.set_timeout(share);
            let answer = tokio::time::timeout(share, ask(channel.clone(), message)).await;
            let status = match answer {
                Ok(Ok(answer)) => return Ok(answer.into_inner()),
                Ok(Err(status)) if status.code() != Code::Cancelled => status,
                // tonic's own timeout is `Cancelled`.
                Ok(Err(_)) | Err(_) => {
                    Status::deadline_exceeded(format!("no answer within {} ms", share.as_millis()))
                }
            };
            let elsewhere = match status.code() {
                // A change may have been done, unless nobody was there to hear of it.
                Code::Unavailable => !changes || never_connected(&status),
                Code::DeadlineExceeded => !changes,
                _ => false,
            };
            last = Some(ClientError::Status {
                server: server.clone(),
                status: Box::new(status),
            });
            if !elsewhere {
                break;
            }
            self.current = (self.current + 1) % self.servers.len();
        }
        Err(last.unwrap_or_else(|| ClientError::Server("no server is given".to_owned())))
    }

    /// Takes the next `count` numbers of a key.
    ///
    /// # Errors
    /// [`ClientError`]; numbers of a call that failed may be lost, never handed out twice.
    pub async fn next(
        &mut self,
        namespace: &str,
        key: v1::Key,
        count: u64,
    ) -> Result<v1::NextResponse, ClientError> {
        let request = v1::NextRequest {
            namespace: namespace.to_owned(),
            key: Some(key),
            count: Some(count),
            route_version: 0,
        };
        self.call(false, request, async |channel, request| {
            SequencerClient::new(channel).next(request).await
        })
        .await
    }

    /// The last number handed out for a key; `None` for none yet.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn current(
        &mut self,
        namespace: &str,
        key: v1::Key,
    ) -> Result<Option<u64>, ClientError> {
        let request = v1::CurrentRequest {
            namespace: namespace.to_owned(),
            key: Some(key),
            route_version: 0,
        };
        self.call(false, request, async |channel, request| {
            SequencerClient::new(channel).current(request).await
        })
        .await
        .map(|answer: v1::CurrentResponse| answer.last)
    }

    /// All namespaces.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn list_namespaces(&mut self) -> Result<Vec<v1::Namespace>, ClientError> {
        self.call(
            false,
            v1::ListNamespacesRequest {},
            async |channel, request| AdminClient::new(channel).list_namespaces(request).await,
        )
        .await
        .map(|all: v1::ListNamespacesResponse| all.namespaces)
    }
}

/// Whether the request cannot have reached the server.
fn never_connected(status: &Status) -> bool {
    let mut source = std::error::Error::source(status);
    while let Some(error) = source {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        source = error.source();
    }
    false
}

/// A method that passes one request on.
macro_rules! calls {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*) -> $answer:ident:
        $request:expr => $method:ident, changes: $changes:literal;)*) => {
        impl Client {
            $($(#[$doc])*
            ///
            /// # Errors
            /// [`ClientError`].
            pub async fn $name(&mut self, $($arg: $type),*) -> Result<v1::$answer, ClientError> {
                self.call($changes, $request, async |channel, request| {
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
    /// Makes a learner a voter.
    promote_node(id: u64) -> MembershipResponse: v1::NodeRequest { id } => promote_node, changes: true;
    /// Removes a node.
    remove_node(id: u64) -> MembershipResponse: v1::NodeRequest { id } => remove_node, changes: true;
    /// Hands the leadership to `to`, or to the voter with the longest log.
    transfer(to: Option<u64>) -> TransferLeadershipResponse:
        v1::TransferLeadershipRequest { to } => transfer_leadership, changes: true;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_refused_connection_is_told_from_an_answer_that_was_lost() {
        // Bound and dropped: nobody listens there.
        let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = nobody.local_addr().unwrap();
        drop(nobody);
        let servers = [address.to_string()];
        let mut client = Client::new(&servers, Duration::from_secs(5)).unwrap();
        let Err(ClientError::Status { status, .. }) = client.status().await else {
            panic!("nobody can have answered");
        };
        assert_eq!(status.code(), Code::Unavailable);
        assert!(never_connected(&status));
        assert!(!never_connected(&Status::unavailable("no leader is known")));
    }
}
