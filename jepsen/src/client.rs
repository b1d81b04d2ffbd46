//! One caller's connection to one node.

use std::{net::SocketAddr, time::Duration};

use tonic::{
    Code, Request, Status,
    transport::{Channel, Endpoint},
};

use crate::{
    history::{Action, Outcome},
    proto::{
        self, CurrentRequest, Key, NextRequest, admin_client::AdminClient, key::Kind,
        sequencer_client::SequencerClient,
    },
};

/// How long a call may take.
pub const DEADLINE: Duration = Duration::from_millis(1_000);

/// A key in its namespace, as histories name it: "namespace/id".
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    /// The namespace.
    pub namespace: &'static str,
    /// The id in it.
    pub id: u64,
}

impl Target {
    /// The name in histories.
    pub fn name(&self) -> String {
        format!("{}/{}", self.namespace, self.id)
    }

    fn key(&self) -> Option<Key> {
        Some(Key {
            kind: Some(Kind::Id(self.id)),
        })
    }
}

/// Speaks gRPC to one node.
#[derive(Clone)]
pub struct Client {
    sequencer: SequencerClient<Channel>,
    admin: AdminClient<Channel>,
}

/// The first and last number of an answer; `Current` answers one number twice.
pub type Answer = (u64, u64);

impl Client {
    /// Connects at the first call, and again after the connection broke.
    pub fn new(address: SocketAddr) -> Client {
        // Made of numbers alone, the address always is an URI.
        let endpoint = Endpoint::from_shared(format!("http://{address}"))
            .unwrap_or_else(|_| Endpoint::from_static("http://0.0.0.0:0"));
        let channel = endpoint
            .connect_timeout(DEADLINE / 2)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(DEADLINE)
            .keep_alive_timeout(DEADLINE)
            .connect_lazy();
        Client {
            sequencer: SequencerClient::new(channel.clone()),
            admin: AdminClient::new(channel),
        }
    }

    /// Asks once.
    ///
    /// # Errors
    /// The node's, or the connection's.
    pub async fn ask(&mut self, target: &Target, action: Action) -> Result<Answer, Status> {
        let namespace = target.namespace.to_owned();
        let key = target.key();
        let asking = async {
            match action {
                Action::Next { count } => {
                    let request = bounded(NextRequest {
                        namespace,
                        key,
                        count: Some(count),
                        route_version: 0,
                    });
                    let answer = self.sequencer.next(request).await?.into_inner();
                    Ok((answer.first, answer.last))
                }
                Action::Current => {
                    let request = bounded(CurrentRequest {
                        namespace,
                        key,
                        route_version: 0,
                    });
                    let answer = self.sequencer.current(request).await?.into_inner();
                    let last = answer.last.unwrap_or(0);
                    Ok((last, last))
                }
                Action::Raise { .. } => Err(Status::unimplemented("no front door raises floors")),
            }
        };
        within(DEADLINE, asking).await
    }

    /// What the node knows of the cluster.
    ///
    /// # Errors
    /// The node's, or the connection's.
    pub async fn status(&mut self) -> Result<proto::StatusResponse, Status> {
        let asking = self.admin.status(bounded(proto::StatusRequest {}));
        Ok(within(DEADLINE, asking).await?.into_inner())
    }

    /// The administrative interface, for calls that take their time.
    pub fn admin(&mut self) -> &mut AdminClient<Channel> {
        &mut self.admin
    }
}

async fn within<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
    tokio::time::timeout(limit, call)
        .await
        .unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer in time")))
}

fn bounded<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(DEADLINE);
    request
}

/// Whether a call that failed so may have burnt numbers.
pub fn outcome(status: &Status) -> Outcome {
    // A refused connection carried no request; a refused argument was not acted upon.
    let refused = status.code() == Code::Unavailable && status.message().contains("connect error");
    match status.code() {
        Code::InvalidArgument | Code::NotFound | Code::OutOfRange | Code::Unimplemented => {
            Outcome::Fail
        }
        _ if refused => Outcome::Fail,
        _ => Outcome::Info,
    }
}
