//! The peer protocol: Raft's messages, snapshots, and what followers forward.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use futures::{
    FutureExt, Stream, StreamExt, TryStreamExt,
    stream::{BoxStream, FuturesUnordered},
};
use prost::Message;
use tokio::{sync::mpsc, time::Instant};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tonic::{Request, Response, Status, Streaming};

use crate::{
    consensus::{Group, RaftRpc},
    node::{
        Answered, Config, Current, Failure, MERGED_BYTES_MAX, Next, NextMany, Origin, Reservation,
        SequenceRequest, Shared, leader_of,
    },
    proto::peer::{
        AdministerReply, AdministerRequest, ForwardReplies, ForwardReply, ForwardRequest,
        ForwardRequests, HelloRequest, HelloResponse, NotLeader, RaftMessage, RaftReply,
        SnapshotPart, administer_reply, forward_reply, forward_request, peer_server::Peer,
    },
};

/// The service.
#[derive(Clone)]
pub struct Door {
    shared: Arc<Shared>,
    stop: CancellationToken,
}

impl Door {
    /// The peer door of `shared`, open until `stop`.
    pub fn new(shared: Arc<Shared>, stop: CancellationToken) -> Self {
        Door { shared, stop }
    }

    async fn raft(
        &self,
        rpc: RaftRpc,
        request: Request<RaftMessage>,
    ) -> Result<Response<RaftReply>, Status> {
        let message = request.into_inner();
        let group = &self.shared.group;
        let answer = group.handle_rpc(rpc, message.header.as_ref(), &message.payload);
        let payload = answer.await?.into();
        Ok(Response::new(RaftReply { payload }))
    }

    /// Takes a snapshot in, whatever network its parts come over.
    ///
    /// # Errors
    /// As the parts fail, or as the group refuses them.
    pub async fn take_snapshot(
        &self,
        mut parts: impl Stream<Item = Result<SnapshotPart, Status>> + Send + Unpin,
    ) -> Result<RaftReply, Status> {
        let group = &self.shared.group;
        let first = next_part(group, &mut parts)
            .await?
            .ok_or_else(|| Status::invalid_argument("a snapshot without parts"))?;
        let payload = match group.begin_snapshot(&first)? {
            Ok(mut arriving) => {
                while let Some(part) = next_part(group, &mut parts).await? {
                    arriving = group.write_snapshot_part(arriving, part.payload).await?;
                }
                group.install_snapshot(arriving).await?
            }
            Err(answer) => answer,
        };
        Ok(RaftReply {
            payload: payload.into(),
        })
    }

    /// Answers a stream of forwarded requests, whatever network it comes over.
    pub fn answer_all(
        &self,
        requests: impl Stream<Item = Result<ForwardRequests, Status>> + Send + Unpin + 'static,
    ) -> BoxStream<'static, Result<ForwardReplies, Status>> {
        let (replies, stream) = mpsc::channel(16);
        let serving = serve_forwarded(self.shared.clone(), requests, replies);
        let stop = self.stop.clone();
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = serving => {}
            }
        });
        let sent = ReceiverStream::new(stream);
        sent.map_ok(|Together { replies, .. }| ForwardReplies { replies })
            .boxed()
    }
}

#[tonic::async_trait]
impl Peer for Door {
    type ForwardStream = BoxStream<'static, Result<ForwardReplies, Status>>;

    async fn hello(
        &self,
        request: Request<HelloRequest>,
    ) -> Result<Response<HelloResponse>, Status> {
        self.shared.hello(request.get_ref()).map(Response::new)
    }

    async fn append(&self, request: Request<RaftMessage>) -> Result<Response<RaftReply>, Status> {
        self.raft(RaftRpc::Append, request).await
    }

    async fn vote(&self, request: Request<RaftMessage>) -> Result<Response<RaftReply>, Status> {
        self.raft(RaftRpc::Vote, request).await
    }

    async fn pre_vote(&self, request: Request<RaftMessage>) -> Result<Response<RaftReply>, Status> {
        self.raft(RaftRpc::PreVote, request).await
    }

    async fn transfer_leader(
        &self,
        request: Request<RaftMessage>,
    ) -> Result<Response<RaftReply>, Status> {
        self.raft(RaftRpc::TransferLeader, request).await
    }

    async fn install_snapshot(
        &self,
        request: Request<Streaming<SnapshotPart>>,
    ) -> Result<Response<RaftReply>, Status> {
        self.take_snapshot(request.into_inner())
            .await
            .map(Response::new)
    }

    async fn forward(
        &self,
        request: Request<Streaming<ForwardRequests>>,
    ) -> Result<Response<Self::ForwardStream>, Status> {
        Ok(Response::new(self.answer_all(request.into_inner())))
    }

    async fn administer(
        &self,
        request: Request<AdministerRequest>,
    ) -> Result<Response<AdministerReply>, Status> {
        use administer_reply::Reply;
        let message = request.into_inner();
        self.shared.group.check_header(message.header.as_ref())?;
        let request = message
            .request
            .ok_or_else(|| Status::invalid_argument("an administrative request without one"))?;
        let deadline = deadline_in(message.budget_ms, &self.shared.config);
        let reply = match self
            .shared
            .administer(request, Origin::Peer, deadline)
            .await
        {
            Ok(reply) => reply,
            Err(Failure::Status(status)) => Reply::Error((&status).into()),
            Err(Failure::NotLeader(now)) => Reply::NotLeader(NotLeader {
                term: now.term,
                leader: leader_of(&now),
            }),
        };
        Ok(Response::new(AdministerReply { reply: Some(reply) }))
    }
}

/// A reply, and its memory until it is sent.
type Reserved = (ForwardReply, Option<Reservation>);

/// The replies of one message, and their memory until it is sent.
#[derive(Default)]
struct Together {
    replies: Vec<ForwardReply>,
    _reserved: Vec<Reservation>,
}

async fn next_part(
    group: &Group,
    parts: &mut (impl Stream<Item = Result<SnapshotPart, Status>> + Unpin),
) -> Result<Option<SnapshotPart>, Status> {
    let patience = group.snapshot_part_timeout();
    let part = tokio::time::timeout(patience, parts.try_next());
    part.await.unwrap_or_else(|_| {
        Err(Status::deadline_exceeded(format!(
            "no part of the snapshot came for {} ms",
            patience.as_millis()
        )))
    })
}

/// Answers one follower's stream: requests at once, each reply as soon as it is there, and those
/// that are there together in one message.
///
/// A request that must wait goes on as a task of the node's: while the follower does not read, nothing
/// is polled in here.
async fn serve_forwarded(
    shared: Arc<Shared>,
    mut requests: impl Stream<Item = Result<ForwardRequests, Status>> + Send + Unpin,
    replies: mpsc::Sender<Result<Together, Status>>,
) {
    let mut working: FuturesUnordered<AbortOnDropHandle<Reserved>> = FuturesUnordered::new();
    let mut ready = VecDeque::new();
    loop {
        while let Some(Some(done)) = working.next().now_or_never() {
            match done {
                Ok(reply) => ready.push_back(reply),
                // The follower loses its stream, and its callers ask again.
                Err(error) => return tracing::error!(%error, "a forwarded request failed"),
            }
        }
        if !ready.is_empty() {
            let together = Ok(merge(&mut ready));
            if replies.send(together).await.is_err() {
                return;
            }
            continue;
        }
        tokio::select! {
            biased;
            Some(done) = working.next(), if !working.is_empty() => match done {
                Ok(reply) => ready.push_back(reply),
                Err(error) => return tracing::error!(%error, "a forwarded request failed"),
            },
            message = requests.next() => {
                let Some(Ok(message)) = message else { return };
                if let Err(status) = shared.group.check_header(message.header.as_ref()) {
                    // Nobody listens once the stream is gone.
                    let _ = replies.send(Err(status)).await;
                    return;
                }
                for request in message.requests {
                    let mut answering = Box::pin(answer(shared.clone(), request));
                    match (&mut answering).now_or_never() {
                        Some(reply) => ready.push_back(reply),
                        None => working.push(AbortOnDropHandle::new(tokio::spawn(answering))),
                    }
                }
            }
        }
    }
}

/// As many replies as one message takes.
fn merge(ready: &mut VecDeque<Reserved>) -> Together {
    let mut together = Together::default();
    let mut bytes = 0;
    while bytes < MERGED_BYTES_MAX
        && let Some((reply, reserved)) = ready.pop_front()
    {
        bytes += reply.encoded_len();
        together.replies.push(reply);
        together._reserved.extend(reserved);
    }
    together
}

#[tracing::instrument(level = "debug", name = "forwarded", skip_all, fields(id = request.id))]
async fn answer(shared: Arc<Shared>, request: ForwardRequest) -> Reserved {
    use forward_reply::Reply;
    let arrived = Instant::now();
    let deadline = deadline_in(request.budget_ms, &shared.config);
    let mut reserved = None;
    let answered = match request.request {
        Some(forward_request::Request::Next(next)) => {
            let answer = serve::<_, Next>(&shared, next, deadline).await;
            answer.map(|answer| Reply::Next(answer.into()))
        }
        Some(forward_request::Request::NextMany(many)) => {
            let keys = many.ids.len() + many.names.len();
            match shared.request_memory.reserve_for_answer(keys) {
                Ok(for_answer) => {
                    reserved = for_answer;
                    let answer = serve::<_, NextMany>(&shared, many, deadline).await;
                    answer.map(|answer| Reply::NextMany(answer.into()))
                }
                Err(status) => Err(status.into()),
            }
        }
        Some(forward_request::Request::Current(current)) => {
            let answer = serve::<_, Current>(&shared, current, deadline).await;
            answer.map(|answer| Reply::Current(answer.into()))
        }
        None => Err(Status::invalid_argument("a forwarded request without one").into()),
    };
    let reply = answered.unwrap_or_else(|failure| match failure {
        Failure::Status(status) => Reply::Error((&status).into()),
        Failure::NotLeader(now) => Reply::NotLeader(NotLeader {
            term: now.term,
            leader: leader_of(&now),
        }),
    });
    let spans = &shared.metrics.request_seconds;
    spans.observe(arrived.elapsed(), 1);
    let reply = ForwardReply {
        id: request.id,
        reply: Some(reply),
    };
    (reply, reserved)
}

async fn serve<M, Q: SequenceRequest + TryFrom<M, Error = Status>>(
    shared: &Arc<Shared>,
    message: M,
    deadline: Instant,
) -> Result<Answered<Q::Answer>, Failure> {
    let request = Q::try_from(message)?;
    shared.serve(request, Origin::Peer, deadline).await
}

fn deadline_in(budget_ms: u64, config: &Config) -> Instant {
    Instant::now() + Duration::from_millis(budget_ms.min(config.request_timeout_max_ms))
}
