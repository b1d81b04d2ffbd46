//! The echo: a server whose handlers do nothing, to compare with. It speaks gRPC by plain tonic, and HTTP by plain axum.
//!
//! With a certificate it is the echo of a secure node. Connections are over TLS, by the same libraries (rustls with ring, under
//! tokio), with the same protocols of ALPN, and with tickets; the handshake of each is a task of its own. Of each gRPC call,
//! each stream and each HTTP request it reads the header `authorization`, and makes the SHA-256 of the token in it, once, as a
//! node does. It compares the hash with nothing: to find the token's principal, and its grants, is the node's own cost.

use std::{
    hint::black_box,
    io::{BufRead, BufReader, Write},
    process::Command,
};

use axum::{Router, extract, http::header::CONTENT_TYPE, routing::post, serve::ListenerExt};
use futures::{StreamExt, stream::BoxStream};
use ring::digest::{SHA256, digest};
use tokio::net::TcpListener;
use tokio_rustls::rustls::ServerConfig;
use tonic::{Request, Response, Status, Streaming, transport::server::TcpIncoming};

use self::tls::Shaken;
use crate::{
    child::{Directory, Process, this_program},
    error::Error,
    secrets::Secrets,
    target::{Server, Target},
    token::Token,
};
use api::{
    CurrentManyRequest, CurrentManyResponse, CurrentRequest, CurrentResponse, ExportRequest,
    ExportResponse, NextManyRequest, NextManyResponse, NextRequest, NextResponse, RaiseManyRequest,
    RaiseManyResponse, RaiseRequest, RaiseResponse, RaiseSectionsRequest, Route, WatchRouteRequest,
    ids_server::IdsServer,
    sequencer_server::{Sequencer, SequencerServer},
};

mod ids;
mod tls;

pub use tls::EchoOptions;

/// The server side of the public API.
mod api {
    // The echo does not answer every method.
    #![allow(missing_docs, unreachable_pub, dead_code)]
    tonic::include_proto!("ratchet.v1");
}

/// The answer to HTTP requests. A node's answer is as long, for a number of five digits.
const RANGE: &str = r#"{"first":"10000","last":"10000","increment":"1"}"#;
/// The path of HTTP requests.
const PATH: &str = "/v1/namespaces/{namespace}/keys/{key}";
/// The header that shows a token, and the text before the token there.
const AUTHORIZATION: &str = "authorization";
const BEARER: &[u8] = b"Bearer ";

/// Serves, and prints the addresses: of gRPC, and of HTTP.
///
/// # Errors
/// If it cannot listen, or its certificate cannot be used.
pub async fn serve(options: EchoOptions) -> Result<(), Error> {
    let tls = options.read()?;
    let failed = |error: std::io::Error| ended_with(&error);
    let grpc = TcpListener::bind("127.0.0.1:0").await.map_err(failed)?;
    let http = TcpListener::bind("127.0.0.1:0").await.map_err(failed)?;
    let mut out = std::io::stdout();
    for listener in [&grpc, &http] {
        writeln!(out, "{}", listener.local_addr().map_err(failed)?).map_err(failed)?;
    }
    out.flush().map_err(failed)?;
    match tls {
        None => serve_plain(grpc, http).await,
        Some(tls) => serve_secure(grpc, http, tls).await,
    }
}

async fn serve_plain(grpc: TcpListener, http: TcpListener) -> Result<(), Error> {
    let incoming = TcpIncoming::from(grpc).with_nodelay(Some(true));
    let grpc = routes(Echo { reads_tokens: false }).serve_with_incoming(incoming);
    let answer = async || ([(CONTENT_TYPE, "application/json")], RANGE);
    let routes = Router::new().route(PATH, post(answer));
    let http = http.tap_io(|stream| {
        // It fails if the caller has gone, which the server notices by itself.
        let _ = stream.set_nodelay(true);
    });
    tokio::select! {
        ended = grpc => ended.map_err(|error| ended_with(&error)),
        ended = axum::serve(http, routes) => ended.map_err(|error| ended_with(&error)),
    }
}

async fn serve_secure(
    grpc: TcpListener, http: TcpListener, tls: ServerConfig,
) -> Result<(), Error> {
    let incoming = Shaken::new(grpc, &tls, b"h2").map_err(|error| ended_with(&error))?;
    let http = Shaken::new(http, &tls, b"http/1.1").map_err(|error| ended_with(&error))?;
    let grpc = routes(Echo { reads_tokens: true }).serve_with_incoming(incoming.streams());
    let answer = async |request: extract::Request| {
        hash_token(request.headers().get(AUTHORIZATION).map(|value| value.as_bytes()));
        ([(CONTENT_TYPE, "application/json")], RANGE)
    };
    let routes = Router::new().route(PATH, post(answer));
    tokio::select! {
        ended = grpc => ended.map_err(|error| ended_with(&error)),
        ended = axum::serve(http, routes) => ended.map_err(|error| ended_with(&error)),
    }
}

/// The services of gRPC.
fn routes(echo: Echo) -> tonic::transport::server::Router {
    tonic::transport::Server::builder()
        .max_concurrent_streams(1_024)
        .add_service(SequencerServer::new(echo))
        .add_service(IdsServer::new(echo))
}

fn ended_with(error: &dyn std::fmt::Display) -> Error {
    Error::other(format!("the echo: {error}"))
}

/// Makes the hash of a token, as a node has to.
fn hash_token(header: Option<&[u8]>) {
    if let Some(token) = header.and_then(|header| header.strip_prefix(BEARER)) {
        black_box(digest(&SHA256, token));
    }
}

/// Starts the echo as a process of its own: the echo of a secure node if there are `secrets`, whose callers show `token`.
///
/// # Errors
/// If it does not start.
pub async fn start(
    directory: &Directory, secrets: Option<&Secrets>, token: Option<Token>,
) -> Result<Target, Error> {
    let mut command = Command::new(this_program()?);
    command.arg("echo").args(secrets.iter().flat_map(|secrets| secrets.of_echo()));
    let mut process = Process::start(directory, "echo", &command, true)?;
    let lines = process.output().map(|output| BufReader::new(output).lines());
    // It prints both lines as soon as it listens.
    let mut lines = lines.into_iter().flatten();
    let mut address = || match lines.next() {
        Some(Ok(address)) => Ok(address),
        _ => Err(process.complaint("does not answer")),
    };
    let (grpc, http) = (address()?, address()?);
    let server = Server { http: Some(http), process: Some(process), ..Server::new(1, grpc) };
    let tls = secrets.map(Secrets::of_callers);
    Ok(Target { tls, token, ..Target::new("echo", vec![server], 1) })
}

#[derive(Clone, Copy)]
struct Echo {
    reads_tokens: bool,
}

impl Echo {
    /// Reads the token of a call, if it is the echo of a secure node.
    fn read_token<T>(self, call: &Request<T>) {
        if self.reads_tokens {
            hash_token(call.metadata().get(AUTHORIZATION).map(|value| value.as_bytes()));
        }
    }
}

#[tonic::async_trait]
impl Sequencer for Echo {
    type NextManyStream = BoxStream<'static, Result<NextManyResponse, Status>>;

    async fn next(&self, request: Request<NextRequest>) -> Result<Response<NextResponse>, Status> {
        self.read_token(&request);
        Ok(Response::new(NextResponse { first: 1, last: 1, increment: 1, route: None }))
    }

    async fn next_many(
        &self, requests: Request<Streaming<NextManyRequest>>,
    ) -> Result<Response<Self::NextManyStream>, Status> {
        self.read_token(&requests);
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
