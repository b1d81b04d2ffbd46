//! Has the leader carry out what a gRPC call asks for.

use std::sync::Arc;

use tokio::time::Instant;
use tonic::{Request, Response, Status};

use super::{deadline::budget_of, errors::to_client, held::until_sent};
use crate::{
    node::{NodeContext, Origin, another_reply},
    proto::peer::{administer_reply::Reply, administer_request::Request as Administer},
};

/// Passes a request on, and unwraps the one kind of reply that fits.
///
/// # Errors
/// As [`NodeContext::administer_for_caller`], within the caller's timeout.
pub async fn administer<Q, A>(
    context: &Arc<NodeContext>, request: Request<Q>, wrap: impl FnOnce(Q) -> Administer,
    unwrap: impl FnOnce(Reply) -> Option<A>,
) -> Result<Response<A>, Status> {
    let deadline = Instant::now() + budget_of(&request, &context.config);
    let (reply, reserved) = context
        .administer_for_caller(wrap(request.into_inner()), Origin::Client, deadline)
        .await
        .map_err(to_client)?;
    let mut response = unwrap(reply).map(Response::new).ok_or_else(another_reply)?;
    until_sent(response.extensions_mut(), reserved);
    Ok(response)
}
