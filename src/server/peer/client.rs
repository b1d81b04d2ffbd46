//! The transport to peers in production: gRPC over TCP.
//!
//! Invariant: only connections to members are kept, and only streams to members.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use async_trait::async_trait;
use futures::{Stream, StreamExt, TryStreamExt, stream::BoxStream};
use parking_lot::Mutex;
use tonic::{
    Request, Response, Status,
    transport::{Channel, Endpoint},
};

use super::append_stream::AppendStream;
use crate::{
    consensus::{Destination, MESSAGE_BYTES_MAX, RaftRpc, Transport},
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
    sequence::{NodeId, SetId},
    server::tls::PeerConnector,
};

impl Default for Seams {
    /// The seams of production, without TLS.
    fn default() -> Self {
        Seams::real(Arc::new(GrpcTransport::default()))
    }
}

/// The transport of production. Connections to members are kept and shared, but for those of snapshots and memories. A
/// connection to another address is closed after use, so that a caller who names many addresses cannot fill this node's memory.
#[derive(Debug)]
pub struct GrpcTransport {
    channels: Mutex<Channels>,
    /// Connects with TLS, if this node speaks it with peers.
    tls: Option<PeerConnector>,
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
    /// Where the members of each set are. A node may be in several.
    members: BTreeMap<SetId, BTreeSet<(NodeId, String)>>,
    kept: HashMap<((NodeId, String), ChannelClass), Channel>,
    /// The streams to members over which the last append was answered.
    idle: HashMap<(NodeId, String), Vec<AppendStream>>,
}

impl Channels {
    /// Whether a set has this member, at this address.
    fn has_member(&self, member: &(NodeId, String)) -> bool {
        is_in_one_of(&self.members, member)
    }

    /// Takes over the addresses of the members of `set`, and closes the connections to addresses that no member has any more.
    fn keep(&mut self, set: SetId, members: BTreeSet<(NodeId, String)>) {
        self.members.insert(set, members);
        self.kept.retain(|(member, _), _| is_in_one_of(&self.members, member));
        self.idle.retain(|member, _| is_in_one_of(&self.members, member));
    }
}

fn is_in_one_of(
    sets: &BTreeMap<SetId, BTreeSet<(NodeId, String)>>, member: &(NodeId, String),
) -> bool {
    sets.values().any(|members| members.contains(member))
}

/// How many streams to a member wait for their next append. Raft has two appends under way to a peer: of entries, and of a
/// heartbeat, which does not wait for them.
const IDLE_STREAMS_MAX: usize = 2;

/// Each class of messages has a connection of its own, because heartbeats and votes must not queue behind
/// a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum ChannelClass {
    /// Raft's messages, and greetings.
    Raft,
    /// Snapshots, and the memories of leaders. Each has a connection of its own, which is closed after use: days may pass until
    /// the next one, and twice a second both ends would be woken for a sign of life.
    Bulk,
    /// Callers' requests.
    Requests,
}

impl GrpcTransport {
    /// A transport that takes a peer for gone if it gives no sign of life for twice as long. A machine that is busy with tests
    /// may keep a peer silent for longer than in production.
    pub fn of_silence(silence_max: Duration) -> Self {
        GrpcTransport { channels: Mutex::default(), tls: None, silence_max }
    }

    /// A transport that connects to peers with TLS, and never without, if `tls` is there.
    pub fn with_tls(tls: Option<PeerConnector>) -> Self {
        GrpcTransport { tls, ..GrpcTransport::default() }
    }

    fn client(
        &self, to: Destination<'_>, class: ChannelClass,
    ) -> Result<PeerClient<Channel>, Refusal> {
        let mut channels = self.channels.lock();
        let key = ((to.node, to.address.to_owned()), class);
        let channel = match channels.kept.get(&key) {
            Some(channel) => channel.clone(),
            None => {
                let channel = self.connect(to)?;
                if class != ChannelClass::Bulk && channels.has_member(&key.0) {
                    channels.kept.insert(key, channel.clone());
                }
                channel
            }
        };
        Ok(PeerClient::new(channel)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX))
    }

    /// Sends an append over a stream that waits for one, or over a new one. If this is dropped before the answer is there, the
    /// stream ends: no later append takes that answer for its own.
    async fn append(
        &self, to: Destination<'_>, message: RaftMessage,
    ) -> Result<RaftReply, Refusal> {
        let key = (to.node, to.address.to_owned());
        let (stream, reply) = match self.idle_stream(&key) {
            Some(stream) => stream.exchange(message).await?,
            None => AppendStream::open(self.client(to, ChannelClass::Raft)?, message).await?,
        };
        let mut channels = self.channels.lock();
        if let Some(stream) = stream
            && channels.has_member(&key)
        {
            let idle = channels.idle.entry(key).or_default();
            idle.push(stream);
            idle.truncate(IDLE_STREAMS_MAX);
        }
        Ok(reply)
    }

    /// A stream to the member `to` that waits for an append. Those that have ended meanwhile are dropped.
    fn idle_stream(&self, to: &(NodeId, String)) -> Option<AppendStream> {
        loop {
            let stream = self.channels.lock().idle.get_mut(to)?.pop()?;
            if let Some(stream) = stream.unless_ended() {
                return Some(stream);
            }
        }
    }

    /// A connection that is opened at its first use, and again after it broke.
    fn connect(&self, Destination { node, address }: Destination<'_>) -> Result<Channel, Refusal> {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(|e| {
            refusal!(InvalidRequest, "peer address {address:?} is not of the form host:port: {e}")
        })?;
        let endpoint = endpoint
            .tcp_nodelay(true)
            // A peer that went silent (partition, power cut) is noticed long before TCP would notice. Then a
            // new connection is opened, instead of waiting for a retransmission on the old one.
            .http2_keep_alive_interval(self.silence_max)
            .keep_alive_timeout(self.silence_max)
            .keep_alive_while_idle(true);
        Ok(match &self.tls {
            Some(tls) => endpoint.connect_with_connector_lazy(tls.to(node, self.silence_max)),
            None => endpoint.connect_timeout(self.silence_max).connect_lazy(),
        })
    }
}

fn within<T>(timeout: Duration, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(timeout);
    request
}

/// The answer to a call.
async fn bounded<T>(
    timeout: Duration, address: &str, call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, Refusal> {
    in_time(timeout, address, async { Ok(call.await?.into_inner()) }).await
}

async fn in_time<T>(
    timeout: Duration, address: &str, answer: impl Future<Output = Result<T, Refusal>>,
) -> Result<T, Refusal> {
    let late = |_| {
        let ms = timeout.as_millis();
        refusal!(DeadlineExceeded, "peer {address} did not answer within {ms} ms")
    };
    tokio::time::timeout(timeout, answer).await.map_err(late)?
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
        &self, to: Destination<'_>, rpc: RaftRpc, message: RaftMessage, timeout: Duration,
    ) -> Result<RaftReply, Refusal> {
        let client = || self.client(to, ChannelClass::Raft);
        let address = to.address;
        match rpc {
            RaftRpc::Append => in_time(timeout, address, self.append(to, message)).await,
            RaftRpc::Vote => {
                bounded(timeout, address, client()?.vote(within(timeout, message))).await
            }
            RaftRpc::PreVote => {
                bounded(timeout, address, client()?.pre_vote(within(timeout, message))).await
            }
            RaftRpc::TransferLeader => {
                bounded(timeout, address, client()?.transfer_leader(within(timeout, message))).await
            }
        }
    }

    async fn install_snapshot(
        &self, to: Destination<'_>, parts: BoxStream<'static, SnapshotPart>,
    ) -> Result<RaftReply, Refusal> {
        let mut client = self.client(to, ChannelClass::Bulk)?;
        let answer = client.install_snapshot(Outgoing(parts)).await?;
        Ok(answer.into_inner())
    }

    async fn send_memory(
        &self, to: Destination<'_>, parts: BoxStream<'static, MemoryPart>,
    ) -> Result<MemoryReply, Refusal> {
        let mut client = self.client(to, ChannelClass::Bulk)?;
        let answer = client.take_memory(Outgoing(parts)).await?;
        Ok(answer.into_inner())
    }

    async fn hello(
        &self, to: Destination<'_>, request: HelloRequest, timeout: Duration,
    ) -> Result<HelloResponse, Refusal> {
        let mut client = self.client(to, ChannelClass::Raft)?;
        bounded(timeout, to.address, client.hello(within(timeout, request))).await
    }

    async fn forward(
        &self, to: Destination<'_>, requests: BoxStream<'static, ForwardRequests>,
    ) -> Result<BoxStream<'static, Result<ForwardReplies, Refusal>>, Refusal> {
        let mut client = self.client(to, ChannelClass::Requests)?;
        let answer = client.forward(Outgoing(requests)).await?;
        Ok(answer.into_inner().map_err(Refusal::from).boxed())
    }

    async fn administer(
        &self, to: Destination<'_>, request: AdministerRequest, timeout: Duration,
    ) -> Result<AdministerReply, Refusal> {
        let mut client = self.client(to, ChannelClass::Requests)?;
        bounded(timeout, to.address, client.administer(within(timeout, request))).await
    }

    fn keep(&self, set: SetId, members: BTreeSet<(NodeId, String)>) {
        self.channels.lock().keep(set, members);
    }
}

#[cfg(test)]
mod tests;
