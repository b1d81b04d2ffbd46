//! Asks the node, and records how long that took and whether it failed.

use std::sync::Arc;

use tonic::Status;

use super::{problem::Problem, request::Due};
use crate::{
    node::{NodeContext, Origin, SequenceRequest},
    sequence::OwnedKey,
    server::{errors::to_client, written},
};

/// The node's answer to a request.
///
/// # Errors
/// Whatever the node, or the leader, refuses it for.
pub async fn serve<Q: SequenceRequest>(
    context: &Arc<NodeContext>, request: Q, due: Due,
) -> Result<Q::Answer, Status> {
    let answered = context.serve(request, Origin::Client, due.deadline).await;
    Ok(answered.map_err(to_client)?.answer)
}

/// Waits for the answer, and records how long it took and whether it failed.
///
/// # Errors
/// The problem that a failure is.
pub async fn answer<A>(
    context: &NodeContext, due: Due, answering: impl Future<Output = Result<A, Status>>,
) -> Result<A, Problem> {
    let answer = Problem::of(context, answering).await;
    due.observe(context);
    answer
}

/// A key of a namespace, as it was written.
///
/// # Errors
/// If there is no such namespace, or it takes other keys.
pub async fn key(
    context: &Arc<NodeContext>, namespace: &str, written: &[u8], due: Due,
) -> Result<OwnedKey, Status> {
    let kind = context.key_kind(namespace, due.deadline).await;
    let key = written::key(kind.map_err(to_client)?, namespace, written);
    key.map(OwnedKey::from)
}
