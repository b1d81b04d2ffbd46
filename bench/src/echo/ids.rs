//! The echo's ids: as many as are asked for, and all the same.

use futures::{StreamExt, stream::BoxStream};
use tonic::{Request, Response, Status, Streaming};

use super::{
    Echo,
    api::{NextIdsRequest, NextIdsResponse, ids_server::Ids},
};

fn answer(request: &NextIdsRequest) -> NextIdsResponse {
    NextIdsResponse {
        numbers: vec![1; request.count.unwrap_or(1) as usize],
        ..NextIdsResponse::default()
    }
}

#[tonic::async_trait]
impl Ids for Echo {
    type NextManyStream = BoxStream<'static, Result<NextIdsResponse, Status>>;

    async fn next(
        &self, request: Request<NextIdsRequest>,
    ) -> Result<Response<NextIdsResponse>, Status> {
        Ok(Response::new(answer(request.get_ref())))
    }

    async fn next_many(
        &self, requests: Request<Streaming<NextIdsRequest>>,
    ) -> Result<Response<Self::NextManyStream>, Status> {
        let requests = requests.into_inner();
        let answers = requests.map(|request| request.map(|request| answer(&request)));
        Ok(Response::new(answers.boxed()))
    }
}
