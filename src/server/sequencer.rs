//! `ratchet.v1.Sequencer`, and the health service.

use std::{sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};
use tonic_health::{ServingStatus, server::HealthReporter};

use super::deadline::deadline_of;
use crate::{
    node::{Ask, Failure, Origin, Shared},
    proto::v1::{
        CurrentRequest, CurrentResponse, NextRequest, NextResponse, sequencer_server::Sequencer,
    },
};

/// The service.
pub struct Door(pub Arc<Shared>);

impl Door {
    async fn ask<A: Ask>(&self, request: Request<A>) -> Result<Response<A::Answer>, Status> {
        let default = Duration::from_millis(self.0.config.request_timeout_ms);
        let deadline = deadline_of(&request, default);
        let answer = self
            .0
            .ask(request.into_inner(), Origin::Client, deadline)
            .await;
        answer.map(Response::new).map_err(to_client)
    }
}

/// What a client is told.
pub fn to_client(failure: Failure) -> Status {
    match failure {
        Failure::Status(status) => status,
        // Only a peer's request ends so.
        Failure::NotLeader(_) => Status::internal("a client's request was not forwarded"),
    }
}

#[tonic::async_trait]
impl Sequencer for Door {
    async fn next(&self, request: Request<NextRequest>) -> Result<Response<NextResponse>, Status> {
        self.ask(request).await
    }

    async fn current(
        &self,
        request: Request<CurrentRequest>,
    ) -> Result<Response<CurrentResponse>, Status> {
        self.ask(request).await
    }
}

/// Says SERVING while a leader is known, until the node stops.
pub async fn report_health(shared: Arc<Shared>, health: HealthReporter, stop: CancellationToken) {
    let mut leadership = shared.group.leadership();
    loop {
        let status = match leadership.borrow_and_update().leader {
            Some(_) => ServingStatus::Serving,
            None => ServingStatus::NotServing,
        };
        for service in ["", "ratchet.v1.Sequencer", "ratchet.v1.Admin"] {
            health.set_service_status(service, status).await;
        }
        tokio::select! {
            () = stop.cancelled() => return,
            changed = leadership.changed() => if changed.is_err() { return },
        }
    }
}
