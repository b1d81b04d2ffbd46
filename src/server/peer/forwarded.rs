//! Answers the requests that followers forward: a stream of sequence requests from each follower, and single
//! operations.
//!
//! Invariant: a forwarded request is never forwarded again. If this node does not lead, the reply names the leader.

use std::{collections::VecDeque, mem, pin::pin, sync::Arc};

use bytes::Bytes;
use futures::{
    FutureExt, Stream, StreamExt, TryStreamExt,
    future::{self, BoxFuture},
    stream::{BoxStream, FuturesUnordered},
};
use prost::{DecodeError, Message};
use tokio::{sync::mpsc, time::Instant};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tonic::Status;

use crate::{
    allocator::KEYS_AT_ONCE,
    node::{
        Asker, Attempt, Caller, CheckedRequest, MERGED_BYTES_MAX, NodeContext, Origin, Reservation,
        SequenceRequest, ServedOperation, SoFar, Unanswered, deadline_in, leader_of,
    },
    proto::{
        peer::{
            self, AdministerReply, AdministerRequest, ForwardReplies, ForwardReply, ForwardRequest,
            ForwardRequests, NotLeader, administer_reply, forward_reply,
        },
        refusal,
        v1::Failure,
    },
    sequence::NamespaceId,
    server::grpc::answer,
};

/// A reply, and the memory reserved for it until it is sent.
struct MeteredReply {
    reply: ForwardReply,
    reservation: Option<Reservation>,
}

/// The replies that travel in one message, and the memory reserved for them until it is sent.
#[derive(Default)]
struct ReplyBatch {
    replies: Vec<ForwardReply>,
    _reservations: Vec<Reservation>,
}

/// Answers a stream of forwarded requests until it ends or `stop` does. A task of its own does the work: it goes
/// on while the follower does not read the replies.
pub fn answer_stream(
    context: Arc<NodeContext>, stop: CancellationToken,
    requests: impl Stream<Item = Result<ForwardRequests, Status>> + Send + Unpin + 'static,
) -> BoxStream<'static, Result<ForwardReplies, Status>> {
    let (replies, stream) = mpsc::channel(16);
    let serving = answer_requests(context, requests, replies);
    tokio::spawn(async move {
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = serving => {}
        }
    });
    let sent = ReceiverStream::new(stream);
    sent.map_ok(|ReplyBatch { replies, .. }| ForwardReplies { replies }).boxed()
}

/// Has an operation carried out for a follower. Also returns the memory that the reply holds until it is sent.
///
/// # Errors
/// UNIMPLEMENTED if this node knows no such operation of a leader's, and the group's error if the sender is refused. An
/// operation that fails is a reply.
pub async fn administer(
    context: &Arc<NodeContext>, message: AdministerRequest,
) -> Result<(AdministerReply, Option<Reservation>), Status> {
    use administer_reply::Reply;
    context.services.of_group.rpc_handler().check_header(message.header.as_ref())?;
    let operation = ServedOperation::by_leader(&message.method).ok_or_else(|| {
        refusal!(Unsupported, "no leader of this release carries out {:?}", message.method)
    })?;
    let deadline = deadline_in(message.left_ms, &context.config);
    let origin = Origin::Peer { namespace: None, again: message.again };
    let by = Asker::from_wire(message.by, message.caller)?;
    let caller = context.caller_of(&by, message.caller);
    let span = context.traces.of_peer(operation.method, message.trace_parent);
    let (asked, from) = ((message.message, &by), (origin, span.as_deref()));
    let calling = context.operations.call(operation, asked, from, deadline);
    let (reply, mut reserved) = match Caller::scope(caller, calling).await {
        Ok((answer, reserved)) => (Reply::Answer(answer), reserved),
        Err(unanswered) => match error_or_not_leader(context, unanswered) {
            Ok(error) => (Reply::Error(error), None),
            Err(not_leader) => (Reply::NotLeader(not_leader), None),
        },
    };
    let reply = AdministerReply { reply: Some(reply) };
    if let Some(reserved) = &mut reserved {
        reserved.resize(2 * reply.encoded_len());
    }
    Ok((reply, reserved))
}

/// Answers the requests of one follower as they arrive, in any order. Replies that are ready at the same time
/// travel in one message.
///
/// A request that has to wait continues in a task of its own: this function polls nothing while the follower
/// does not read, and numbers that were taken must not wait for that.
async fn answer_requests(
    context: Arc<NodeContext>,
    mut requests: impl Stream<Item = Result<ForwardRequests, Status>> + Send + Unpin,
    replies: mpsc::Sender<Result<ReplyBatch, Status>>,
) {
    let mut received = ReceivedRequests::default();
    let mut is_first = true;
    let rpc_handler = context.services.of_group.rpc_handler();
    loop {
        while let Some(Some(done)) = received.working.next().now_or_never() {
            match done {
                Ok(reply) => received.ready.push_back(reply),
                // The task panicked. The follower loses the stream, and forwards its requests anew. It does not forward gapless
                // ones without an id: their callers are told that the outcome is unknown.
                Err(error) => return tracing::error!(%error, "a forwarded request failed"),
            }
        }
        if !received.ready.is_empty() {
            let batch = Ok(next_batch(&mut received.ready));
            if replies.send(batch).await.is_err() {
                return;
            }
            continue;
        }
        tokio::select! {
            biased;
            Some(done) = received.working.next(), if !received.working.is_empty() => match done {
                Ok(reply) => received.ready.push_back(reply),
                Err(error) => return tracing::error!(%error, "a forwarded request failed"),
            },
            message = requests.next() => {
                let checked = message.map(|message| {
                    let message = message?;
                    rpc_handler.check_header(message.header.as_ref())?;
                    Ok::<_, Status>(message.requests)
                });
                match checked {
                    Some(Ok(asked)) => received.begin(&context, asked).await,
                    Some(Err(status)) if is_first => {
                        // Fails only if the follower has closed the stream.
                        let _ = replies.send(Err(status)).await;
                        return;
                    }
                    // The earlier requests may have been carried out: no refusal may say that nothing was done.
                    Some(Err(_)) | None => return,
                }
                is_first = false;
            }
        }
    }
}

/// The requests of one follower that wait, and the replies that are not sent yet.
#[derive(Default)]
struct ReceivedRequests {
    working: FuturesUnordered<AbortOnDropHandle<MeteredReply>>,
    ready: VecDeque<MeteredReply>,
    last_caller: LastCaller,
}

impl ReceivedRequests {
    /// Begins to answer the requests of one message.
    async fn begin(&mut self, context: &Arc<NodeContext>, requests: Vec<ForwardRequest>) {
        let mut keys = 0;
        for request in requests {
            let caller = self.last_caller.of(context, &request);
            let (cost, mut answering) = answering(context, caller, request);
            keys += cost;
            match (&mut answering).now_or_never() {
                Some(reply) => self.ready.push_back(reply),
                None => self.working.push(AbortOnDropHandle::new(tokio::spawn(answering))),
            }
            if keys >= KEYS_AT_ONCE {
                keys = 0;
                tokio::task::yield_now().await;
            }
        }
    }
}

/// The caller of the last request: requests of one caller often follow one another, in many messages.
#[derive(Default)]
struct LastCaller {
    caller: Option<Arc<Caller>>,
    /// As its request names it, with its network. `None`: the next request is looked at anew, whoever it names.
    named: Option<(Option<peer::Asker>, Option<u64>)>,
}

impl LastCaller {
    /// The caller of a request; `None` if the request counts for nobody.
    fn of(&mut self, context: &NodeContext, request: &ForwardRequest) -> Option<Arc<Caller>> {
        let is_same = |(by, network): &(_, _)| (by, *network) == (&request.by, request.caller);
        if !self.named.as_ref().is_some_and(is_same) {
            // A request whose caller cannot be read is refused.
            let by = Asker::from_wire(request.by.clone(), request.caller).ok();
            self.caller = by.and_then(|by| context.caller_of(&by, request.caller));
            // A token that is not known yet may be by the next request.
            let is_known = self.caller.as_ref().is_some_and(|one| one.is_principal());
            let stays = is_known || request.by.is_none();
            self.named = stays.then(|| (request.by.clone(), request.caller));
        }
        self.caller.clone()
    }
}

/// Takes as many ready replies as fit one message.
fn next_batch(ready: &mut VecDeque<MeteredReply>) -> ReplyBatch {
    let mut batch = ReplyBatch::default();
    let mut bytes = 0;
    while bytes < MERGED_BYTES_MAX
        && let Some(MeteredReply { reply, reservation }) = ready.pop_front()
    {
        bytes += reply.encoded_len();
        batch.replies.push(reply);
        batch._reservations.extend(reservation);
    }
    batch
}

/// How a request of one kind is answered.
struct AnsweredMethod {
    method: &'static str,
    answer: AnswerFn,
}

/// Finds the cost of a request, in keys, and the function that answers it.
type AnswerFn = fn(Arc<NodeContext>, Option<Arc<Caller>>, ForwardRequest) -> (usize, ReplyFuture);

type ReplyFuture = BoxFuture<'static, MeteredReply>;

/// All kinds.
static SEQUENCES: &[AnsweredMethod] = include!(concat!(env!("OUT_DIR"), "/sequences.rs"));

const fn sequence<Q: SequenceRequest>() -> AnsweredMethod {
    AnsweredMethod {
        method: Q::METHOD,
        answer: |context, caller, mut request| {
            // The bytes are a part of the frame in which others came, too: a request that waits must not keep it.
            let message = Q::decode(mem::take(&mut request.message));
            let cost = message.as_ref().map_or(1, SequenceRequest::cost);
            let answering = answer_request(context, message, request);
            (cost, Caller::scope(caller, answering).boxed())
        },
    }
}

/// The cost of a request, in keys, and the future of its reply.
fn answering(
    context: &Arc<NodeContext>, caller: Option<Arc<Caller>>, request: ForwardRequest,
) -> (usize, ReplyFuture) {
    let kind = SEQUENCES.iter().find(|kind| kind.method.as_bytes() == &request.method[..]);
    match kind {
        Some(kind) => (kind.answer)(context.clone(), caller, request),
        None => {
            let method = request.method.escape_ascii();
            let refusal = refusal!(Unsupported, "no leader of this release answers {method}");
            let reply = reply_of(context, request.id, Err(refusal.into()));
            (1, future::ready(reply).boxed())
        }
    }
}

/// Answers one forwarded request, and records how long it took.
#[tracing::instrument(level = "debug", name = "forwarded", skip_all, fields(id = request.id))]
async fn answer_request<Q: SequenceRequest>(
    context: Arc<NodeContext>, message: Result<Q, DecodeError>, request: ForwardRequest,
) -> MeteredReply {
    let arrived = Instant::now();
    let deadline = deadline_in(request.left_ms, &context.config);
    let namespace = request.namespace_id.map(NamespaceId);
    let origin = Origin::Peer { namespace, again: false };
    let answered = match message {
        Ok(message) => {
            let by = Asker::from_wire(request.by, request.caller);
            let (traces, said) = (&context.traces, request.trace_parent);
            let asked = by.and_then(|by| CheckedRequest::of_peer(message, by, traces, said));
            pin!(answer(&context, &asked, origin, deadline)).await
        }
        Err(error) => Err(refusal!(InvalidRequest, "{}: {error}", Q::METHOD).into()),
    };
    let spans = &context.metrics.forwarded_request_seconds;
    spans.observe(arrived.elapsed(), 1);
    let answered = answered.map(|(answer, reserved)| (answer.encode_to_vec().into(), reserved));
    reply_of(&context, request.id, answered)
}

fn reply_of(
    context: &NodeContext, id: u64, answered: Attempt<(Bytes, Option<Reservation>)>,
) -> MeteredReply {
    use forward_reply::Reply;
    let (reply, reservation) = match answered {
        Ok((answer, reservation)) => (Reply::Answer(answer), reservation),
        Err(unanswered) => match error_or_not_leader(context, unanswered) {
            Ok(error) => (Reply::Error(error), None),
            Err(not_leader) => (Reply::NotLeader(not_leader), None),
        },
    };
    MeteredReply { reply: ForwardReply { id, reply: Some(reply) }, reservation }
}

/// The reply to the follower instead of an answer: why the request fails, or who leads. The latter says whether the follower
/// takes the namespace for another one, and whether this node may have carried the request out while it led.
fn error_or_not_leader(
    context: &NodeContext, unanswered: Unanswered,
) -> Result<Failure, NotLeader> {
    let (other_namespace, may_be_done) = match unanswered {
        Unanswered::Refused(refusal) => return Ok(refusal.into()),
        Unanswered::Elsewhere(so_far) => (false, so_far == SoFar::MayBeDone),
        Unanswered::Mistaken => (true, false),
    };
    let leadership = context.group.leadership();
    let now = leadership.borrow();
    Err(NotLeader { term: now.term, leader: leader_of(&now), other_namespace, may_be_done })
}
