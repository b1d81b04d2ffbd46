//! The interfaces of a node: gRPC, HTTP and RESP for clients, the peer protocol, and HTTP for Prometheus and probes. They
//! make messages of the public API out of what callers send, have the node answer them, and contain no logic of their own.
//!
//! From a socket to a number:
//!
//! 1. `connections/listeners.rs` binds the ports. `connections/acceptor.rs` accepts a connection, if there is room for it
//!    (`connections/places.rs`), and `connections/opening.rs` begins it, with TLS (`tls.rs`) or without. `connections/owner.rs`
//!    says who asks. `connections.rs` serves the calls of an HTTP connection; `connections/calls.rs` knows when it is idle.
//!    `connections/local_socket.rs` does all of that for the local socket.
//! 2. `metadata.rs` refuses what is meant for another cluster. `connections/unfinished.rs` limits the memory of a message
//!    that arrives in parts, and `peer/body.rs` what strangers send to the peer port; both know when it is late
//!    (`connections/arrival.rs`). The gRPC library decodes the whole message and calls a method of a service:
//!    `grpc/sequencer.rs` for `Next` and `Current`, `grpc/next_many.rs` for `NextMany`, `grpc/ids.rs`, `grpc/health.rs`,
//!    `peer.rs`, and `peer/forwarded.rs` for what followers forward.
//! 3. The service reads the deadline (`metadata.rs`), has the message checked (`CheckedRequest`), and calls `Numbers::serve` of
//!    [`crate::node`]. The node answers, or asks the leader. The methods that `proto` calls served by the leader or the asked
//!    node have no service: `grpc/operations.rs` passes their messages on as they are.
//! 4. The answer is a message. A failure becomes a gRPC status and is counted (`grpc/errors.rs`).
//!
//! `http.rs` is the same for JSON over HTTP, and `resp.rs` for Redis clients: both make the same messages. A folder uses those
//! in the rows below it (`tests/architecture/rooms.rs`). From the top down, a blank line between two rows:
//!
//! * `http`: JSON over HTTP, the status page, and the forms of other id generators.
//! * `peer`: the peer protocol, both ends of it.
//!
//! * `grpc`: the services for callers.
//!
//! * `metadata`: the headers of a call: cluster, deadline, compression.
//! * `resp`: commands of Redis clients.
//!
//! * `metrics`: the port for Prometheus and probes.
//! * `otlp`: sends spans to a collector.
//!
//! * `foreign_page`: refuses requests that a page of another site sends.
//!
//! * `connections`: ports, connections, and the bounds on both.
//!
//! * `tls`: the certificates of this node, and those that it accepts.
//!
//! * `header_values`: the values of one header of a request.
//! * `rare_warning`: warnings that are given now and then only.
//! * `trace_headers`: the trace that the headers of a call name.
//! * `written`: integers and keys that callers write as text.
//!
//! Uses the node and below. Invariant: every call gets an answer or a status; no input causes a panic.

mod connections;
mod foreign_page;
mod grpc;
mod header_values;
mod http;
mod metadata;
mod metrics;
mod otlp;
mod peer;
mod rare_warning;
mod resp;
mod tls;
mod trace_headers;
pub(crate) mod written;

use std::{net::Ipv4Addr, sync::Arc, time::Duration};

use hyper::body::Incoming;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::service::{LayerExt, Routes};
use tonic_health::pb::health_server::HealthServer;
use tower::Layer;

use crate::{
    consensus::MESSAGE_BYTES_MAX,
    metrics::{Interface, RefusedAt},
    node::{Config, Node, NodeContext, Port, Seams, StartError, are_peers_nodes},
    proto::{
        PUBLIC_DESCRIPTORS,
        peer::peer_server::PeerServer,
        v1::{ids_server::IdsServer, sequencer_server::SequencerServer},
    },
};
use connections::{
    Protocol,
    acceptor::ConnectionLimits,
    answer_memory::holding,
    answering::Answering,
    client_limit::client_connections,
    listeners::Listeners,
    local_socket::LocalSocket,
    opening::{Handshakes, Opening},
    owner::Owner,
    places::{ConnectionPlace, WhenFull},
    serve,
    stream::Stream,
    unfinished::{CLIENT_MESSAGE_BYTES_MAX, metered},
};
pub use grpc::{Services, operations::Raw};
use metadata::Addressed;
use otlp::Exporter;
use peer::body::{PeerConnection, from_peers};
pub use peer::{PeerServices, client::GrpcTransport};
use tls::Tls;

/// How many connections the peer port has. Each peer keeps two, and opens one more for each snapshot or memory that it sends:
/// those of strangers make room.
const PEER_CONNECTIONS_MAX: u64 = 128;
/// How many connections scrapers and probes may open. Those that are not used make room.
const METRICS_CONNECTIONS_MAX: u64 = 32;
/// How many connections administrators may open. Those that are not used make room.
const ADMIN_CONNECTIONS_MAX: u64 = 16;

/// Starts a node of production, and serves its ports.
///
/// # Errors
/// [`StartError`] if the configuration cannot work, a file of TLS cannot be used, an address cannot be bound, too few files may
/// be opened, or the node cannot start on its data directory.
pub async fn start(config: Config) -> Result<Node, StartError> {
    config.check()?;
    let tls = Tls::read(&config).await?;
    let transport = GrpcTransport::with_tls(tls.connector(&config));
    serve_ports(config, Seams::real(Arc::new(transport)), tls).await
}

/// Starts a node with these seams, and serves its ports. Their transport is used as it is: `peer_tls` changes connections from
/// peers alone.
///
/// # Errors
/// [`StartError`] if the configuration cannot work, or names a file of TLS that cannot be used; if an address cannot be bound,
/// too few files may be opened, or the node cannot start on its data directory.
pub async fn start_with(config: Config, seams: Seams) -> Result<Node, StartError> {
    config.check()?;
    let tls = Tls::read(&config).await?;
    serve_ports(config, seams, tls).await
}

async fn serve_ports(mut config: Config, seams: Seams, tls: Tls) -> Result<Node, StartError> {
    config.client_connections_max = client_connections(&config)?;
    // Bound first, so that an address in use is found before the data directory is created. Connections wait
    // until the ports are served below.
    let listeners = Listeners::bind(&config).await?;
    let exporter = Exporter::new(&config)?;
    let at = listeners.addresses().map_err(|e| StartError::Internal(e.to_string()))?;
    let seams = Seams { certificates: Arc::new(tls.clone()), ..seams };
    let node = Node::start(config, seams, at).await?;
    let local = LocalSocket::bind(&node.context().config.data_dir);
    tracing::info!(
        clients = %at.client,
        peers = %at.peer,
        metrics = at.metrics.map(display),
        http = at.http.map(display),
        redis = at.resp.map(display),
        admin = at.admin.map(display),
        local = local.as_ref().map(|local| display(local.path().display())),
        "listening"
    );
    let ports = Ports { context: node.context().clone(), stop: node.stopping() };
    node.run_until_stopped("activity", node.context().services.status.clone().observe_activity());
    node.run_until_stopped("readiness", node.context().readiness.clone().follow());
    node.run("peer port", ports.clone().serve_peers(listeners.peer, ports.of_peers(&tls)));
    let opening = ports.of_clients(&tls, RefusedAt::grpc, Some(b"h2"));
    node.run("client port", ports.clone().serve_clients(listeners.client, opening));
    if let Some(listener) = listeners.admin {
        let opening = ports.of_clients(&tls, RefusedAt::grpc, Some(b"h2"));
        node.run("admin port", ports.clone().serve_administrators(listener, opening));
    }
    if let Some(local) = local {
        node.run("local socket", ports.clone().serve_local(local));
    }
    if let Some(listener) = listeners.http {
        let opening = ports.of_clients(&tls, RefusedAt::http, Some(b"http/1.1"));
        node.run("http port", ports.clone().serve_http(listener, opening));
    }
    if let Some(listener) = listeners.resp {
        let opening = ports.of_clients(&tls, RefusedAt::redis, None);
        node.run("redis port", ports.clone().serve_resp(listener, opening));
    }
    if let Some(listener) = listeners.metrics {
        node.run("metrics port", ports.serve_metrics(listener));
    }
    if let (Some(exporter), Some(ended)) = (exporter, node.context().traces.take_ended()) {
        let metrics = node.context().metrics.clone();
        node.run("sending spans", exporter.run(ended, metrics, node.stopping()));
    }
    node.run_until_stopped("certificates", tls.follow(node.context().metrics.clone()));
    Ok(node)
}

/// The ports of a node.
#[derive(Clone)]
struct Ports {
    /// The node.
    context: Arc<NodeContext>,
    /// Cancelled when the node stops: ports end then.
    stop: CancellationToken,
}

impl Ports {
    /// How connections of clients begin at a port of this interface, with this ALPN protocol, if it has one.
    fn of_clients(&self, tls: &Tls, at: RefusedAt, alpn: Option<&'static [u8]>) -> Opening {
        Opening::new(tls.clients.clone().map(|certificates| Handshakes {
            certificates,
            takes_plain: self.context.config.tls.takes_plain(),
            alpn,
            cluster: None,
            at,
            access: self.context.services.access.clone(),
            warning: Arc::default(),
        }))
    }

    /// How connections of peers begin.
    fn of_peers(&self, tls: &Tls) -> Opening {
        let config = &self.context.config;
        Opening::new(tls.peers.clone().map(|certificates| Handshakes {
            certificates,
            takes_plain: config.peer_tls.takes_plain(),
            alpn: Some(b"h2"),
            cluster: Some(config.cluster.clone()),
            at: RefusedAt::peer,
            access: self.context.services.access.clone(),
            warning: Arc::default(),
        }))
    }

    /// Serves the client port: the public API, health and reflection.
    async fn serve_clients(self, listener: TcpListener, opening: Opening) {
        let limits = self.client_limits("client", Interface::grpc);
        self.serve_grpc(listener, opening, limits, |owner| owner).await;
    }

    /// Serves the port for administrators: what the client port serves. Its limits are its own, so that clients that fill
    /// theirs keep no administrator out.
    async fn serve_administrators(self, listener: TcpListener, opening: Opening) {
        let limits = ConnectionLimits {
            callers: Some((self.context.callers.clone(), Port::Administrators)),
            ..self.limits("admin", WhenFull::EndIdle(ADMIN_CONNECTIONS_MAX))
        };
        self.serve_grpc(listener, opening, limits, Owner::at_admin_port).await;
    }

    /// Serves the public API, health and reflection at a port whose callers are what `at_port` makes of the owner of a
    /// connection.
    async fn serve_grpc(
        self, listener: TcpListener, opening: Opening, limits: ConnectionLimits,
        at_port: fn(Owner) -> Owner,
    ) {
        let Some(routes) = self.metered_routes(limits.idle) else {
            return;
        };
        let (context, stop) = (self.context, self.stop);
        let of_calls = stop.clone();
        let counting = grpc::errors::counting(context.metrics.clone());
        let answer = move |_: &_, stream: &Stream| {
            let (routes, owner) = (routes.clone(), at_port(Owner::of(stream, Interface::grpc)));
            owner.begins(&context.services.access);
            counting.layer(Addressed::new(routes, context.clone(), owner, of_calls.clone()))
        };
        serve(listener, opening, answer, Protocol::Http2, limits, stop).await;
    }

    /// Serves the local socket: what the client port serves, for users who may open the data directory.
    async fn serve_local(self, socket: LocalSocket) {
        let idle = Duration::from_millis(self.context.config.connection_idle_ms);
        let Some(routes) = self.metered_routes(idle) else {
            return;
        };
        let counting = grpc::errors::counting(self.context.metrics.clone());
        let answer = Addressed::new(routes, self.context, Owner::local(), self.stop.clone());
        let answer = counting.layer(answer);
        socket.serve(answer, idle, self.stop).await;
    }

    /// The services of the client port, whose unfinished messages are metered. A stream may be silent for `idle`, if others
    /// need its place. `None` if the node cannot go on.
    fn metered_routes(&self, idle: Duration) -> Option<impl Answering + use<>> {
        let told = |error| format!("cannot create the reflection service: {error}");
        let routes = self.client_routes().map_err(|error| self.context.fail(told(error))).ok()?;
        let patience = Duration::from_millis(self.context.config.request_timeout_max_ms);
        Some(metered(routes, self.context.request_memory.clone(), [patience, idle]))
    }

    /// Serves the port for HTTP.
    async fn serve_http(self, listener: TcpListener, opening: Opening) {
        let limits = self.client_limits("http", Interface::http);
        let live = http::Live::new(self.stop.clone());
        let port = http::HttpPort::new(self.context.clone(), live.clone());
        let rendering = live.run(self.context.clone());
        let access = self.context.services.access.clone();
        let answer = move |_: &_, stream: &Stream| {
            let owner = Owner::of(stream, Interface::http);
            owner.begins(&access);
            port.requests_of::<Incoming>(owner)
        };
        let serving = serve(listener, opening, answer, Protocol::Http1, limits, self.stop);
        tokio::select! {
            biased;
            () = serving => {}
            () = rendering => {}
        }
    }

    /// Serves the port for Redis clients.
    async fn serve_resp(self, listener: TcpListener, opening: Opening) {
        let limits = self.client_limits("redis", Interface::redis);
        resp::serve(listener, opening, self.context, limits, self.stop).await;
    }

    /// The services of the client port.
    ///
    /// # Errors
    /// If the API's descriptors are not valid: a fault of the build.
    fn client_routes(&self) -> Result<Routes, tonic_reflection::server::Error> {
        let reflection = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(PUBLIC_DESCRIPTORS)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        };
        // At most one description waits while another one is sent.
        let described = holding(self.context.request_memory.clone(), 2 * PUBLIC_DESCRIPTORS.len());
        let services = Services { context: self.context.clone(), stop: self.stop.clone() };
        let routes = Routes::new(
            SequencerServer::new(services.clone())
                .max_decoding_message_size(CLIENT_MESSAGE_BYTES_MAX),
        )
        .add_service(
            IdsServer::new(services.clone()).max_decoding_message_size(CLIENT_MESSAGE_BYTES_MAX),
        )
        .add_service(HealthServer::new(services))
        .add_service(described.named_layer(reflection().build_v1()?))
        .add_service(described.named_layer(reflection().build_v1alpha()?));
        let operations = grpc::operations::routes(&self.context);
        Ok(Routes::from(routes.into_axum_router().merge(operations)))
    }

    /// Serves the peer port.
    async fn serve_peers(self, listener: TcpListener, opening: Opening) {
        let services = PeerServices { context: self.context.clone(), stop: self.stop.clone() };
        let routes = Routes::new(
            PeerServer::new(services)
                .max_decoding_message_size(MESSAGE_BYTES_MAX)
                .max_encoding_message_size(MESSAGE_BYTES_MAX),
        );
        let routes = routes.prepare();
        let limits = self.limits("peer", WhenFull::EndStrangers(PEER_CONNECTIONS_MAX));
        let context = self.context;
        let is_nodes = are_peers_nodes(&context.config);
        let of_connection = move |place: &Arc<ConnectionPlace>, stream: &Stream| {
            let (group, memory) = (context.group.clone(), context.request_memory.clone());
            let rpc_handler = context.services.of_group.rpc_handler().clone();
            let from = stream.socket().peer_addr();
            let from = from.map_or(Ipv4Addr::UNSPECIFIED.into(), |from| from.ip());
            let caller = context.callers.at(from);
            let certified = stream.node();
            let connection =
                PeerConnection { group, rpc_handler, memory, caller, certified, is_nodes };
            from_peers(routes.clone(), connection, place.clone())
        };
        serve(listener, opening, of_connection, Protocol::PeerHttp2, limits, self.stop).await;
    }

    /// Serves the metrics port: Prometheus, and orchestrators' probes.
    async fn serve_metrics(self, listener: TcpListener) {
        let limits = self.limits("metrics", WhenFull::EndIdle(METRICS_CONNECTIONS_MAX));
        let routes = Routes::from(metrics::routes(self.context.clone())).prepare();
        let answer = move |_: &_, _: &_| routes.clone();
        serve(listener, Opening::plain(), answer, Protocol::Http1, limits, self.stop).await;
    }

    /// The limits of a port for clients. All of these together have `client_connections_max` connections (`Callers::connect`).
    fn client_limits(&self, port: &'static str, interface: Interface) -> ConnectionLimits {
        let metrics = &self.context.metrics;
        let age_max = Duration::from_millis(self.context.config.connection_age_max_ms);
        ConnectionLimits {
            callers: Some((self.context.callers.clone(), Port::Clients)),
            age_max: (!age_max.is_zero()).then_some(age_max),
            connections: metrics.client_connections.of(interface).clone(),
            refused: metrics.client_connections_refused.of(interface).clone(),
            ..self.limits(port, WhenFull::RefuseNew)
        }
    }

    /// The limits of a port whose connections have no metrics.
    fn limits(&self, port: &'static str, when_full: WhenFull) -> ConnectionLimits {
        ConnectionLimits::new(&self.context.config, port, when_full)
    }
}

/// The interface for the fuzz targets and for `bench/instructions`: what parses the bytes of callers. A build without debug
/// assertions, such as a release, does not have it unless it is to be counted: the targets do not compile there.
#[cfg(any(debug_assertions, feature = "counting"))]
pub mod fuzzing {
    use std::sync::Arc;

    use tokio_util::sync::CancellationToken;

    pub use super::{
        resp::fuzzing::*,
        written::{integer, key},
    };
    use crate::{
        node::{Asker, NodeContext},
        proto::Refusal,
    };

    /// The asker of a call over gRPC or HTTP with these headers, over a connection that shows no certificate.
    ///
    /// # Errors
    /// UNAUTHENTICATED if there are several tokens.
    pub fn asks_with(headers: &hyper::HeaderMap) -> Result<Asker, Refusal> {
        let shown = super::connections::owner::Owner::nobody().shown_in(headers);
        shown.map_err(Refusal::from)
    }

    /// The routes of the port for HTTP.
    pub fn http_routes(context: Arc<NodeContext>) -> axum::Router {
        let live = super::http::Live::new(CancellationToken::new());
        let port = super::http::HttpPort::new(context, live);
        let nobody = super::connections::owner::Owner::nobody();
        axum::Router::new().fallback_service(port.requests_of(nobody))
    }
}
