//! One caller's connection to one node.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use hyper_util::rt::TokioIo;
use prost::{Message, bytes::Bytes};
use tonic::{
    Code, Request, Status, Streaming,
    codegen::{InterceptedService, Service},
    metadata::{Ascii, MetadataValue},
    service::Interceptor,
    transport::{Endpoint, Uri},
};

use tokio::sync::mpsc;
use tokio_stream::{StreamExt, wrappers::ReceiverStream};

use crate::{
    access::Protocol,
    address::{Address, Socket},
    history::{Action, Outcome},
    proto::{
        self, CurrentManyRequest, CurrentRequest, NextManyRequest, NextManyResponse, NextRequest,
        RaiseRequest, admin_client::AdminClient, sequencer_client::SequencerClient,
    },
    target::Target,
};

/// The message of a status if no connection was made.
const CONNECT_ERROR: &str = "connect error";
/// How long a call may take.
pub const DEADLINE: Duration = Duration::from_millis(1_000);

/// Speaks gRPC to one node.
pub struct Client {
    address: Address,
    sequencer: SequencerClient<Channel>,
    stream: Option<(mpsc::Sender<NextManyRequest>, Streaming<NextManyResponse>)>,
    admin: AdminClient<Channel>,
}

impl Clone for Client {
    /// A client over the same connection; its stream is its own.
    fn clone(&self) -> Self {
        Client {
            address: self.address.clone(),
            sequencer: self.sequencer.clone(),
            stream: None,
            admin: self.admin.clone(),
        }
    }
}

/// The first and last number of an answer; `Current` answers one number twice.
pub type FirstAndLast = (u64, u64);

impl Client {
    /// Connects at the first call, and again after the connection broke.
    pub fn new(address: impl Into<Address>) -> Client {
        let address = address.into();
        let channel = channel(&address);
        Client {
            address,
            sequencer: SequencerClient::new(channel.clone()),
            stream: None,
            admin: AdminClient::new(channel),
        }
    }

    /// Asks once.
    ///
    /// # Errors
    /// The node's, or the connection's.
    pub async fn ask(&mut self, target: &Target, action: Action) -> Result<FirstAndLast, Status> {
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
                        members_version: None,
                        request_id: None,
                        retry_window_ms: None,
                        made_ms: None,
                    });
                    let answer = self.sequencer.next(request).await?.into_inner();
                    Ok((answer.first, answer.last))
                }
                Action::Current => {
                    let request = bounded(CurrentRequest {
                        namespace,
                        key,
                        route_version: 0,
                        members_version: None,
                    });
                    let answer = self.sequencer.current(request).await?.into_inner();
                    let last = answer.last.unwrap_or(0);
                    Ok((last, last))
                }
                Action::Raise { floor } => {
                    let request = bounded(RaiseRequest {
                        namespace,
                        key,
                        at_least: floor,
                        ..RaiseRequest::default()
                    });
                    let floor = self.sequencer.raise(request).await?.into_inner().floor;
                    Ok((floor, floor))
                }
            }
        };
        within(DEADLINE, asking).await
    }

    /// Asks once for numbers, under a request id.
    ///
    /// # Errors
    /// The node's, or the connection's.
    pub async fn next_once(
        &mut self, target: &Target, count: u64, id: &str,
    ) -> Result<FirstAndLast, Status> {
        let request = bounded(NextRequest {
            namespace: target.namespace.to_owned(),
            key: target.key(),
            count: Some(count),
            request_id: Some(id.to_owned().into()),
            ..NextRequest::default()
        });
        let answer = within(DEADLINE, self.sequencer.next(request)).await?;
        let answer = answer.into_inner();
        Ok((answer.first, answer.last))
    }

    /// Asks once for numbers of several keys of one namespace, on the stream of this connection. Returns an answer for each
    /// key. The outcome of a key without an answer is unknown.
    ///
    /// # Errors
    /// The node's, or the connection's.
    pub async fn ask_many(
        &mut self, targets: &[Target], counts: &[u64],
    ) -> Result<Vec<Result<FirstAndLast, Status>>, Status> {
        let (namespace, ids, names) = keys_of(targets);
        let request = NextManyRequest {
            namespace,
            ids,
            names,
            counts: counts.to_vec(),
            timeout_ms: DEADLINE.as_millis() as u64,
            ..NextManyRequest::default()
        };
        let answer = within(DEADLINE, self.on_stream(request)).await;
        if answer.is_err() {
            // A late answer on it would be taken for the answer to another request.
            self.stream = None;
        }
        let answer = answer?;
        if let Some(failure) = answer.failure {
            // With details, as a node's status has them.
            let details = failure.encode_to_vec().into();
            return Err(Status::with_details(failure.code.into(), failure.message, details));
        }
        let ranges = answer.firsts.iter().zip(counts).map(|(&first, count)| match first {
            0 => Err(Status::unknown("the key got no numbers")),
            // A wild answer is one that the checker is to see.
            _ => Ok((first, first.saturating_add((count - 1).saturating_mul(answer.increment)))),
        });
        Ok(ranges.collect())
    }

    /// Asks once for the last numbers of several keys of one namespace.
    ///
    /// # Errors
    /// The node's, or the connection's.
    pub async fn current_many(
        &mut self, targets: &[Target],
    ) -> Result<Vec<Result<FirstAndLast, Status>>, Status> {
        let (namespace, ids, names) = keys_of(targets);
        let request = CurrentManyRequest { namespace, ids, names, ..CurrentManyRequest::default() };
        let answer = within(DEADLINE, self.sequencer.current_many(bounded(request))).await?;
        Ok(answer.into_inner().last.into_iter().map(|last| Ok((last, last))).collect())
    }

    async fn on_stream(&mut self, request: NextManyRequest) -> Result<NextManyResponse, Status> {
        let broke = || Status::unavailable("the stream broke");
        let (messages, answers) = match &mut self.stream {
            Some(stream) => stream,
            none => {
                let (messages, outgoing) = mpsc::channel(1);
                let opened = self.sequencer.next_many(ReceiverStream::new(outgoing));
                none.insert((messages, opened.await?.into_inner()))
            }
        };
        messages.send(request).await.map_err(|_| broke())?;
        answers.next().await.ok_or_else(broke)?
    }

    /// The node's knowledge of the cluster.
    ///
    /// # Errors
    /// The node's, or the connection's.
    pub async fn status(&mut self) -> Result<proto::StatusResponse, Status> {
        let asking = self.admin.status(bounded(proto::StatusRequest {}));
        Ok(within(DEADLINE, asking).await?.into_inner())
    }

    /// Has the node found the cluster: with a token, if callers show one.
    ///
    /// # Errors
    /// The message of the node, the connection or the command line.
    pub async fn found(&mut self) -> Result<(), String> {
        if let Some(access) = self.address.access() {
            return access.found(self.address.at).await;
        }
        let founded = self.admin.found(bounded(proto::FoundRequest::default())).await;
        founded.map(drop).map_err(|status| status.to_string())
    }

    /// The interface for numbers, for calls that take their time.
    pub fn sequencer(&mut self) -> &mut SequencerClient<Channel> {
        &mut self.sequencer
    }

    /// The administrative interface, for calls that take their time.
    pub fn admin(&mut self) -> &mut AdminClient<Channel> {
        &mut self.admin
    }
}

/// The namespace of keys, and the keys, as ids or as names.
fn keys_of(targets: &[Target]) -> (String, Vec<u64>, Vec<Bytes>) {
    let namespace = targets.first().map_or("", |first| first.namespace);
    let (names, ids): (Vec<&Target>, Vec<&Target>) =
        targets.iter().partition(|target| target.is_named());
    let ids = ids.into_iter().map(|target| target.id).collect();
    let names = names.into_iter().map(|target| target.key_text().into()).collect();
    (namespace.to_owned(), ids, names)
}

/// A connection over gRPC, whose calls show the token, if there is one.
pub type Channel = InterceptedService<tonic::transport::Channel, ShowsToken>;

/// Shows a token with each call, if there is one.
#[derive(Clone)]
pub struct ShowsToken(Option<MetadataValue<Ascii>>);

impl Interceptor for ShowsToken {
    fn call(&mut self, mut call: Request<()>) -> Result<Request<()>, Status> {
        if let Some(authorization) = &self.0 {
            call.metadata_mut().insert("authorization", authorization.clone());
        }
        Ok(call)
    }
}

/// Connects at the first call, and again after the connection broke.
pub(crate) fn channel(address: &Address) -> Channel {
    channel_with(address, DEADLINE / 2, |endpoint| {
        endpoint.http2_keep_alive_interval(DEADLINE).keep_alive_timeout(DEADLINE)
    })
}

/// The same with other settings. A connection may take `limit`, and its handshake as long again.
pub(crate) fn channel_with(
    address: &Address, limit: Duration, set: impl FnOnce(Endpoint) -> Endpoint,
) -> Channel {
    // Made of numbers alone, the address always is an URI.
    let endpoint = Endpoint::from_shared(format!("http://{}", address.at))
        .unwrap_or_else(|_| Endpoint::from_static("http://0.0.0.0:0"));
    let endpoint = set(endpoint.tcp_nodelay(true));
    let authorization = address.access().and_then(|access| access.authorization());
    let channel = match address.access() {
        None => endpoint.connect_timeout(limit).connect_lazy(),
        Some(_) => {
            endpoint.connect_with_connector_lazy(Connector { address: address.clone(), limit })
        }
    };
    Channel::new(channel, ShowsToken(authorization.cloned()))
}

/// Connects to a node of a secure cluster.
#[derive(Clone)]
struct Connector {
    address: Address,
    limit: Duration,
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Socket>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let Connector { address, limit } = self.clone();
        Box::pin(async move {
            let connected = address.connect(Protocol::Grpc, limit).await;
            // As without TLS, so that [`outcome`] knows that nothing was sent.
            let told = |error: io::Error| {
                io::Error::new(error.kind(), format!("{CONNECT_ERROR}: {error}"))
            };
            connected.map(TokioIo::new).map_err(told)
        })
    }
}

async fn within<T>(
    limit: Duration, call: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
    tokio::time::timeout(limit, call)
        .await
        .unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer in time")))
}

/// A request that may take [`DEADLINE`].
pub(crate) fn bounded<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(DEADLINE);
    request
}

/// The error of the product's client, as the status of a server.
pub fn status_of(error: &ratchet_client::Error) -> Status {
    use ratchet_client::Code as Said;
    let code = match error.code() {
        Some(Said::InvalidArgument) => Code::InvalidArgument,
        Some(Said::NotFound) => Code::NotFound,
        Some(Said::OutOfRange) => Code::OutOfRange,
        Some(Said::Unavailable) => Code::Unavailable,
        Some(Said::DeadlineExceeded) => Code::DeadlineExceeded,
        _ => Code::Unknown,
    };
    Status::new(code, error.to_string())
}

/// The codes of calls that were not acted upon, and their names in texts.
pub const REFUSALS: [(Code, &str); 4] = [
    (Code::InvalidArgument, "INVALID_ARGUMENT"),
    (Code::NotFound, "NOT_FOUND"),
    (Code::OutOfRange, "OUT_OF_RANGE"),
    (Code::Unimplemented, "UNIMPLEMENTED"),
];

/// Whether a node said that nothing was done of a call, or nothing was sent: if the namespace is gapless, no number was taken.
pub fn is_not_done(status: &Status) -> bool {
    // The status of a node has details. A status that the connection's library makes up has none.
    let is_of_node = !status.details().is_empty();
    let harmless = [Code::Unavailable, Code::ResourceExhausted, Code::FailedPrecondition];
    outcome(status) == Outcome::Fail || (is_of_node && harmless.contains(&status.code()))
}

/// Whether a call that failed so may have burnt numbers.
pub fn outcome(status: &Status) -> Outcome {
    let code = status.code();
    // A refused connection carried no request.
    let unsent = code == Code::Unavailable && status.message().contains(CONNECT_ERROR);
    if unsent || REFUSALS.iter().any(|(refusal, _)| *refusal == code) {
        Outcome::Fail
    } else {
        Outcome::Info
    }
}
