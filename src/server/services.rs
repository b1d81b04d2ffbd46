//! What serves a node's ports. [`Services`] implements each service of gRPC in a file of that service's.

use std::sync::Arc;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    node::{Asked, Failure, NodeContext, Origin, Reservation, SequenceRequest},
    proto::Refusal,
};

/// The services of a node.
#[derive(Clone)]
pub struct Services {
    /// The node.
    pub context: Arc<NodeContext>,
    /// Ports and streams end at this.
    pub stop: CancellationToken,
}

/// The answer to a message, if that could be checked. Also returns the memory that is reserved for it. Only borrows the
/// message: a future that is given a value holds it twice.
///
/// # Errors
/// [`Failure`]: a refusal if the message is malformed or the request fails, or who leads instead.
pub async fn answer<Q: SequenceRequest>(
    context: &Arc<NodeContext>, asked: &Result<Asked<Q>, Refusal>, origin: Origin,
    deadline: Instant,
) -> Result<(Q::Answer, Option<Reservation>), Failure> {
    let asked = asked.as_ref().map_err(Refusal::clone)?;
    let reserved = context.request_memory.reserve_for_answer(asked.keys())?;
    let answer = context.leader.serve(asked, origin, deadline).await?;
    Ok((answer, reserved))
}
