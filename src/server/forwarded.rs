//! Answers the requests that followers forward: a stream of sequence requests from each follower, and single
//! administrative requests.
//!
//! Invariant: a forwarded request is never forwarded again. If this node does not lead, the reply says who
//! does.

use std::{collections::VecDeque, sync::Arc};

use futures::{
    FutureExt, Stream, StreamExt, TryStreamExt,
    stream::{BoxStream, FuturesUnordered},
};
use prost::Message;
use tokio::{sync::mpsc, time::Instant};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tonic::Status;

use super::{deadline::deadline_in, services::answer};
use crate::{
    allocator::{KEYS_AT_ONCE, SECTION_COUNTS},
    node::{
        Asked, Caller, Failure, MERGED_BYTES_MAX, NodeContext, NotLed, Origin, Reservation,
        SequenceRequest, leader_of,
    },
    proto::{
        peer::{
            AdministerReply, AdministerRequest, ForwardReplies, ForwardReply, ForwardRequest,
            ForwardRequests, NotLeader, administer_reply, forward_reply, forward_request::Request,
        },
        refusal,
    },
    sequence::NamespaceId,
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

/// Answers an administrative request. The memory that the reply holds until it is sent comes with it.
///
/// # Errors
/// INVALID_ARGUMENT if the message holds no request, and the group's error if the sender is refused. A request
/// that fails is a reply.
pub async fn administer(
    context: &Arc<NodeContext>, message: AdministerRequest,
) -> Result<(AdministerReply, Option<Reservation>), Status> {
    use administer_reply::Reply;
    context.group.check_header(message.header.as_ref())?;
    let request = message
        .request
        .ok_or_else(|| Status::invalid_argument("the message holds no administrative request"))?;
    let deadline = deadline_in(message.budget_ms, &context.config);
    let origin = Origin::Peer { namespace: None };
    let caller = message.caller.map(|network| context.callers.caller(network));
    let administering = context.administer_for_caller(request, origin, deadline);
    let (reply, reserved) = match Caller::scope(caller, administering).await {
        Ok(answer) => answer,
        Err(Failure::Refused(refusal)) => (Reply::Error(refusal.into()), None),
        Err(Failure::NotLeader(why)) => (Reply::NotLeader(not_leader(&why)), None),
    };
    Ok((AdministerReply { reply: Some(reply) }, reserved))
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
    let mut working: FuturesUnordered<AbortOnDropHandle<MeteredReply>> = FuturesUnordered::new();
    let mut ready = VecDeque::new();
    // Requests of one caller often follow one another, in many messages.
    let mut caller: Option<Arc<Caller>> = None;
    loop {
        while let Some(Some(done)) = working.next().now_or_never() {
            match done {
                Ok(reply) => ready.push_back(reply),
                // The task panicked. The follower loses the stream, and forwards its requests anew.
                Err(error) => return tracing::error!(%error, "a forwarded request failed"),
            }
        }
        if !ready.is_empty() {
            let batch = Ok(next_batch(&mut ready));
            if replies.send(batch).await.is_err() {
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
                if let Err(status) = context.group.check_header(message.header.as_ref()) {
                    // Fails only if the follower has closed the stream.
                    let _ = replies.send(Err(status.into())).await;
                    return;
                }
                let mut keys = 0;
                for request in message.requests {
                    keys += match request.request {
                        Some(Request::RaiseSections(_)) => SECTION_COUNTS * keys_of(&request),
                        _ => keys_of(&request),
                    };
                    if caller.as_ref().map(|known| known.network()) != request.caller {
                        caller = request.caller.map(|network| context.callers.caller(network));
                    }
                    let answering = answer_request(context.clone(), request);
                    let mut answering = Box::pin(Caller::scope(caller.clone(), answering));
                    match (&mut answering).now_or_never() {
                        Some(reply) => ready.push_back(reply),
                        None => working.push(AbortOnDropHandle::new(tokio::spawn(answering))),
                    }
                    if keys >= KEYS_AT_ONCE {
                        keys = 0;
                        tokio::task::yield_now().await;
                    }
                }
            }
        }
    }
}

/// How many keys, or sections, a request asks for.
fn keys_of(request: &ForwardRequest) -> usize {
    match &request.request {
        Some(Request::NextMany(many)) => many.ids.len() + many.names.len(),
        Some(Request::RaiseMany(many)) => many.ids.len() + many.names.len(),
        Some(Request::CurrentMany(many)) => many.ids.len() + many.names.len(),
        Some(Request::RaiseSections(many)) => many.ids.len(),
        _ => 1,
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

/// Answers one forwarded request, and records how long it took.
#[tracing::instrument(level = "debug", name = "forwarded", skip_all, fields(id = request.id))]
async fn answer_request(context: Arc<NodeContext>, request: ForwardRequest) -> MeteredReply {
    use forward_reply::Reply;
    let arrived = Instant::now();
    let deadline = deadline_in(request.budget_ms, &context.config);
    let origin = Origin::Peer { namespace: request.namespace_id.map(NamespaceId) };
    let due = (origin, deadline);
    let answered = match request.request {
        Some(Request::Next(next)) => serve(&context, next, due, Reply::Next).await,
        Some(Request::NextMany(many)) => serve(&context, many, due, Reply::NextMany).await,
        Some(Request::Raise(raise)) => serve(&context, raise, due, Reply::Raise).await,
        Some(Request::RaiseMany(many)) => serve(&context, many, due, Reply::RaiseMany).await,
        Some(Request::RaiseSections(many)) => serve(&context, many, due, Reply::RaiseMany).await,
        Some(Request::CurrentMany(many)) => serve(&context, many, due, Reply::CurrentMany).await,
        Some(Request::Current(current)) => serve(&context, current, due, Reply::Current).await,
        None => Err(refusal!(InvalidRequest, "the forwarded message holds no request").into()),
    };
    let (reply, reservation) = answered.unwrap_or_else(|failure| match failure {
        Failure::Refused(refusal) => (Reply::Error(refusal.into()), None),
        Failure::NotLeader(why) => (Reply::NotLeader(not_leader(&why)), None),
    });
    let spans = &context.metrics.forwarded_request_seconds;
    spans.observe(arrived.elapsed(), 1);
    let reply = ForwardReply { id: request.id, reply: Some(reply) };
    MeteredReply { reply, reservation }
}

/// Tells the follower who leads, and whether it takes the namespace for another one.
fn not_leader(NotLed { now, other_namespace }: &NotLed) -> NotLeader {
    NotLeader { term: now.term, leader: leader_of(now), other_namespace: *other_namespace }
}

/// Serves the sequence request in `message`, from whom and until when `due` says. Also returns the memory that is reserved for
/// the reply.
///
/// # Errors
/// As [`answer`].
async fn serve<Q: SequenceRequest>(
    context: &Arc<NodeContext>, message: Q, (origin, deadline): (Origin, Instant),
    reply: impl FnOnce(Q::Answer) -> forward_reply::Reply,
) -> Result<(forward_reply::Reply, Option<Reservation>), Failure> {
    let asked = Asked::new(message);
    let (answer, reserved) = answer(context, &asked, origin, deadline).await?;
    Ok((reply(answer), reserved))
}
