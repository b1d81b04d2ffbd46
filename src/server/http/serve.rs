//! Asks the node, and records how long that took and whether it failed.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::Response,
};
use tokio::time::Instant;

use super::request::{Due, Node};
use crate::{
    metrics::Door,
    node::{Asked, NodeContext, Origin, SequenceRequest},
    proto::{Code, Refusal},
    sequence::OwnedKey,
    server::written,
};

/// The node's answer to a request.
///
/// # Errors
/// Whatever the node, or the leader, refuses it for.
pub async fn serve<Q: SequenceRequest>(
    context: &Arc<NodeContext>, asked: Asked<Q>, due: Due,
) -> Result<Q::Answer, Refusal> {
    Ok(context.leader.serve(&asked, Origin::Client, due.deadline).await?)
}

/// Waits for an answer, and records how long it took.
pub async fn timed(context: &NodeContext, answering: impl Future<Output = Response>) -> Response {
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

/// A key of a namespace, as it was written.
///
/// # Errors
/// If there is no such namespace, or it takes other keys.
pub async fn key(
    context: &Arc<NodeContext>, namespace: &str, written: &[u8], due: Due,
) -> Result<OwnedKey, Refusal> {
    let kind = context.leader.key_kind(namespace, due.deadline).await;
    let key = written::key(kind?, namespace, written);
    key.map(OwnedKey::from)
}
