//! Has the node answer messages, and records how long that took and whether it failed. The build chooses the function for each
//! message (`build.rs`).
//!
//! Invariant: the memory of a long answer is reserved before the first wait, and held until it is sent.

use std::{mem, pin::pin, sync::Arc};

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::Response,
};
use futures::FutureExt;
use tokio::time::Instant;

use super::{
    bodies::HttpAnswer,
    headers::{ContextState, Due},
    message::of_kind,
};
use crate::{
    metrics::Interface,
    node::{
        CheckedRequest, Guarded, NEXT_IDS, NodeContext, Origin, Reservation, SequenceRequest,
        check_ids,
    },
    proto::{
        Code, Operation, Refusal, refusal, refuse,
        v1::{NextIdsRequest, NextIdsResponse, NextManyRequest, NextManyResponse},
    },
    server::grpc::{errors::count_response_errors, ids},
};

/// The most keys of a request.
const KEYS_MAX: usize = 4_096;
/// How many bytes an answer has for each key.
const KEY_BYTES: usize = 100;

/// An answer, and the memory that is reserved for it if it is long.
type Answered<A> = Result<(A, Option<Reservation>), Refusal>;

/// The node's answer to a request.
///
/// # Errors
/// Any refusal of the node or of the leader.
pub async fn serve<Q: SequenceRequest>(
    context: &Arc<NodeContext>, asked: &CheckedRequest<Q>, due: &Due,
) -> Result<Q::Answer, Refusal> {
    Ok(pin!(context.numbers.serve(asked, Origin::Client, due.deadline)).await?)
}

/// Has an operation carried out.
///
/// # Errors
/// Any refusal of the node or of the leader.
pub async fn operation<Q: Operation>(
    context: &Arc<NodeContext>, message: Q, due: &Due,
) -> Answered<Q::Answer> {
    let span = context.traces.of_caller(Q::METHOD, due.trace.clone());
    let asking = context.operations.ask_in(span.as_deref(), &message, &due.by, due.deadline);
    asking.await
}

/// Answers a message out of the sequences of a namespace.
///
/// # Errors
/// INVALID_ARGUMENT if it is malformed or has too many keys; RESOURCE_EXHAUSTED if other requests hold the memory; and any
/// refusal of the node or of the leader.
pub async fn sequence<Q: SequenceRequest>(
    context: &Arc<NodeContext>, message: Q, due: &Due,
) -> Answered<Q::Answer> {
    let (by, trace) = (due.by.clone(), due.trace.clone());
    let asked = CheckedRequest::of_caller(message, by, &context.traces, trace)?;
    let keys = asked.keys();
    if keys > KEYS_MAX {
        let why = refusal!(
            InvalidRequest,
            "the message has {keys} keys; over HTTP give at most {KEYS_MAX}"
        );
        asked.refused(&why);
        return Err(why);
    }
    let reserved = context.request_memory.reserve_if_many(keys * KEY_BYTES);
    let reserved = reserved.map_err(|busy| {
        // A caller whose request is refused in any case is told that, and not that the node is busy.
        let known =
            context.namespaces.key_kind(asked.wanted(), &due.by, due.deadline).now_or_never();
        let why = known.and_then(Result::err).unwrap_or(busy);
        asked.refused(&why);
        why
    })?;
    Ok((pin!(serve(context, &asked, due)).await?, reserved))
}

/// Answers a message about one key. A caller that is not let in is told that first, whatever is wrong with the message.
///
/// # Errors
/// INVALID_ARGUMENT if the message is malformed; RESOURCE_EXHAUSTED if other requests hold the memory; and any refusal of the
/// node or of the leader.
pub async fn sequence_of_key<Q: SequenceRequest>(
    context: &Arc<NodeContext>, message: Q, due: &Due,
) -> Answered<Q::Answer> {
    if let Err(wrong) = message.check() {
        context.admission.admit(&due.by, message.wanted(), due.deadline).await?;
        return Err(wrong);
    }
    pin!(sequence(context, message, due)).await
}

/// Answers a message that gRPC clients send on a stream. The errors of single keys are counted, as they are on a stream.
///
/// # Errors
/// INVALID_ARGUMENT if the message is malformed or has too many keys; RESOURCE_EXHAUSTED if other requests hold the memory; and
/// any refusal of the node or of the leader.
pub async fn one_of_stream(
    context: &Arc<NodeContext>, mut message: NextManyRequest, due: &Due,
) -> Answered<NextManyResponse> {
    if message.timeout_ms > 0 {
        let why = "timeout_ms is for streams; here the header ratchet-timeout-ms says how long the caller waits";
        refuse!(InvalidRequest, "{why}");
    }
    if message.traceparent.is_some() {
        let why = "traceparent is for streams; here the header traceparent says which span the request is a part of";
        refuse!(InvalidRequest, "{why}");
    }
    let id = mem::take(&mut message.id);
    let (mut answer, reserved) = sequence(context, message, due).await?;
    answer.id = id;
    count_response_errors(&context.metrics, Interface::http, &answer);
    Ok((answer, reserved))
}

/// Makes ids.
///
/// # Errors
/// Those of [`Ids::next`](crate::node::Ids::next).
pub async fn ids(
    context: &Arc<NodeContext>, mut message: NextIdsRequest, due: &Due,
) -> Answered<NextIdsResponse> {
    check_ids(&message)?;
    let written = message.key.take();
    message.key = of_kind(context, message.wanted(), written, due).await?;
    let span = context.traces.of_caller(NEXT_IDS, due.trace.clone());
    let by = (&due.by, span.as_deref());
    let (made, reserved) = context.ids.next(&message, by, due.deadline).await?;
    Ok((ids::answer(made, message.as_text), Some(reserved)))
}

/// Waits for an answer, and records how long it took.
pub async fn timed<A>(context: &NodeContext, answering: impl Future<Output = A>) -> A {
    let arrived = Instant::now();
    let answer = answering.await;
    observe(context, arrived);
    answer
}

/// Records how long an answer took.
pub(super) fn observe(context: &NodeContext, arrived: Instant) {
    context.metrics.request_seconds.of(Interface::http).observe(arrived.elapsed(), 1);
}

/// Answers a request of a path, and records how long that took.
pub async fn time(State(context): ContextState, request: Request, next: Next) -> Response {
    timed(&context, next.run(request)).await
}

/// Counts the problem that an answer tells of, if there is one.
pub fn count(context: &NodeContext, answer: &HttpAnswer) {
    if let Some(code) = answer.extensions().get::<Code>() {
        context.metrics.errors.of(Interface::http).add(*code, 1);
    }
}
