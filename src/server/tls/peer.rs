//! Connections between nodes: each end is a node of this cluster, by its certificate.
//!
//! TLS libraries compare a server's certificate with a name of its host. Here the name is the node's: what answers at an
//! address is the node that is asked for, or nobody.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use hyper::Uri;
use hyper_util::{client::legacy::connect::HttpConnector, rt::TokioIo};
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
        client::{
            Resumption,
            danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
            verify_server_cert_signed_by_trust_anchor,
        },
        crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
        pki_types::{CertificateDer, ServerName, UnixTime},
        server::ParsedCertificate,
    },
};
use tonic::codegen::Service;

use super::{certificate_facts::CertificateFacts, certificates::Certificates, material::provider};
use crate::{sequence::NodeId, server::rare_warning::RareWarning};

/// Connects to peers with TLS.
#[derive(Debug, Clone)]
pub struct PeerConnector {
    certificates: Arc<Certificates>,
    /// The cluster's name.
    cluster: Arc<str>,
    warning: Arc<RareWarning>,
}

/// How long a handshake may take. Both ends make and check signatures for it.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(2);

impl PeerConnector {
    pub(super) fn new(certificates: Arc<Certificates>, cluster: &str) -> PeerConnector {
        PeerConnector { certificates, cluster: cluster.into(), warning: Arc::default() }
    }

    /// Connects to node `node` of the cluster, and to nobody else. It waits for a socket until `socket_time_max`.
    pub fn to(&self, node: NodeId, socket_time_max: Duration) -> NodeConnector {
        NodeConnector { peers: self.clone(), node, socket_time_max }
    }
}

/// Connects to one node.
#[derive(Clone)]
pub struct NodeConnector {
    peers: PeerConnector,
    node: NodeId,
    socket_time_max: Duration,
}

impl Service<Uri> for NodeConnector {
    type Response = TokioIo<TlsStream<TcpStream>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move {
            let mut sockets = HttpConnector::new();
            sockets.set_nodelay(true);
            sockets.set_connect_timeout(Some(connector.socket_time_max));
            let socket = sockets.call(uri.clone()).await.map_err(io::Error::other)?.into_inner();
            let config = connector.config().map_err(io::Error::other)?;
            // rustls wants a name. `NodeVerifier` ignores it, and for an IP address no SNI is sent.
            let name = ServerName::IpAddress(socket.peer_addr()?.ip().into());
            let shaking = TlsConnector::from(Arc::new(config)).connect(name, socket);
            let shaken = timeout(HANDSHAKE_TIME_MAX, shaking).await;
            let late = |_| Err(io::Error::new(io::ErrorKind::TimedOut, "it takes too long"));
            shaken.unwrap_or_else(late).map(TokioIo::new).inspect_err(|error| {
                if connector.peers.warning.is_due() {
                    let node = connector.node;
                    tracing::warn!("no TLS handshake with node {node} at {uri}: {error}");
                }
            })
        })
    }
}

impl NodeConnector {
    /// The configuration of a new connection, with the latest certificates.
    fn config(&self) -> Result<ClientConfig, Error> {
        let material = self.peers.certificates.current();
        let provider = provider();
        let verifier = NodeVerifier {
            roots: material.roots.clone(),
            provider: provider.clone(),
            cluster: self.peers.cluster.clone(),
            node: self.node,
        };
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_client_cert_resolver(material.shown.clone());
        config.alpn_protocols = vec![b"h2".to_vec()];
        config.resumption = Resumption::disabled();
        Ok(config)
    }
}

/// Takes the certificate of one node: a CA of the cluster has signed it, and it names the node.
#[derive(Debug)]
struct NodeVerifier {
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
    cluster: Arc<str>,
    node: NodeId,
}

impl NodeVerifier {
    fn check_name(&self, certificate: &CertificateDer<'_>) -> Result<(), String> {
        match CertificateFacts::read(certificate)?.node_of(&self.cluster)? {
            named if named == self.node => Ok(()),
            named => Err(format!("it is node {named}'s, and node {} is asked for", self.node)),
        }
    }
}

impl ServerCertVerifier for NodeVerifier {
    fn verify_server_cert(
        &self, certificate: &CertificateDer<'_>, others: &[CertificateDer<'_>], _: &ServerName<'_>,
        _: &[u8], now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let parsed = ParsedCertificate::try_from(certificate)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, others, now, algorithms)?;
        self.check_name(certificate).map_err(Error::General)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self, message: &[u8], certificate: &CertificateDer<'_>, signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self, message: &[u8], certificate: &CertificateDer<'_>, signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use tokio_rustls::rustls::pki_types::pem::PemObject;

    use super::*;
    use crate::server::tls::tests::{Ca, YEAR, ca, pair};

    /// Whether node `node` of cluster `cluster` is believed to show this certificate.
    fn verified(roots: &Ca, cluster: &str, node: NodeId, shown: &str) -> Result<(), String> {
        let mut store = RootCertStore::empty();
        store.add(roots.der().clone()).expect("a CA");
        let (roots, cluster) = (Arc::new(store), cluster.into());
        let verifier = NodeVerifier { roots, provider: provider(), cluster, node };
        let shown = CertificateDer::from_pem_slice(shown.as_bytes()).expect("PEM");
        let host = ServerName::try_from("anything").expect("a name");
        let verified = verifier.verify_server_cert(&shown, &[], &host, &[], UnixTime::now());
        verified.map(drop).map_err(|error| error.to_string())
    }

    #[test]
    fn only_the_node_that_is_asked_for_is_believed_by_a_certificate_of_the_clusters_ca() {
        let (mine, other) = (ca(), ca());
        let [shown, _] = pair(&mine, 7, YEAR);
        assert_eq!(verified(&mine, "test", 7, &shown), Ok(()));
        let refused = |cluster, node, shown: &str, why| {
            let refused = verified(&mine, cluster, node, shown).expect_err(why);
            assert!(refused.contains(why), "{refused}: {why}");
        };
        refused("test", 8, &shown, "it is node 7's, and node 8 is asked for");
        refused("prod", 7, &shown, "which is no node of cluster");
        // CAs of one name differ in their keys.
        refused("test", 7, &pair(&other, 7, YEAR)[0], "BadSignature");
        refused("test", 7, &pair(&mine, 7, [-2, -1])[0], "expired");
        refused("test", 7, &pair(&mine, 7, [1, 2])[0], "not valid yet");
    }
}
