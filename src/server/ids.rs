//! `ratchet.v1.Ids`: ids, which this node makes, and worker ids, which the leader leases.

use tonic::{Request, Response, Status, Streaming};

use super::{administer::service, made_ids, services::Services};
use crate::proto::{
    peer::administer_request::Request as Administer,
    v1::{self, NextIdsRequest, NextIdsResponse, ids_server::Ids},
};

service! {
    impl Ids for Services {
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
    }
    lease_worker: LeaseWorkerRequest => LeaseWorker, WorkerLease;
    release_worker: ReleaseWorkerRequest => ReleaseWorker, ReleaseWorkerResponse;
    list_workers: ListWorkersRequest => ListWorkers, ListWorkersResponse;
    take_worker_back: TakeWorkerBackRequest => TakeWorkerBack, TakeWorkerBackResponse;
}
