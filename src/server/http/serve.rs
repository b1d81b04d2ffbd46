//! Asks the node, and records how long that took and whether it failed. The build says which function has which message
//! answered (`build.rs`).
//!
//! Invariant: the memory of a long answer is reserved before anything is waited for, and held until it is sent.

use std::{mem, sync::Arc};

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::Response,
};
use futures::FutureExt;
use tokio::time::Instant;

use super::request::{Due, Node};
use crate::{
    metrics::Door,
    node::{Asked, NodeContext, Origin, Reservation, SequenceRequest},
    proto::{
        Code, Operation, Refusal, refusal,
        v1::{NextIdsRequest, NextIdsResponse, NextManyRequest, NextManyResponse},
    },
    server::{errors::count_response_errors, made_ids},
};

/// The most keys of a request.
const KEYS_MAX: usize = 4_096;
/// How many bytes an answer has for each key.
const KEY_BYTES: usize = 100;

/// An answer, and the memory that is reserved for it, if it is much.
type Answered<A> = Result<(A, Option<Reservation>), Refusal>;

/// The node's answer to a request.
///
/// # Errors
/// Whatever the node, or the leader, refuses it for.
pub async fn serve<Q: SequenceRequest>(
    context: &Arc<NodeContext>, asked: Asked<Q>, due: Due,
) -> Result<Q::Answer, Refusal> {
    Ok(context.leader.serve(&asked, Origin::Client, due.deadline).await?)
}

/// Has an operation carried out.
///
/// # Errors
/// Whatever it is refused for.
pub async fn operation<Q: Operation>(
    context: &Arc<NodeContext>, message: Q, due: Due,
) -> Answered<Q::Answer> {
    Ok(context.leader.ask(&message, due.deadline).await?)
}

/// Answers a message out of the sequences of a namespace.
///
/// # Errors
/// INVALID_ARGUMENT if it is malformed or has too many keys; RESOURCE_EXHAUSTED if other requests hold the memory; and whatever
/// the node, or the leader, refuses it for.
pub async fn sequence<Q: SequenceRequest>(
    context: &Arc<NodeContext>, message: Q, due: Due,
) -> Answered<Q::Answer> {
    let asked = Asked::new(message)?;
    let keys = asked.keys();
    if keys > KEYS_MAX {
        return Err(refusal!(
            InvalidRequest,
            "the message has {keys} keys; over HTTP give at most {KEYS_MAX}"
        ));
    }
    let namespace = asked.namespace().to_owned();
    let reserved = context.request_memory.reserve_if_many(keys * KEY_BYTES);
    let reserved = reserved.map_err(|busy| {
        // What nobody could answer is told so, however many others wait.
        let known = context.leader.key_kind(&namespace, due.deadline).now_or_never();
        known.and_then(Result::err).map_or(busy, Refusal::from)
    })?;
    Ok((serve(context, asked, due).await?, reserved))
}

/// Answers a message that others send on a stream. An error of a key is counted, as it is there.
///
/// # Errors
/// As [`sequence`].
pub async fn one_of_stream(
    context: &Arc<NodeContext>, mut message: NextManyRequest, due: Due,
) -> Answered<NextManyResponse> {
    if message.timeout_ms > 0 {
        let why = "timeout_ms is for streams; here the header ratchet-timeout-ms says how long the caller waits";
        return Err(refusal!(InvalidRequest, "{why}"));
    }
    let id = mem::take(&mut message.id);
    let (mut answer, reserved) = sequence(context, message, due).await?;
    answer.id = id;
    count_response_errors(&context.metrics, Door::http, &answer);
    Ok((answer, reserved))
}

/// Makes ids.
///
/// # Errors
/// Those of [`Ids::next`](crate::node::Ids::next).
pub async fn ids(
    context: &Arc<NodeContext>, message: NextIdsRequest, due: Due,
) -> Answered<NextIdsResponse> {
    let (made, reserved) = context.ids.next(&message, due.deadline).await?;
    Ok((made_ids::answer(made, message.as_text), Some(reserved)))
}

/// Waits for an answer, and records how long it took.
pub async fn timed<A>(context: &NodeContext, answering: impl Future<Output = A>) -> A {
    let arrived = Instant::now();
    let answer = answering.await;
    context.metrics.request_seconds.of(Door::http).observe(arrived.elapsed(), 1);
    answer
}

/// Answers a request of a path whose answers are [`timed`].
pub async fn time(State(context): Node, request: Request, next: Next) -> Response {
    timed(&context, next.run(request)).await
}

/// Counts the problem that an answer tells, if it tells one.
pub async fn count(State(context): Node, answer: Response) -> Response {
    if let Some(code) = answer.extensions().get::<Code>() {
        context.metrics.errors.of(Door::http).add(*code, 1);
    }
    answer
}
