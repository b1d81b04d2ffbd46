//! Certificates that `ratchet cert` has made, and connections that show them.

use std::{fs, net::SocketAddr, sync::Arc};

use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    },
};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use super::processes::ratchet;

/// A directory with a CA, and what it has signed.
pub struct Certificates(TempDir);

impl Certificates {
    pub fn new() -> Certificates {
        let made = Certificates(TempDir::new().expect("a directory"));
        made.make(&["ca"]);
        made
    }

    /// `ratchet cert` with these arguments.
    pub fn make(&self, args: &[&str]) {
        let made = ratchet().arg("cert").args(args).arg("--dir").arg(self.0.path()).output();
        let made = made.expect("the command runs");
        assert!(made.status.success(), "{args:?}: {made:?}");
    }

    pub fn node(&self, id: u64, hosts: &str, more: &[&str]) {
        let id = id.to_string();
        let args = ["node", "--cluster", "test", "--node-id", &id, "--host", hosts];
        self.make(&[&args[..], more].concat());
    }

    pub fn client(&self, name: &str) {
        self.make(&["client", "--cluster", "test", "--name", name]);
    }

    pub fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().expect("UTF-8").to_owned()
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).expect(name)
    }

    /// The flags of a node whose files these are.
    pub fn peer_flags(&self, node: u64, mode: &str) -> Vec<String> {
        let file = |end: &str| self.path(&format!("node-{node}.{end}"));
        [
            ("--peer-tls", mode.to_owned()),
            ("--peer-tls-cert", file("crt")),
            ("--peer-tls-key", file("key")),
            ("--peer-tls-ca", self.path("ca.crt")),
        ]
        .map(|(flag, value)| format!("{flag}={value}"))
        .to_vec()
    }

    /// The flags of a node that serves clients with these files, without asking for theirs.
    pub fn client_flags(&self, node: u64, mode: &str) -> Vec<String> {
        let file = |end: &str| self.path(&format!("node-{node}.{end}"));
        [("--tls", mode.to_owned()), ("--tls-cert", file("crt")), ("--tls-key", file("key"))]
            .map(|(flag, value)| format!("{flag}={value}"))
            .to_vec()
    }

    /// A connection over gRPC that trusts this CA, and shows this certificate.
    pub fn channel(&self, address: SocketAddr, shown: Option<&str>) -> Channel {
        let mut tls =
            ClientTlsConfig::new().ca_certificate(Certificate::from_pem(self.read("ca.crt")));
        if let Some(name) = shown {
            let [certificate, key] = ["crt", "key"].map(|end| self.read(&format!("{name}.{end}")));
            tls = tls.identity(Identity::from_pem(certificate, key));
        }
        let endpoint = Endpoint::from_shared(format!("https://{address}")).expect("an address");
        endpoint.tls_config(tls).expect("a configuration").connect_lazy()
    }

    /// A connection that trusts this CA, shows this certificate, and offers these protocols.
    pub async fn connect(
        &self, address: SocketAddr, shown: &str, protocols: &[&str],
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        for ca in CertificateDer::pem_slice_iter(&self.read("ca.crt")) {
            roots.add(ca.expect("PEM")).expect("a CA");
        }
        let chain = self.read(&format!("{shown}.crt"));
        let chain = CertificateDer::pem_slice_iter(&chain).collect::<Result<_, _>>().expect("PEM");
        let key = PrivateKeyDer::from_pem_slice(&self.read(&format!("{shown}.key"))).expect("PEM");
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)
            .expect("a pair");
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        let socket = TcpStream::connect(address).await?;
        TlsConnector::from(Arc::new(config)).connect(address.ip().into(), socket).await
    }
}
