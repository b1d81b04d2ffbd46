//! `ratchet.v1.Sequencer`: numbers, and which node leads. `NextMany` is in [`super::next_many`].

use std::pin::pin;

use futures::{
    Stream, StreamExt, TryStreamExt,
    stream::{self, BoxStream},
};
use tokio::time::Instant;
use tonic::{Request, Response, Status, Streaming};

use super::{Services, answer, errors::count_stream_error, next_many::ResponseStream};
use crate::{
    metrics::Interface,
    node::{CheckedRequest, Export, Exported, Guarded, Origin, SequenceRequest, without_addresses},
    proto::{
        Refusal,
        v1::{
            CurrentManyRequest, CurrentManyResponse, CurrentRequest, CurrentResponse,
            ExportRequest, ExportResponse, NextManyRequest, NextRequest, NextResponse,
            RaiseManyRequest, RaiseManyResponse, RaiseRequest, RaiseResponse, RaiseSectionsRequest,
            Route, WatchRouteRequest, sequencer_server::Sequencer,
        },
    },
    server::{
        connections::{answer_body::EndsEarly, answer_memory::response},
        metadata::time_of_call,
        trace_headers::trace_in,
    },
};

impl Services {
    /// Serves a call of one request and one answer: has the node answer within the caller's timeout, and records how long it
    /// took.
    async fn serve<Q: SequenceRequest>(
        &self, message: Request<Q>,
    ) -> Result<Response<Q::Answer>, Status> {
        let arrived = Instant::now();
        let deadline = arrived + time_of_call(&message, &self.context.config);
        let by = Services::asker(&message);
        let trace = trace_in(&self.context, message.metadata().as_ref());
        let asked =
            CheckedRequest::of_caller(message.into_inner(), by, &self.context.traces, trace);
        let answered = pin!(answer(&self.context, &asked, Origin::Client, deadline)).await;
        let seconds = self.context.metrics.request_seconds.of(Interface::grpc);
        seconds.observe(arrived.elapsed(), 1);
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
        let (end, by) = (self.end_of(&requests), Services::asker(&requests));
        let trace = trace_in(&self.context, requests.metadata().as_ref());
        let requests = requests.into_inner();
        let answers = ResponseStream::new(self.context.clone(), (by, trace), end, requests);
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
        let deadline = Instant::now() + time_of_call(&request, &self.context.config);
        let by = Services::asker(&request);
        let name = request.into_inner().namespace;
        let export = self.context.exports.begin(&name, &by, deadline).await?;
        let (metrics, end) = (self.context.metrics.clone(), export.end());
        let messages = messages(export).map_err(Status::from);
        let messages = messages.inspect_err(move |status| count_stream_error(&metrics, status));
        let mut response = Response::new(messages.boxed());
        response.extensions_mut().insert(EndsEarly(end));
        Ok(response)
    }

    type WatchRouteStream = BoxStream<'static, Result<Route, Status>>;

    async fn watch_route(
        &self, request: Request<WatchRouteRequest>,
    ) -> Result<Response<Self::WatchRouteStream>, Status> {
        let (by, end) = (Services::asker(&request), self.end_of(&request));
        let deadline = Instant::now() + time_of_call(&request, &self.context.config);
        self.context.admission.admit(&by, request.get_ref().wanted(), deadline).await?;
        let is_told_route = by.is_told_route();
        let routes = self.context.services.members.clone().watch_route();
        let routes = routes.map(move |route| match is_told_route {
            true => route,
            false => without_addresses(route),
        });
        Ok(Response::new(self.watched(self.while_known(by, routes), end)))
    }
}

/// The messages of an export. The last one tells how many keys or sections there were.
pub fn messages(export: Export) -> impl Stream<Item = Result<ExportResponse, Refusal>> + Send {
    stream::unfold(Some((export, 0u64)), async |state| {
        let (mut export, rows) = state?;
        Some(match export.next().await {
            Err(status) => (Err(status), None),
            Ok(None) => {
                let last = ExportResponse { rows: Some(rows), ..ExportResponse::default() };
                (Ok(last), None)
            }
            Ok(Some(part)) => {
                let rows = rows + part.len() as u64;
                let mut message = ExportResponse::default();
                for (exported, number) in part {
                    match exported {
                        Exported::Id(id) => message.ids.push(id),
                        Exported::Name(name) => message.names.push(name.into_vec().into()),
                        Exported::Section { first, last } => {
                            message.first_ids.push(first);
                            message.last_ids.push(last);
                        }
                    }
                    message.numbers.push(number);
                }
                (Ok(message), Some((export, rows)))
            }
        })
    })
}
