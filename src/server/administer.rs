//! Has the leader carry out what a caller asks for.

use std::sync::Arc;

use tokio::time::Instant;
use tonic::{Request, Response, Status};

use super::{deadline::budget_of, held::response};
use crate::{
    node::{NodeContext, Origin, Reservation},
    proto::{
        Refusal,
        peer::{administer_reply::Reply, administer_request::Request as Administer},
    },
};

/// Has the leader carry out `request`. The memory that the answer holds until it is sent comes with it.
///
/// # Errors
/// As [`NodeContext::administer_for_caller`].
pub async fn administer<A: TryFrom<Reply, Error = Refusal>>(
    context: &Arc<NodeContext>, request: Administer, deadline: Instant,
) -> Result<(A, Option<Reservation>), Refusal> {
    let administering = context.administer_for_caller(request, Origin::Client, deadline);
    let (reply, reserved) = administering.await?;
    Ok((reply.try_into()?, reserved))
}

/// As [`administer`], for a gRPC call.
///
/// # Errors
/// As [`administer`], within the caller's timeout.
pub async fn call<Q, A: TryFrom<Reply, Error = Refusal>>(
    context: &Arc<NodeContext>, request: Request<Q>, wrap: impl FnOnce(Q) -> Administer,
) -> Result<Response<A>, Status> {
    let deadline = Instant::now() + budget_of(&request, &context.config);
    let (answer, reserved) = administer(context, wrap(request.into_inner()), deadline).await?;
    Ok(response(answer, reserved))
}

/// Implements a service of gRPC: some methods as they are written, and others by having the leader carry out the request, as
/// `method: Request => kind of the node's request, Answer;` says.
macro_rules! service {
    (
        impl $service:ident for $of:ident { $($written:tt)* }
        $($method:ident: $request:ident => $kind:ident, $answer:ident;)*
    ) => {
        #[tonic::async_trait]
        impl $service for $of {
            $($written)*

            $(async fn $method(
                &self,
                request: tonic::Request<v1::$request>,
            ) -> Result<tonic::Response<v1::$answer>, tonic::Status> {
                $crate::server::administer::call(&self.context, request, Administer::$kind).await
            })*
        }
    };
}

pub(super) use service;
