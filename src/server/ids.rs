//! `ratchet.v1.Ids`: worker ids. Each method passes its request to the node, which has the leader carry it out.

use std::sync::Arc;

use tonic::{Request, Response, Status};

use super::administer::administer;
use crate::{
    node::NodeContext,
    proto::{
        peer::{administer_reply::Reply, administer_request::Request as Administer},
        v1::{
            LeaseWorkerRequest, ListWorkersRequest, ListWorkersResponse, ReleaseWorkerRequest,
            ReleaseWorkerResponse, WorkerLease, ids_server::Ids,
        },
    },
};

/// The service `ratchet.v1.Ids`.
pub struct IdsService {
    context: Arc<NodeContext>,
}

impl IdsService {
    /// Creates the service of the node that `context` belongs to.
    pub fn new(context: Arc<NodeContext>) -> Self {
        IdsService { context }
    }
}

#[tonic::async_trait]
impl Ids for IdsService {
    async fn lease_worker(
        &self,
        request: Request<LeaseWorkerRequest>,
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
        &self,
        request: Request<ReleaseWorkerRequest>,
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
        &self,
        request: Request<ListWorkersRequest>,
    ) -> Result<Response<ListWorkersResponse>, Status> {
        let answer = administer(&self.context, request, Administer::ListWorkers, |reply| {
            let Reply::Workers(workers) = reply else {
                return None;
            };
            Some(workers)
        });
        answer.await
    }
}
