//! Has the leader carry out what administrators ask for.

use std::sync::Arc;

use tonic::Status;

use super::request::Due;
use crate::{
    node::{NodeContext, Origin},
    proto::peer::{administer_reply::Reply, administer_request::Request},
    server::errors::to_client,
};

/// Has the leader carry out `request`.
///
/// # Errors
/// As [`NodeContext::administer`].
pub async fn administer(
    context: &Arc<NodeContext>, due: Due, request: Request,
) -> Result<Reply, Status> {
    let administering = context.administer(request, Origin::Client, due.deadline);
    administering.await.map_err(to_client)
}
