//! `ratchet.v1.Ids`: ids, which this node makes, and worker ids, which the leader leases.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use super::{administer::administer, made_ids};
use crate::{
    node::NodeContext,
    proto::{
        peer::{administer_reply::Reply, administer_request::Request as Administer},
        v1::{
            LeaseWorkerRequest, ListWorkersRequest, ListWorkersResponse, NextIdsRequest,
            NextIdsResponse, ReleaseWorkerRequest, ReleaseWorkerResponse, TakeWorkerBackRequest,
            TakeWorkerBackResponse, WorkerLease, ids_server::Ids,
        },
    },
};

/// The service `ratchet.v1.Ids`.
pub struct IdsService {
    context: Arc<NodeContext>,
    stop: CancellationToken,
}

impl IdsService {
    /// Creates the service of the node that `context` belongs to. Its streams end at `stop`.
    pub fn new(context: Arc<NodeContext>, stop: CancellationToken) -> Self {
        IdsService { context, stop }
    }
}

#[tonic::async_trait]
impl Ids for IdsService {
    async fn next(
        &self, request: Request<NextIdsRequest>,
    ) -> Result<Response<NextIdsResponse>, Status> {
        made_ids::next(&self.context, request).await
    }

    type NextManyStream = made_ids::Answers;

    async fn next_many(
        &self, messages: Request<Streaming<NextIdsRequest>>,
    ) -> Result<Response<Self::NextManyStream>, Status> {
        let (context, stop) = (self.context.clone(), self.stop.clone());
        let answers = made_ids::next_many(context, stop, messages.into_inner());
        Ok(Response::new(answers))
    }

    async fn lease_worker(
        &self, request: Request<LeaseWorkerRequest>,
    ) -> Result<Response<WorkerLease>, Status> {
        let answer = administer(&self.context, request, Administer::LeaseWorker, |reply| {
            let Reply::WorkerLease(lease) = reply else {
                return None;
            };
            Some(lease)
        });
        answer.await
    }

    async fn release_worker(
        &self, request: Request<ReleaseWorkerRequest>,
    ) -> Result<Response<ReleaseWorkerResponse>, Status> {
        let answer = administer(&self.context, request, Administer::ReleaseWorker, |reply| {
            let Reply::ReleasedWorker(released) = reply else {
                return None;
            };
            Some(released)
        });
        answer.await
    }

    async fn list_workers(
        &self, request: Request<ListWorkersRequest>,
    ) -> Result<Response<ListWorkersResponse>, Status> {
        let answer = administer(&self.context, request, Administer::ListWorkers, |reply| {
            let Reply::Workers(workers) = reply else {
                return None;
            };
            Some(workers)
        });
        answer.await
    }
    async fn take_worker_back(
        &self, request: Request<TakeWorkerBackRequest>,
    ) -> Result<Response<TakeWorkerBackResponse>, Status> {
        let answer = administer(&self.context, request, Administer::TakeWorkerBack, |reply| {
            let Reply::TakenWorkerBack(taken) = reply else {
                return None;
            };
            Some(taken)
        });
        answer.await
    }
}
