//! The front doors: gRPC for clients, the peer protocol, Prometheus. They translate and call; there
//! is no logic in here.
//!
//! Uses the node. Invariant: whatever arrives, a door answers with a status and never panics.

mod admin;
mod deadline;
mod listeners;
mod metrics;
mod peer;
mod sequencer;
mod stream;

use std::{sync::Arc, time::Duration};

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Server, server::TcpIncoming};

use listeners::Listeners;
pub use peer::Door as PeerDoor;

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

/// How many calls one client connection may have under way; more wait at the client.
const CONNECTION_CALLS_MAX: u32 = 1_024;

/// Starts a node and opens its doors.
///
/// # Errors
/// [`StartError`].
pub async fn start(config: Config, seams: Seams) -> Result<Node, StartError> {
    config.check()?;
    // Bound, so that an address in use is found before anything is made; nobody is answered yet.
    let listeners = Listeners::bind(&config).await?;
    let at = listeners
        .addresses()
        .map_err(|e| StartError::Internal(e.to_string()))?;
    let node = Node::start(config, seams, at).await?;
    tracing::info!(clients = %at.client, peers = %at.peer, metrics = ?at.metrics, "listening");
    let doors = Doors {
        shared: node.shared().clone(),
        stop: node.stopping(),
    };
    node.run(doors.clone().peers(listeners.peer));
    node.run(doors.clone().clients(listeners.client));
    if let Some(listener) = listeners.metrics {
        node.run(doors.metrics(listener));
    }
    Ok(node)
}

/// The doors of one node.
#[derive(Clone)]
struct Doors {
    shared: Arc<Shared>,
    stop: CancellationToken,
}

impl Doors {
    /// Serves clients: the public API, health and reflection.
    async fn clients(self, listener: TcpListener) {
        let (health, health_service) = tonic_health::server::health_reporter();
        let reporting = sequencer::report_health(self.shared.clone(), health, self.stop.clone());
        let reflection = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(PUBLIC_DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .build_v1();
        let reflection_alpha = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(PUBLIC_DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .build_v1alpha();
        let (reflection, reflection_alpha) = match (reflection, reflection_alpha) {
            (Ok(reflection), Ok(alpha)) => (reflection, alpha),
            (Err(error), _) | (_, Err(error)) => {
                return self.shared.fail(format!("no reflection service: {error}"));
            }
        };
        let serving = builder()
            .add_service(
                SequencerServer::new(sequencer::Door::new(self.shared.clone(), self.stop.clone()))
                    .max_decoding_message_size(CLIENT_MESSAGE_BYTES_MAX),
            )
            .add_service(
                AdminServer::new(admin::Door(self.shared.clone()))
                    .max_decoding_message_size(CLIENT_MESSAGE_BYTES_MAX),
            )
            .add_service(health_service)
            .add_service(reflection)
            .add_service(reflection_alpha)
            .serve_with_incoming_shutdown(incoming(listener), self.stop.clone().cancelled_owned());
        let (served, ()) = tokio::join!(serving, reporting);
        if let Err(error) = served {
            self.shared.fail(format!("the client port failed: {error}"));
        }
    }

    /// Serves peers.
    async fn peers(self, listener: TcpListener) {
        let door = peer::Door::new(self.shared.clone(), self.stop.clone());
        let served = builder()
            .add_service(
                PeerServer::new(door)
                    .max_decoding_message_size(MESSAGE_BYTES_MAX)
                    .max_encoding_message_size(MESSAGE_BYTES_MAX),
            )
            .serve_with_incoming_shutdown(incoming(listener), self.stop.clone().cancelled_owned())
            .await;
        if let Err(error) = served {
            self.shared.fail(format!("the peer port failed: {error}"));
        }
    }

    /// Serves Prometheus.
    async fn metrics(self, listener: TcpListener) {
        if let Err(error) = metrics::serve(self.shared.clone(), listener, self.stop).await {
            self.shared
                .fail(format!("the metrics port failed: {error}"));
        }
    }
}

/// How a server of clients is built.
pub(crate) fn builder() -> Server {
    Server::builder()
        .tcp_nodelay(true)
        .max_concurrent_streams(CONNECTION_CALLS_MAX)
        .http2_keepalive_interval(Some(Duration::from_secs(10)))
        .http2_keepalive_timeout(Some(Duration::from_secs(10)))
}

/// How its connections come in.
pub(crate) fn incoming(listener: TcpListener) -> TcpIncoming {
    TcpIncoming::from(listener).with_nodelay(Some(true))
}
