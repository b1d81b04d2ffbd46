//! What serves a node's ports. [`Services`] implements each service of gRPC in a file of that service's.

use std::sync::Arc;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    node::{Answered, Failure, NodeContext, Origin, Reservation, SequenceRequest},
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

/// The message that answers a request, if that could be read. Also returns the memory that is reserved for it.
///
/// # Errors
/// [`Failure`]: a refusal if the message is malformed or the request fails, or who leads instead.
pub async fn answer<Q: SequenceRequest, R: From<Answered<Q::Answer>>>(
    context: &Arc<NodeContext>, request: Result<Q, Refusal>, origin: Origin, deadline: Instant,
) -> Result<(R, Option<Reservation>), Failure> {
    let request = request?;
    let reserved = context.request_memory.reserve_for_answer(request.keys())?;
    let answer = context.serve(request, origin, deadline).await?;
    Ok((answer.into(), reserved))
}
