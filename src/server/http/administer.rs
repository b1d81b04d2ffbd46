//! Has the leader carry out what administrators ask for.

use std::sync::Arc;

use tonic::Status;

use super::request::Due;
use crate::{
    node::{NodeContext, Origin, Reservation},
    proto::peer::{administer_reply::Reply, administer_request::Request},
    server::errors::to_client,
};

/// Has the leader carry out `request`, whose answer is short.
///
/// # Errors
/// As [`NodeContext::administer_for_caller`].
pub async fn administer(
    context: &Arc<NodeContext>, due: Due, request: Request,
) -> Result<Reply, Status> {
    administer_list(context, due, request).await.map(|(reply, _)| reply)
}

/// Has the leader carry out `request`. The memory that the answer holds until it is sent comes with it.
///
/// # Errors
/// As [`NodeContext::administer_for_caller`].
pub async fn administer_list(
    context: &Arc<NodeContext>, due: Due, request: Request,
) -> Result<(Reply, Option<Reservation>), Status> {
    let administering = context.administer_for_caller(request, Origin::Client, due.deadline);
    administering.await.map_err(to_client)
}
