//! `ratchet.v1.Ids`: ids, which this node makes. Worker ids are operations (`operations.rs`).

use tonic::{Request, Response, Status, Streaming};

use super::{made_ids, services::Services};
use crate::proto::v1::{NextIdsRequest, NextIdsResponse, ids_server::Ids};

#[tonic::async_trait]
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
