//! The front server: gRPC for clients, the peer protocol, Prometheus. They translate and call; there
//! is no logic in here.
//!
//! Uses the node. Invariant: whatever arrives, a door answers with a status and never panics.

mod admin;
mod calls;
mod connections;
mod deadline;
mod descriptors;
mod errors;
mod forwarded;
mod health;
mod listeners;
mod metrics;
mod peer;
mod sequencer;
mod stream;
mod unfinished;

use std::{sync::Arc, time::Duration};

use prometheus_client::metrics::{counter::Counter, gauge::Gauge};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic_health::pb::health_server::HealthServer;
use tower::Layer;

use admin::AdminService;
use connections::{Limits, Protocol, serve};
use health::HealthService;
use listeners::Listeners;
pub use peer::PeerService;
use sequencer::SequencerService;
use unfinished::MeteredRoutes;

use crate::{
    consensus::MESSAGE_BYTES_MAX,
    node::{Config, Node, Seams, Shared, StartError},
    proto::{
        PUBLIC_DESCRIPTORS,
        peer::peer_server::PeerServer,
        v1::{admin_server::AdminServer, sequencer_server::SequencerServer},
    },
};

/// The largest client message, in bytes.
const CLIENT_MESSAGE_BYTES_MAX: usize = 1 << 20;

/// How many connections the peers have with this node at most: each has up to three.
const PEER_CONNECTIONS_MAX: u64 = 128;
/// How many scrapers and probes are connected at most.
const METRICS_CONNECTIONS_MAX: u64 = 32;

/// Starts a node and opens its ports.
///
/// # Errors
/// [`StartError`].
pub async fn start(config: Config, seams: Seams) -> Result<Node, StartError> {
    config.check()?;
    let client_connections_max = descriptors::client_connections(&config)?;
    // Bound, so that an address in use is found before anything is made; nobody is answered yet.
    let listeners = Listeners::bind(&config).await?;
    let at = listeners
        .addresses()
        .map_err(|e| StartError::Internal(e.to_string()))?;
    let node = Node::start(config, seams, at).await?;
    tracing::info!(clients = %at.client, peers = %at.peer, metrics = ?at.metrics, "listening");
    let server = Server {
        shared: node.shared().clone(),
        stop: node.stopping(),
        client_connections_max,
    };
    node.run("peer port", server.clone().serve_peers(listeners.peer));
    node.run(
        "client port",
        server.clone().serve_clients(listeners.client),
    );
    if let Some(listener) = listeners.metrics {
        node.run("metrics port", server.serve_metrics(listener));
    }
    Ok(node)
}

/// What serves one node's ports.
#[derive(Clone)]
struct Server {
    shared: Arc<Shared>,
    stop: CancellationToken,
    client_connections_max: u64,
}

impl Server {
    /// Serves clients: the public API, health and reflection.
    async fn serve_clients(self, listener: TcpListener) {
        let routes = match self.client_routes() {
            Ok(routes) => routes,
            Err(error) => return self.shared.fail(format!("no reflection service: {error}")),
        };
        let metrics = &self.shared.metrics;
        let limits = Limits {
            connections: metrics.client_connections.clone(),
            refused: metrics.client_connections_refused.clone(),
            ..self.limits("client", Protocol::Http2, self.client_connections_max)
        };
        let routes = MeteredRoutes::new(routes, self.shared.request_memory.clone());
        let routes = errors::counting(metrics.clone()).layer(routes);
        serve(listener, routes, limits, self.stop).await;
    }

    /// The services of the client port.
    fn client_routes(&self) -> Result<Routes, tonic_reflection::server::Error> {
        let reflection = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(PUBLIC_DESCRIPTORS)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        };
        let (shared, stop) = (&self.shared, &self.stop);
        let sequencer = SequencerService::new(shared.clone(), stop.clone());
        let admin = AdminService::new(shared.clone());
        let health = HealthService::new(shared.clone(), stop.clone());
        Ok(Routes::new(
            SequencerServer::new(sequencer).max_decoding_message_size(CLIENT_MESSAGE_BYTES_MAX),
        )
        .add_service(AdminServer::new(admin).max_decoding_message_size(CLIENT_MESSAGE_BYTES_MAX))
        .add_service(HealthServer::new(health))
        .add_service(reflection().build_v1()?)
        .add_service(reflection().build_v1alpha()?))
    }

    /// Serves peers.
    async fn serve_peers(self, listener: TcpListener) {
        let service = PeerService::new(self.shared.clone(), self.stop.clone());
        let routes = Routes::new(
            PeerServer::new(service)
                .max_decoding_message_size(MESSAGE_BYTES_MAX)
                .max_encoding_message_size(MESSAGE_BYTES_MAX),
        );
        let limits = self.limits("peer", Protocol::Http2, PEER_CONNECTIONS_MAX);
        serve(listener, routes.prepare(), limits, self.stop).await;
    }

    /// Serves Prometheus, and orchestrators' probes.
    async fn serve_metrics(self, listener: TcpListener) {
        let limits = self.limits("metrics", Protocol::Http1, METRICS_CONNECTIONS_MAX);
        let routes = metrics::routes(self.shared.clone());
        serve(listener, Routes::from(routes).prepare(), limits, self.stop).await;
    }

    fn limits(&self, port: &'static str, protocol: Protocol, connections_max: u64) -> Limits {
        Limits {
            port,
            protocol,
            connections_max,
            idle: Duration::from_millis(self.shared.config.connection_idle_ms),
            connections: Gauge::default(),
            refused: Counter::default(),
        }
    }
}
