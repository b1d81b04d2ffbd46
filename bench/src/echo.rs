//! The echo: a gRPC server whose handler does nothing, to compare with.

use std::io::{BufRead, BufReader, Write};

use futures::{StreamExt, stream::BoxStream};
use tokio::net::TcpListener;
use tonic::{Request, Response, Status, Streaming, transport::server::TcpIncoming};

use crate::{
    child::{Directory, Process, this_program},
    error::Error,
    target::{Server, Target},
};
use api::{
    CurrentRequest, CurrentResponse, NextManyRequest, NextManyResponse, NextRequest, NextResponse,
    Route, WatchRouteRequest,
    sequencer_server::{Sequencer, SequencerServer},
};

/// The server side of the public API.
mod api {
    #![allow(missing_docs, unreachable_pub)]
    tonic::include_proto!("ratchet.v1");
}

/// Serves, and prints the address.
///
/// # Errors
/// If it cannot listen.
pub async fn serve() -> Result<(), Error> {
    let failed = |error: std::io::Error| Error::other(format!("the echo: {error}"));
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let mut out = std::io::stdout();
    writeln!(out, "{address}").map_err(failed)?;
    out.flush().map_err(failed)?;
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    tonic::transport::Server::builder()
        .max_concurrent_streams(1_024)
        .add_service(SequencerServer::new(Echo))
        .serve_with_incoming(incoming)
        .await
        .map_err(|error| Error::other(format!("the echo: {error}")))
}

/// Starts the echo as a process of its own.
///
/// # Errors
/// If it does not start.
pub async fn start(directory: &Directory) -> Result<Target, Error> {
    let mut process = Process::start(directory, "echo", &this_program()?, &["echo"], true)?;
    let mut address = String::new();
    if let Some(output) = process.output() {
        let mut output = BufReader::new(output);
        // The echo prints one line, as soon as it listens.
        output
            .read_line(&mut address)
            .map_err(|_| process.complaint("does not answer"))?;
    }
    if address.is_empty() {
        return Err(process.complaint("does not answer"));
    }
    let server = Server {
        id: 1,
        address: address.trim().to_owned(),
        metrics: None,
        process: Some(process),
    };
    Ok(Target::new("echo", vec![server], 1))
}

struct Echo;

#[tonic::async_trait]
impl Sequencer for Echo {
    type NextManyStream = BoxStream<'static, Result<NextManyResponse, Status>>;

    async fn next(&self, _request: Request<NextRequest>) -> Result<Response<NextResponse>, Status> {
        Ok(Response::new(NextResponse {
            first: 1,
            last: 1,
            increment: 1,
            route: None,
        }))
    }

    async fn next_many(
        &self,
        requests: Request<Streaming<NextManyRequest>>,
    ) -> Result<Response<Self::NextManyStream>, Status> {
        let answers = requests.into_inner().map(|request| {
            let NextManyRequest { id, ids, .. } = request?;
            Ok(NextManyResponse {
                id,
                firsts: ids,
                increment: 1,
                ..NextManyResponse::default()
            })
        });
        Ok(Response::new(answers.boxed()))
    }

    async fn current(
        &self,
        _request: Request<CurrentRequest>,
    ) -> Result<Response<CurrentResponse>, Status> {
        Err(Status::unimplemented("the echo has no sequences"))
    }

    type WatchRouteStream = BoxStream<'static, Result<Route, Status>>;

    async fn watch_route(
        &self,
        _request: Request<WatchRouteRequest>,
    ) -> Result<Response<Self::WatchRouteStream>, Status> {
        Err(Status::unimplemented("the echo has no leader"))
    }
}
