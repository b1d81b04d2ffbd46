//! `ratchet.v1.Sequencer`: numbers, and which node leads. `NextMany` is in [`super::stream`].

use futures::{StreamExt, TryStreamExt, stream::BoxStream};
use tokio::time::Instant;
use tonic::{Request, Response, Status, Streaming};

use super::{
    deadline::budget_of,
    export::messages,
    held::response,
    services::{Services, answer},
    stream::ResponseStream,
};
use crate::{
    metrics::Door,
    node::{Asked, Origin, SequenceRequest},
    proto::v1::{
        CurrentManyRequest, CurrentManyResponse, CurrentRequest, CurrentResponse, ExportRequest,
        ExportResponse, NextManyRequest, NextRequest, NextResponse, RaiseManyRequest,
        RaiseManyResponse, RaiseRequest, RaiseResponse, RaiseSectionsRequest, Route,
        WatchRouteRequest, sequencer_server::Sequencer,
    },
};

impl Services {
    /// Serves a call of one request and one answer: has the node answer within the caller's timeout, and records how long it
    /// took.
    async fn serve<Q: SequenceRequest>(
        &self, message: Request<Q>,
    ) -> Result<Response<Q::Answer>, Status> {
        let arrived = Instant::now();
        let deadline = arrived + budget_of(&message, &self.context.config);
        let asked = Asked::new(message.into_inner());
        let answered = answer(&self.context, &asked, Origin::Client, deadline).await;
        let spans = self.context.metrics.request_seconds.of(Door::grpc);
        spans.observe(arrived.elapsed(), 1);
        let (answer, reserved) = answered?;
        Ok(response(answer, reserved))
    }
}

#[tonic::async_trait]
impl Sequencer for Services {
    async fn next(&self, request: Request<NextRequest>) -> Result<Response<NextResponse>, Status> {
        self.serve(request).await
    }

    type NextManyStream = ResponseStream<Streaming<NextManyRequest>>;

    async fn next_many(
        &self, requests: Request<Streaming<NextManyRequest>>,
    ) -> Result<Response<Self::NextManyStream>, Status> {
        let stop = self.stop.clone().cancelled_owned();
        let answers = ResponseStream::new(self.context.clone(), stop, requests.into_inner());
        Ok(Response::new(answers))
    }

    async fn current(
        &self, request: Request<CurrentRequest>,
    ) -> Result<Response<CurrentResponse>, Status> {
        self.serve(request).await
    }

    async fn raise(
        &self, request: Request<RaiseRequest>,
    ) -> Result<Response<RaiseResponse>, Status> {
        self.serve(request).await
    }

    async fn raise_many(
        &self, request: Request<RaiseManyRequest>,
    ) -> Result<Response<RaiseManyResponse>, Status> {
        self.serve(request).await
    }

    async fn raise_sections(
        &self, request: Request<RaiseSectionsRequest>,
    ) -> Result<Response<RaiseManyResponse>, Status> {
        self.serve(request).await
    }

    async fn current_many(
        &self, request: Request<CurrentManyRequest>,
    ) -> Result<Response<CurrentManyResponse>, Status> {
        self.serve(request).await
    }

    type ExportStream = BoxStream<'static, Result<ExportResponse, Status>>;

    async fn export(
        &self, request: Request<ExportRequest>,
    ) -> Result<Response<Self::ExportStream>, Status> {
        let deadline = Instant::now() + budget_of(&request, &self.context.config);
        let name = request.into_inner().namespace;
        let export = self.context.export(&name, deadline).await?;
        Ok(Response::new(messages(export).map_err(Status::from).boxed()))
    }

    type WatchRouteStream = BoxStream<'static, Result<Route, Status>>;

    async fn watch_route(
        &self, _request: Request<WatchRouteRequest>,
    ) -> Result<Response<Self::WatchRouteStream>, Status> {
        let stop = self.stop.clone().cancelled_owned();
        let routes = self.context.services.members.clone().watch_route().take_until(stop);
        Ok(Response::new(routes.map(Ok).boxed()))
    }
}
