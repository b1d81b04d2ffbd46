//! The transport to peers in production: gRPC over TCP.
//!
//! Invariant: only connections to members are kept.

use std::{
    collections::{BTreeSet, HashMap},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use async_trait::async_trait;
use futures::{Stream, StreamExt, TryStreamExt, stream::BoxStream};
use parking_lot::Mutex;
use tonic::{
    Request, Status,
    transport::{Channel, Endpoint},
};

use crate::{
    consensus::{MESSAGE_BYTES_MAX, RaftRpc, Transport},
    node::Seams,
    proto::{
        Refusal,
        peer::{
            AdministerReply, AdministerRequest, ForwardReplies, ForwardRequests, HelloRequest,
            HelloResponse, MemoryPart, MemoryReply, RaftMessage, RaftReply, SnapshotPart,
            peer_client::PeerClient,
        },
        refusal,
    },
};

impl Default for Seams {
    /// Those of production.
    fn default() -> Self {
        Seams::real(Arc::new(GrpcTransport::default()))
    }
}

/// The transport of production. Connections to members are kept and shared. A connection to another
/// address is closed after use, so that a caller who names many addresses cannot fill this node's memory.
#[derive(Debug)]
pub struct GrpcTransport {
    channels: Mutex<Channels>,
    /// How long a connection may be silent until the peer is asked for a sign of life, and until that must come.
    silence_max: Duration,
}

impl Default for GrpcTransport {
    fn default() -> Self {
        GrpcTransport::of_silence(Duration::from_millis(500))
    }
}

#[derive(Debug, Default)]
struct Channels {
    members: BTreeSet<String>,
    kept: HashMap<(String, ChannelClass), Channel>,
}

/// Each class of messages has a connection of its own, because heartbeats and votes must not queue behind
/// a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum ChannelClass {
    /// Raft's messages, and greetings.
    Raft,
    /// Snapshots, and the memories of leaders.
    Bulk,
    /// Callers' requests.
    Requests,
}

impl GrpcTransport {
    /// One that takes a peer for gone which gives no sign of life for twice as long. A machine that is busy with tests may keep
    /// a peer silent for longer than in production.
    pub fn of_silence(silence_max: Duration) -> Self {
        GrpcTransport { channels: Mutex::default(), silence_max }
    }

    fn client(&self, address: &str, class: ChannelClass) -> Result<PeerClient<Channel>, Refusal> {
        let mut channels = self.channels.lock();
        let key = (address.to_owned(), class);
        let channel = match channels.kept.get(&key) {
            Some(channel) => channel.clone(),
            None => {
                let channel = self.connect(address)?;
                if channels.members.contains(address) {
                    channels.kept.insert(key, channel.clone());
                }
                channel
            }
        };
        Ok(PeerClient::new(channel)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX))
    }

    /// A connection that is opened at its first use, and again after it broke.
    fn connect(&self, address: &str) -> Result<Channel, Refusal> {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(|e| {
            refusal!(InvalidRequest, "peer address {address:?} is not of the form host:port: {e}")
        })?;
        Ok(endpoint
            .connect_timeout(self.silence_max)
            .tcp_nodelay(true)
            // A peer that went silent (partition, power cut) is noticed long before TCP would notice. Then a
            // new connection is opened, instead of waiting for a retransmission on the old one.
            .http2_keep_alive_interval(self.silence_max)
            .keep_alive_timeout(self.silence_max)
            .keep_alive_while_idle(true)
            .connect_lazy())
    }
}

fn within<T>(timeout: Duration, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(timeout);
    request
}

async fn bounded<T>(
    timeout: Duration, address: &str,
    call: impl Future<Output = Result<tonic::Response<T>, Status>>,
) -> Result<T, Refusal> {
    match tokio::time::timeout(timeout, call).await {
        Ok(answer) => Ok(answer?.into_inner()),
        Err(_) => Err(refusal!(
            DeadlineExceeded,
            "peer {address} did not answer within {} ms",
            timeout.as_millis()
        )),
    }
}

/// A stream of messages to send. (The generated client needs a `Send` stream. The compiler cannot prove
/// that of a boxed stream in that place; of this type it can.)
struct Outgoing<T>(BoxStream<'static, T>);

impl<T> Stream for Outgoing<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        self.0.poll_next_unpin(context)
    }
}

#[async_trait]
impl Transport for GrpcTransport {
    async fn raft(
        &self, address: &str, rpc: RaftRpc, message: RaftMessage, timeout: Duration,
    ) -> Result<RaftReply, Refusal> {
        let mut client = self.client(address, ChannelClass::Raft)?;
        let request = within(timeout, message);
        match rpc {
            RaftRpc::Append => bounded(timeout, address, client.append(request)).await,
            RaftRpc::Vote => bounded(timeout, address, client.vote(request)).await,
            RaftRpc::PreVote => bounded(timeout, address, client.pre_vote(request)).await,
            RaftRpc::TransferLeader => {
                bounded(timeout, address, client.transfer_leader(request)).await
            }
        }
    }

    async fn install_snapshot(
        &self, address: &str, parts: BoxStream<'static, SnapshotPart>,
    ) -> Result<RaftReply, Refusal> {
        let mut client = self.client(address, ChannelClass::Bulk)?;
        let answer = client.install_snapshot(Outgoing(parts)).await?;
        Ok(answer.into_inner())
    }

    async fn send_memory(
        &self, address: &str, parts: BoxStream<'static, MemoryPart>,
    ) -> Result<MemoryReply, Refusal> {
        let mut client = self.client(address, ChannelClass::Bulk)?;
        let answer = client.take_memory(Outgoing(parts)).await?;
        Ok(answer.into_inner())
    }

    async fn hello(
        &self, address: &str, request: HelloRequest, timeout: Duration,
    ) -> Result<HelloResponse, Refusal> {
        let mut client = self.client(address, ChannelClass::Raft)?;
        bounded(timeout, address, client.hello(within(timeout, request))).await
    }

    async fn forward(
        &self, address: &str, requests: BoxStream<'static, ForwardRequests>,
    ) -> Result<BoxStream<'static, Result<ForwardReplies, Refusal>>, Refusal> {
        let mut client = self.client(address, ChannelClass::Requests)?;
        let answer = client.forward(Outgoing(requests)).await?;
        Ok(answer.into_inner().map_err(Refusal::from).boxed())
    }

    async fn administer(
        &self, address: &str, request: AdministerRequest, timeout: Duration,
    ) -> Result<AdministerReply, Refusal> {
        let mut client = self.client(address, ChannelClass::Requests)?;
        bounded(timeout, address, client.administer(within(timeout, request))).await
    }

    fn keep(&self, addresses: BTreeSet<String>) {
        let mut channels = self.channels.lock();
        channels.kept.retain(|(address, _), _| addresses.contains(address));
        channels.members = addresses;
    }
}

#[cfg(test)]
mod tests {
    use tokio::{io::AsyncReadExt, net::TcpListener};

    use super::*;

    /// Asks a server that accepts connections and never answers. Returns the server's connection.
    async fn greet_silent_server(
        transport: &GrpcTransport, listener: &TcpListener,
    ) -> tokio::net::TcpStream {
        let address = listener.local_addr().unwrap().to_string();
        let timeout = Duration::from_millis(100);
        let asking = transport.hello(&address, HelloRequest::default(), timeout);
        let (answer, accepted) = tokio::join!(asking, listener.accept());
        assert!(answer.is_err());
        accepted.unwrap().0
    }

    async fn is_closed_soon(mut connection: tokio::net::TcpStream) -> bool {
        let mut sent = Vec::new();
        let closing = connection.read_to_end(&mut sent);
        let patience = Duration::from_secs(300);
        tokio::time::timeout(patience, closing).await.is_ok()
    }

    #[tokio::test]
    async fn a_connection_to_an_address_that_is_not_a_members_is_closed_after_use() {
        let transport = GrpcTransport::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let connection = greet_silent_server(&transport, &listener).await;
        assert!(transport.channels.lock().kept.is_empty());
        assert!(is_closed_soon(connection).await);
    }

    #[tokio::test]
    async fn a_connection_to_a_member_is_kept_until_it_is_removed() {
        let transport = GrpcTransport::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        transport.keep(BTreeSet::from([address]));
        let connection = greet_silent_server(&transport, &listener).await;
        assert_eq!(transport.channels.lock().kept.len(), 1);
        transport.keep(BTreeSet::new());
        assert!(transport.channels.lock().kept.is_empty());
        assert!(is_closed_soon(connection).await);
    }
}
