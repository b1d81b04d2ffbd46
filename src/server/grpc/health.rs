//! `grpc.health.v1.Health`: the node's readiness over gRPC.

use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use tonic::{Request, Response, Status};
use tonic_health::pb::{
    HealthCheckRequest, HealthCheckResponse, health_check_response::ServingStatus,
    health_server::Health,
};

use super::Services;
use crate::proto::SERVICES;

#[tonic::async_trait]
impl Health for Services {
    type WatchStream = BoxStream<'static, Result<HealthCheckResponse, Status>>;

    async fn check(
        &self, request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        check_service(&request.get_ref().service)?;
        Ok(Response::new(serving(self.context.readiness.check().is_ok())))
    }

    async fn watch(
        &self, request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        check_service(&request.get_ref().service)?;
        let ready = self.context.readiness.watch();
        // Anybody may ask for the health. A caller that shows a token or a certificate is told for as long as that is good.
        let by = Services::asker(&request);
        let is_known = self.context.services.access.id_of(&by).is_some();
        // The state is what was said last: only a change is said.
        let said = stream::unfold((ready, None), |(mut ready, last)| async move {
            let fits = |now: &bool| Some(*now) != last;
            let now = ready.wait_for(fits).await.ok()?;
            Some((serving(now), (ready, Some(now))))
        });
        let said = match is_known {
            true => self.while_known(by, said).boxed(),
            false => said.map(Ok).boxed(),
        };
        Ok(Response::new(self.watched(said, self.end_of(&request))))
    }
}

fn serving(is_ready: bool) -> HealthCheckResponse {
    let status = match is_ready {
        true => ServingStatus::Serving,
        false => ServingStatus::NotServing,
    };
    HealthCheckResponse { status: status.into() }
}

/// Checks that there is such a service. The empty name means the whole node. They share one state: all are ready, or none.
fn check_service(name: &str) -> Result<(), Status> {
    if name.is_empty() || SERVICES.contains(&name) {
        return Ok(());
    }
    Err(Status::not_found(format!(
        "there is no service {name:?} on this port; ask for one of {SERVICES:?}, or with the empty name for \
         the node"
    )))
}
