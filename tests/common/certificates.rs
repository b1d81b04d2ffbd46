//! Certificates that `ratchet cert` has made, and connections that show them.

use std::{fs, io, net::SocketAddr, sync::Arc};

use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        ALL_VERSIONS, ClientConfig, RootCertStore, SupportedProtocolVersion,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    },
};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use super::processes::ratchet;

/// A certificate, and its key.
pub type Pair = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// A directory with a CA, and the certificates that it has signed.
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
    ) -> io::Result<TlsStream<TcpStream>> {
        let mut config = self.client_config(Some(shown), ALL_VERSIONS);
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        connect_with(&Arc::new(config), address).await
    }

    /// How a client connects that trusts this CA, shows the certificate of this name, and speaks these versions of TLS.
    /// Connections that begin with the same one may go on with a session of an earlier one.
    pub fn client_config(
        &self, shown: Option<&str>, versions: &[&'static SupportedProtocolVersion],
    ) -> ClientConfig {
        self.config_showing(shown.map(|name| self.pair(name)), versions)
    }

    /// As [`Certificates::client_config`], with a certificate of the test's own.
    pub fn config_showing(
        &self, shown: Option<Pair>, versions: &[&'static SupportedProtocolVersion],
    ) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        for ca in CertificateDer::pem_slice_iter(&self.read("ca.crt")) {
            roots.add(ca.expect("PEM")).expect("a CA");
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(versions)
            .expect("versions")
            .with_root_certificates(roots);
        match shown {
            None => config.with_no_client_auth(),
            Some((chain, key)) => config.with_client_auth_cert(chain, key).expect("a pair"),
        }
    }

    /// A certificate of this name, and its key.
    pub fn pair(&self, name: &str) -> Pair {
        let chain = self.read(&format!("{name}.crt"));
        let chain = CertificateDer::pem_slice_iter(&chain).collect::<Result<_, _>>().expect("PEM");
        let key = PrivateKeyDer::from_pem_slice(&self.read(&format!("{name}.key"))).expect("PEM");
        (chain, key)
    }
}

/// A connection that begins so.
pub async fn connect_with(
    config: &Arc<ClientConfig>, address: SocketAddr,
) -> io::Result<TlsStream<TcpStream>> {
    let socket = TcpStream::connect(address).await?;
    TlsConnector::from(config.clone()).connect(address.ip().into(), socket).await
}
