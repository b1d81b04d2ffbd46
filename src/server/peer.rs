//! `ratchet.peer.v1.Peer`: Raft's messages, greetings and snapshots. Requests that followers forward are
//! answered in [`self::forwarded`].
//!
//! `client.rs` is the other end, with `append_stream.rs` for appends. `sent.rs` has the sender of a message, and `body.rs`
//! looks at the sender before the message is whole.
//!
//! The simulator calls [`PeerServices`] without a network, so its methods take any stream.

mod append_stream;
pub(super) mod body;
pub(super) mod client;
mod forwarded;
mod sent;

use std::sync::Arc;

use bytes::Bytes;
use futures::{Stream, StreamExt, TryStreamExt, stream::BoxStream};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use self::{
    body::PeerConnection,
    sent::{all_sent, sent},
};
use super::connections::answer_memory::response;
use crate::{
    clock::whole_ms,
    consensus::{RaftRpc, RpcHandler},
    node::NodeContext,
    proto::{
        Refusal,
        peer::{
            AdministerReply, AdministerRequest, ForwardReplies, ForwardRequests, HelloRequest,
            HelloResponse, LowDisk, MemoryPart, MemoryReply, RaftMessage, RaftReply, SnapshotPart,
            peer_server::Peer,
        },
        refusal,
    },
};

/// The services of a node for its peers.
#[derive(Clone)]
pub struct PeerServices {
    /// The node.
    pub context: Arc<NodeContext>,
    /// Cancelled when the node stops: streams end then.
    pub stop: CancellationToken,
}

impl PeerServices {
    /// Has the group answer one of Raft's messages.
    ///
    /// # Errors
    /// FAILED_PRECONDITION if the connection's certificate is not the sender's, RESOURCE_EXHAUSTED if there is no memory for
    /// the message, and the group's error if it refuses the message.
    pub async fn raft(
        &self, rpc: RaftRpc, request: Request<RaftMessage>,
    ) -> Result<Response<RaftReply>, Status> {
        let (connection, message) = sent(request)?;
        self.answer(rpc, connection.as_ref(), message).await.map(Response::new)
    }

    /// Has the group answer a message. Its sender is the node of the connection's certificate.
    async fn answer(
        &self, rpc: RaftRpc, connection: Option<&PeerConnection>, message: RaftMessage,
    ) -> Result<RaftReply, Status> {
        let (group, handler) = (&self.context.group, self.context.services.of_group.rpc_handler());
        let reserve = |connection: &PeerConnection| connection.reserve(message.payload.len());
        let held = connection.map(reserve).transpose()?;
        let (number, open_known) = (message.number, message.open_known);
        let payload = handler.handle(rpc, message, held).await?.into();
        let reply = RaftReply { number, ..self.reply(payload) };
        Ok(match rpc {
            RaftRpc::Append => {
                let open = self.context.this_node.open_unless(open_known);
                RaftReply { wall_ms: Some(group.wall_ms()), open, ..reply }
            }
            RaftRpc::Vote | RaftRpc::PreVote | RaftRpc::TransferLeader => reply,
        })
    }

    /// Answers the appends of a stream, one after the other, until one is refused, the stream ends, or this node stops.
    ///
    /// The connection drives this. It does not while the sender leaves answers unread, and nothing waits for that: a sender of
    /// the next append has read the answer to the last one.
    fn answer_appends(
        self, connection: Option<PeerConnection>,
        appends: impl Stream<Item = Result<RaftMessage, Status>> + Send + 'static,
    ) -> BoxStream<'static, Result<RaftReply, Status>> {
        let stop = self.stop.clone().cancelled_owned();
        let by = Arc::new((self, connection));
        let answers = appends.and_then(move |append| {
            let by = by.clone();
            async move { by.0.answer(RaftRpc::Append, by.1.as_ref(), append).await }
        });
        answers.take_until(stop).boxed()
    }

    /// Raft's reply, with the state of this node's disk.
    fn reply(&self, payload: Bytes) -> RaftReply {
        let this_node = &self.context.this_node;
        let low_disk = this_node.store.free_space().low();
        let low_disk =
            low_disk.map(|low| LowDisk { free_mb: low.free_mb, reserve_mb: low.reserve_mb });
        let flush_ms = self.context.group.flush_takes().map(whole_ms);
        RaftReply { payload, low_disk, flush_ms, ..RaftReply::default() }
    }

    /// Receives a snapshot. Returns Raft's reply to its sender.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if there are no parts, FAILED_PRECONDITION if the next part does not come in time, the
    /// stream's own error if it fails, and the group's if it refuses the snapshot.
    pub async fn take_snapshot(
        &self, mut parts: impl Stream<Item = Result<SnapshotPart, Status>> + Send + Unpin,
    ) -> Result<RaftReply, Status> {
        let handler = self.context.services.of_group.rpc_handler();
        let first = next_part(handler, &mut parts)
            .await?
            .ok_or_else(|| Status::invalid_argument("the snapshot has no parts"))?;
        let payload = match handler.begin_snapshot(&first).await? {
            Ok(mut arriving) => {
                while let Some(part) = next_part(handler, &mut parts).await? {
                    arriving = handler.write_snapshot_part(arriving, part.payload).await?;
                }
                handler.install_snapshot(arriving).await?
            }
            Err(answer) => answer,
        };
        Ok(self.reply(payload.into()))
    }

    /// Receives the memory of a leader that hands over to this node.
    ///
    /// # Errors
    /// Those of `GroupServices::take_memory`.
    pub async fn receive_memory(
        &self, parts: impl Stream<Item = Result<MemoryPart, Status>> + Send + Unpin,
    ) -> Result<MemoryReply, Status> {
        Ok(self.context.services.of_group.take_memory(parts.map_err(Refusal::from)).await?)
    }

    /// Answers a stream of forwarded requests.
    pub fn answer_forwarded(
        &self,
        requests: impl Stream<Item = Result<ForwardRequests, Status>> + Send + Unpin + 'static,
    ) -> BoxStream<'static, Result<ForwardReplies, Status>> {
        forwarded::answer_stream(self.context.clone(), self.stop.clone(), requests)
    }
}

#[tonic::async_trait]
impl Peer for PeerServices {
    type AppendStream = BoxStream<'static, Result<RaftReply, Status>>;
    type ForwardStream = BoxStream<'static, Result<ForwardReplies, Status>>;

    async fn hello(
        &self, request: Request<HelloRequest>,
    ) -> Result<Response<HelloResponse>, Status> {
        let (connection, greeting) = sent(request)?;
        let is_stranger = connection.is_some_and(|connection| connection.certified.is_none());
        if is_stranger && self.context.config.peer_tls.dials() && !self.context.group.is_formed() {
            let why = "this node waits for its cluster, and answers only nodes that show a certificate of it";
            return Err(Status::from(refusal!(
                Unauthenticated,
                "{why}: set peer_tls = send or require on the other nodes, and give them certificates"
            )));
        }
        Ok(Response::new(self.context.services.formation.hello(&greeting).await?))
    }

    async fn append(
        &self, request: Request<Streaming<RaftMessage>>,
    ) -> Result<Response<Self::AppendStream>, Status> {
        let connection = request.extensions().get::<PeerConnection>().cloned();
        Ok(Response::new(self.clone().answer_appends(connection, all_sent(request))))
    }

    async fn vote(&self, request: Request<RaftMessage>) -> Result<Response<RaftReply>, Status> {
        self.raft(RaftRpc::Vote, request).await
    }

    async fn pre_vote(&self, request: Request<RaftMessage>) -> Result<Response<RaftReply>, Status> {
        self.raft(RaftRpc::PreVote, request).await
    }

    async fn transfer_leader(
        &self, request: Request<RaftMessage>,
    ) -> Result<Response<RaftReply>, Status> {
        self.raft(RaftRpc::TransferLeader, request).await
    }

    async fn install_snapshot(
        &self, request: Request<Streaming<SnapshotPart>>,
    ) -> Result<Response<RaftReply>, Status> {
        self.take_snapshot(all_sent(request)).await.map(Response::new)
    }

    async fn take_memory(
        &self, request: Request<Streaming<MemoryPart>>,
    ) -> Result<Response<MemoryReply>, Status> {
        let taken = self.receive_memory(all_sent(request)).await;
        taken.map(Response::new)
    }

    async fn forward(
        &self, request: Request<Streaming<ForwardRequests>>,
    ) -> Result<Response<Self::ForwardStream>, Status> {
        Ok(Response::new(self.answer_forwarded(all_sent(request))))
    }

    async fn administer(
        &self, request: Request<AdministerRequest>,
    ) -> Result<Response<AdministerReply>, Status> {
        let (_, asked) = sent(request)?;
        let answering = forwarded::administer(&self.context, asked);
        let (reply, reserved) = answering.await?;
        Ok(response(reply, reserved))
    }
}

/// The next part of a snapshot; `None` at its end.
///
/// # Errors
/// FAILED_PRECONDITION if it does not come in time, and the stream's own error.
async fn next_part(
    handler: &RpcHandler, parts: &mut (impl Stream<Item = Result<SnapshotPart, Status>> + Unpin),
) -> Result<Option<SnapshotPart>, Status> {
    let patience = handler.part_timeout();
    let part = tokio::time::timeout(patience, parts.try_next());
    let late = |_| {
        let ms = patience.as_millis();
        // The sender takes DEADLINE_EXCEEDED for a peer that it cannot reach, and would try again at once.
        refusal!(
            WrongState,
            "no part of the snapshot came for {ms} ms; does the disk of its sender hang?"
        )
    };
    part.await.map_err(late)?
}
