//! The echo: a server whose handlers do nothing, to compare with. It speaks gRPC by plain tonic, and HTTP by plain axum.

use std::{
    io::{BufRead, BufReader, Write},
    process::Command,
};

use axum::{Router, http::header::CONTENT_TYPE, routing::post, serve::ListenerExt};
use futures::{StreamExt, stream::BoxStream};
use tokio::net::TcpListener;
use tonic::{Request, Response, Status, Streaming, transport::server::TcpIncoming};

use crate::{
    child::{Directory, Process, this_program},
    error::Error,
    target::{Server, Target},
};
use api::{
    CurrentManyRequest, CurrentManyResponse, CurrentRequest, CurrentResponse, ExportRequest,
    ExportResponse, NextManyRequest, NextManyResponse, NextRequest, NextResponse, RaiseManyRequest,
    RaiseManyResponse, RaiseRequest, RaiseResponse, RaiseSectionsRequest, Route, WatchRouteRequest,
    ids_server::IdsServer,
    sequencer_server::{Sequencer, SequencerServer},
};

mod ids;

/// The server side of the public API.
mod api {
    // The echo does not answer every method.
    #![allow(missing_docs, unreachable_pub, dead_code)]
    tonic::include_proto!("ratchet.v1");
}

/// What HTTP requests are answered with. A node's answer is as long, for a number of five digits.
const RANGE: &str = r#"{"first":"10000","last":"10000","increment":"1"}"#;

/// Serves, and prints the addresses: of gRPC, and of HTTP.
///
/// # Errors
/// If it cannot listen.
pub async fn serve() -> Result<(), Error> {
    let failed = |error: std::io::Error| Error::other(format!("the echo: {error}"));
    let grpc = TcpListener::bind("127.0.0.1:0").await.map_err(failed)?;
    let http = TcpListener::bind("127.0.0.1:0").await.map_err(failed)?;
    let mut out = std::io::stdout();
    for listener in [&grpc, &http] {
        writeln!(out, "{}", listener.local_addr().map_err(failed)?).map_err(failed)?;
    }
    out.flush().map_err(failed)?;
    let incoming = TcpIncoming::from(grpc).with_nodelay(Some(true));
    let grpc = tonic::transport::Server::builder()
        .max_concurrent_streams(1_024)
        .add_service(SequencerServer::new(Echo))
        .add_service(IdsServer::new(Echo))
        .serve_with_incoming(incoming);
    let answer = async || ([(CONTENT_TYPE, "application/json")], RANGE);
    let routes = Router::new().route("/v1/namespaces/{namespace}/keys/{key}", post(answer));
    let http = http.tap_io(|stream| {
        // It fails if the caller has gone, which the server notices by itself.
        let _ = stream.set_nodelay(true);
    });
    tokio::select! {
        ended = grpc => ended.map_err(|error| Error::other(format!("the echo: {error}"))),
        ended = axum::serve(http, routes) => ended.map_err(failed),
    }
}

/// Starts the echo as a process of its own.
///
/// # Errors
/// If it does not start.
pub async fn start(directory: &Directory) -> Result<Target, Error> {
    let mut command = Command::new(this_program()?);
    let mut process = Process::start(directory, "echo", command.arg("echo"), true)?;
    let lines = process.output().map(|output| BufReader::new(output).lines());
    // It prints both lines as soon as it listens.
    let mut lines = lines.into_iter().flatten();
    let mut address = || match lines.next() {
        Some(Ok(address)) => Ok(address),
        _ => Err(process.complaint("does not answer")),
    };
    let (grpc, http) = (address()?, address()?);
    let server = Server { http: Some(http), process: Some(process), ..Server::new(1, grpc) };
    Ok(Target::new("echo", vec![server], 1))
}

struct Echo;

#[tonic::async_trait]
impl Sequencer for Echo {
    type NextManyStream = BoxStream<'static, Result<NextManyResponse, Status>>;

    async fn next(&self, _request: Request<NextRequest>) -> Result<Response<NextResponse>, Status> {
        Ok(Response::new(NextResponse { first: 1, last: 1, increment: 1, route: None }))
    }

    async fn next_many(
        &self, requests: Request<Streaming<NextManyRequest>>,
    ) -> Result<Response<Self::NextManyStream>, Status> {
        let answers = requests.into_inner().map(|request| {
            let NextManyRequest { id, ids, .. } = request?;
            Ok(NextManyResponse { id, firsts: ids, increment: 1, ..NextManyResponse::default() })
        });
        Ok(Response::new(answers.boxed()))
    }

    async fn current(
        &self, _request: Request<CurrentRequest>,
    ) -> Result<Response<CurrentResponse>, Status> {
        Err(Status::unimplemented("the echo has no sequences"))
    }

    async fn raise(&self, _: Request<RaiseRequest>) -> Result<Response<RaiseResponse>, Status> {
        Err(Status::unimplemented("the echo has no sequences"))
    }

    async fn raise_many(
        &self, _: Request<RaiseManyRequest>,
    ) -> Result<Response<RaiseManyResponse>, Status> {
        Err(Status::unimplemented("the echo has no sequences"))
    }

    async fn raise_sections(
        &self, _: Request<RaiseSectionsRequest>,
    ) -> Result<Response<RaiseManyResponse>, Status> {
        Err(Status::unimplemented("the echo has no sequences"))
    }

    async fn current_many(
        &self, _: Request<CurrentManyRequest>,
    ) -> Result<Response<CurrentManyResponse>, Status> {
        Err(Status::unimplemented("the echo has no sequences"))
    }

    type ExportStream = BoxStream<'static, Result<ExportResponse, Status>>;

    async fn export(
        &self, _: Request<ExportRequest>,
    ) -> Result<Response<Self::ExportStream>, Status> {
        Err(Status::unimplemented("the echo has no sequences"))
    }

    type WatchRouteStream = BoxStream<'static, Result<Route, Status>>;

    async fn watch_route(
        &self, _request: Request<WatchRouteRequest>,
    ) -> Result<Response<Self::WatchRouteStream>, Status> {
        Err(Status::unimplemented("the echo has no leader"))
    }
}
